//! How the optimiser's moments are held.

/// The first and the second moments of all elements of an update.
///
/// A moment in bf16 is rounded up at random, with a probability equal to the fraction dropped, so its mean over many
/// steps is that of f32. A decay of 0.999 moves it by less than half a unit of bf16, so rounding to nearest would never
/// move it.
#[derive(Debug)]
pub enum MomentsMut<'a, B> {
    /// One number for each element.
    F32([&'a mut B; 2]),
    /// Bf16, two elements in a number of the buffer, the first of them in its low half.
    Bf16 {
        /// The buffers.
        buffers: [&'a mut B; 2],
        /// Seed of the draws that round ([`hapo_core::RngStream::Moments`]): at the counter of [`crate::AdamW::step`] and
        /// of the element's number over eight, the element has 16 bits for the first moment and 16 for the second.
        seed: u64,
    },
}
