//! Buffers in main memory, which start on a cache line.
//!
//! Price: they are over-allocated by one line.

use crate::error::{DeviceError, Result};
use crate::memory_counter::{Counted, MemoryCounter};
use crate::span::{Buffer, Span, SpanMut};

/// Elements of a cache line.
pub(super) const LINE: usize = 16;

/// A buffer in main memory, aligned to a cache line.
#[derive(Debug)]
pub struct CpuBuf {
    data: Vec<f32>,
    start: usize,
    len: usize,
    _counted: Option<Counted>,
}

impl CpuBuf {
    pub(super) fn zeros(len: usize) -> Result<Self> {
        let bytes = len.saturating_mul(size_of::<f32>());
        let total = len.checked_add(LINE);
        let total = total.filter(|it| Vec::<f32>::new().try_reserve_exact(*it).is_ok());
        let total = total.ok_or(DeviceError::Allocation { bytes })?;
        // `vec!` asks for zeroed pages, which cost nothing until they are touched.
        let data = vec![0.0_f32; total];
        #[cfg(target_os = "linux")]
        ask_for_huge_pages(&data);
        let misaligned = (data.as_ptr().addr() / size_of::<f32>()) % LINE;
        Ok(Self { start: (LINE - misaligned) % LINE, data, len, _counted: None })
    }

    /// The same, counted among a device's buffers.
    pub(super) fn counted(len: usize, tally: &MemoryCounter) -> Result<Self> {
        let counted = tally.add(len * size_of::<f32>());
        Ok(Self { _counted: Some(counted), ..Self::zeros(len)? })
    }

    pub(super) fn copied(&self, tally: &MemoryCounter) -> Result<Self> {
        let mut copy = Self::counted(self.len, tally)?;
        copy.as_mut_slice().copy_from_slice(self.as_slice());
        Ok(copy)
    }

    /// The elements.
    pub fn as_slice(&self) -> &[f32] {
        &self.data[self.start..self.start + self.len]
    }

    /// The elements, to write.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.data[self.start..self.start + self.len]
    }
}

/// A product walks down columns, a page per step: with 2 MiB pages it does not wait for addresses. Only advice.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(data: &[f32]) {
    const HUGE: usize = 2 << 20;
    let start = data.as_ptr().addr().next_multiple_of(HUGE);
    let end = (data.as_ptr().addr() + size_of_val(data)) / HUGE * HUGE;
    if start < end {
        let pointer = data.as_ptr().with_addr(start).cast_mut().cast();
        // SAFETY: the range is inside the allocation; this advice changes no contents.
        unsafe { libc::madvise(pointer, end - start, libc::MADV_HUGEPAGE) };
    }
}

impl Buffer for CpuBuf {
    fn len(&self) -> usize {
        self.len
    }
}

impl<'a> Span<'a, CpuBuf> {
    pub(super) fn read(self) -> &'a [f32] {
        &self.buf.as_slice()[self.offset..self.offset + self.len]
    }
}

impl<'a> SpanMut<'a, CpuBuf> {
    pub(super) fn write(self) -> &'a mut [f32] {
        &mut self.buf.as_mut_slice()[self.offset..self.offset + self.len]
    }
}
