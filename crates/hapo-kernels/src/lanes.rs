//! Sixteen `f32` at once, for the kernels whose accumulators must stay in registers.
//!
//! Purpose: the compiler vectorises plain loops well, but not small arrays of accumulators; those
//! kernels name their vectors.
//!
//! Price: one implementation per instruction set.

#[cfg(not(target_arch = "aarch64"))]
use crate::isa::fma;

/// Width of every vector.
pub(crate) const WIDTH: usize = 16;

/// Sixteen `f32`.
///
/// # Safety
/// Values are only made inside [`kernel`](crate::isa::kernel) functions, which run where the instructions of the
/// implementation were detected.
pub(crate) unsafe trait Lanes: Copy {
    /// Registers of the instruction set that one takes, of 32 in all for AVX-512 and NEON and of 16 elsewhere.
    const REGISTERS: usize;
    /// Whether a multiply-add is an instruction.
    const FMA: bool;

    fn splat(value: f32) -> Self;
    fn load(from: &[f32; WIDTH]) -> Self;
    fn store(self, to: &mut [f32; WIDTH]);
    /// `self + a · b`, rounded once.
    fn add_product(self, a: Self, b: Self) -> Self;
    fn add(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;

    /// Asks for the line of an address, which may be anything.
    #[inline(always)]
    fn prefetch(_: *const f32) {}

    /// Two vectors of bf16 numbers, one in the low and one in the high halves of the words.
    fn load_halves(from: &[u32; WIDTH]) -> [Self; 2];

    /// The first elements of a slice, zeros beyond its end.
    #[inline(always)]
    fn load_part(from: &[f32]) -> Self {
        if let Some(full) = from.first_chunk() {
            Self::load(full)
        } else {
            let mut padded = [0.0; WIDTH];
            padded[..from.len()].copy_from_slice(from);
            Self::load(&padded)
        }
    }

    /// As many elements as the slice holds.
    #[inline(always)]
    fn store_part(self, to: &mut [f32]) {
        if let Some(full) = to.first_chunk_mut() {
            self.store(full);
        } else {
            let mut padded = [0.0; WIDTH];
            self.store(&mut padded);
            to.copy_from_slice(&padded[..to.len()]);
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) use arm::Neon as Plain;

/// The compiler's baseline.
#[cfg(not(target_arch = "aarch64"))]
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; WIDTH]);

// SAFETY: needs no instruction beyond the baseline.
#[cfg(not(target_arch = "aarch64"))]
unsafe impl Lanes for Plain {
    const REGISTERS: usize = 4;
    const FMA: bool = false;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; WIDTH])
    }

    #[inline(always)]
    fn load(from: &[f32; WIDTH]) -> Self {
        Self(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; WIDTH]) {
        *to = self.0;
    }

    #[inline(always)]
    fn load_halves(from: &[u32; WIDTH]) -> [Self; 2] {
        [
            Self(from.map(|it| f32::from_bits(it << 16))),
            Self(from.map(|it| f32::from_bits(it & 0xffff_0000))),
        ]
    }

    #[inline(always)]
    fn add_product(mut self, a: Self, b: Self) -> Self {
        for i in 0..WIDTH {
            self.0[i] = fma::<Self>(a.0[i], b.0[i], self.0[i]);
        }
        self
    }

    #[inline(always)]
    fn add(mut self, other: Self) -> Self {
        for i in 0..WIDTH {
            self.0[i] += other.0[i];
        }
        self
    }

    #[inline(always)]
    fn times(mut self, other: Self) -> Self {
        for i in 0..WIDTH {
            self.0[i] *= other.0[i];
        }
        self
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m512, _MM_HINT_T0, _mm_prefetch, _mm256_add_ps, _mm256_and_si256,
        _mm256_castsi256_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps,
        _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm512_add_ps,
        _mm512_and_si512, _mm512_castsi512_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
        _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32,
        _mm512_storeu_ps,
    };

    use super::{Lanes, WIDTH};

    /// The high half of a word.
    const HIGH: i32 = !0xffff;

    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    // SAFETY: every intrinsic needs AVX-512F, promised by the trait; loads and stores cover exactly
    // the sixteen elements of the arrays.
    unsafe impl Lanes for Avx512 {
        const REGISTERS: usize = 1;
        const FMA: bool = true;

        #[inline(always)]
        fn splat(value: f32) -> Self {
            Self(unsafe { _mm512_set1_ps(value) })
        }

        #[inline(always)]
        fn load(from: &[f32; WIDTH]) -> Self {
            Self(unsafe { _mm512_loadu_ps(from.as_ptr()) })
        }

        #[inline(always)]
        fn store(self, to: &mut [f32; WIDTH]) {
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn prefetch(from: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }

        #[inline(always)]
        fn load_halves(from: &[u32; WIDTH]) -> [Self; 2] {
            unsafe {
                let words = _mm512_loadu_si512(from.as_ptr().cast());
                let high = _mm512_and_si512(words, _mm512_set1_epi32(HIGH));
                [_mm512_slli_epi32::<16>(words), high].map(|it| Self(_mm512_castsi512_ps(it)))
            }
        }

        #[inline(always)]
        fn add_product(self, a: Self, b: Self) -> Self {
            Self(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Self(unsafe { _mm512_add_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn times(self, other: Self) -> Self {
            Self(unsafe { _mm512_mul_ps(self.0, other.0) })
        }
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256, __m256);

    // SAFETY: every intrinsic needs AVX2 and FMA, promised by the trait; loads and stores cover
    // exactly the two halves of the arrays.
    unsafe impl Lanes for Avx2 {
        const REGISTERS: usize = 2;
        const FMA: bool = true;

        #[inline(always)]
        fn splat(value: f32) -> Self {
            let v = unsafe { _mm256_set1_ps(value) };
            Self(v, v)
        }

        #[inline(always)]
        fn load(from: &[f32; WIDTH]) -> Self {
            unsafe { Self(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))) }
        }

        #[inline(always)]
        fn store(self, to: &mut [f32; WIDTH]) {
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), self.0);
                _mm256_storeu_ps(to.as_mut_ptr().add(8), self.1);
            }
        }

        #[inline(always)]
        fn prefetch(from: *const f32) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }

        #[inline(always)]
        fn load_halves(from: &[u32; WIDTH]) -> [Self; 2] {
            unsafe {
                let words = [0, 8].map(|at| _mm256_loadu_si256(from.as_ptr().add(at).cast()));
                let low = words.map(|it| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(it)));
                let high = words
                    .map(|it| _mm256_castsi256_ps(_mm256_and_si256(it, _mm256_set1_epi32(HIGH))));
                [Self(low[0], low[1]), Self(high[0], high[1])]
            }
        }

        #[inline(always)]
        fn add_product(self, a: Self, b: Self) -> Self {
            unsafe { Self(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            unsafe { Self(_mm256_add_ps(self.0, other.0), _mm256_add_ps(self.1, other.1)) }
        }

        #[inline(always)]
        fn times(self, other: Self) -> Self {
            unsafe { Self(_mm256_mul_ps(self.0, other.0), _mm256_mul_ps(self.1, other.1)) }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::{
        float32x4_t, vaddq_f32, vandq_u32, vdupq_n_f32, vdupq_n_u32, vfmaq_f32, vld1q_f32,
        vld1q_u32, vmulq_f32, vreinterpretq_f32_u32, vshlq_n_u32, vst1q_f32,
    };

    use super::{Lanes, WIDTH};

    #[derive(Clone, Copy)]
    pub(crate) struct Neon([float32x4_t; 4]);

    /// One of each four.
    #[inline(always)]
    fn quarters(of: impl Fn(usize) -> float32x4_t) -> Neon {
        Neon([of(0), of(1), of(2), of(3)])
    }

    // SAFETY: every intrinsic needs NEON, which every such target has; loads and stores cover exactly the four quarters
    // of the arrays.
    unsafe impl Lanes for Neon {
        const REGISTERS: usize = 4;
        const FMA: bool = true;

        #[inline(always)]
        fn splat(value: f32) -> Self {
            quarters(|_| unsafe { vdupq_n_f32(value) })
        }

        #[inline(always)]
        fn load(from: &[f32; WIDTH]) -> Self {
            quarters(|i| unsafe { vld1q_f32(from.as_ptr().add(4 * i)) })
        }

        #[inline(always)]
        fn store(self, to: &mut [f32; WIDTH]) {
            for (i, it) in self.0.into_iter().enumerate() {
                unsafe { vst1q_f32(to.as_mut_ptr().add(4 * i), it) }
            }
        }

        #[inline(always)]
        fn load_halves(from: &[u32; WIDTH]) -> [Self; 2] {
            let words = |i: usize| unsafe { vld1q_u32(from.as_ptr().add(4 * i)) };
            let number = |bits| unsafe { vreinterpretq_f32_u32(bits) };
            [
                quarters(|i| number(unsafe { vshlq_n_u32::<16>(words(i)) })),
                quarters(|i| number(unsafe { vandq_u32(words(i), vdupq_n_u32(!0xffff)) })),
            ]
        }

        #[inline(always)]
        fn add_product(self, a: Self, b: Self) -> Self {
            quarters(|i| unsafe { vfmaq_f32(self.0[i], a.0[i], b.0[i]) })
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            quarters(|i| unsafe { vaddq_f32(self.0[i], other.0[i]) })
        }

        #[inline(always)]
        fn times(self, other: Self) -> Self {
            quarters(|i| unsafe { vmulq_f32(self.0[i], other.0[i]) })
        }
    }
}
