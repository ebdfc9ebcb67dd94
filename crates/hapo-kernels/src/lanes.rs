//! The kernels of every instruction set, and sixteen `f32` at once for those whose accumulators must stay in registers.
//!
//! Purpose: the compiler vectorises plain loops, not small arrays of accumulators; those kernels name their vectors.
//! Price: one implementation per instruction set.

/// Width of every vector.
pub(crate) const WIDTH: usize = 16;

/// A level of caches.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    First,
    Second,
}

/// Sixteen `f32`.
///
/// # Safety
/// Values are only made inside [`kernel`] functions, which run where the implementation's instructions were detected.
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
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
    fn prefetch(from: *const f32, level: Level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every processor of the kind has the instruction.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
            match level {
                Level::First => _mm_prefetch::<_MM_HINT_T0>(from.cast()),
                Level::Second => _mm_prefetch::<_MM_HINT_T1>(from.cast()),
            }
        }
    }

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
        __m256, __m512, _mm256_add_ps, _mm256_and_si256, _mm256_castsi256_ps, _mm256_fmadd_ps,
        _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps,
        _mm256_slli_epi32, _mm256_storeu_ps, _mm512_add_ps, _mm512_and_si512, _mm512_castsi512_ps,
        _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32,
        _mm512_set1_ps, _mm512_slli_epi32, _mm512_storeu_ps,
    };

    use super::{Lanes, WIDTH};

    /// The high half of a word.
    const HIGH: i32 = !0xffff;

    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    // SAFETY: every intrinsic needs AVX-512F, promised by the trait; loads and stores cover exactly the arrays.
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

    // SAFETY: every intrinsic needs AVX2 and FMA, promised by the trait; loads and stores cover exactly the arrays.
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

    // SAFETY: every intrinsic needs NEON, which all such targets have; loads and stores cover exactly the arrays.
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

/// `a · b + c`, rounded once: by the instruction if there is one, otherwise by [`exact_fma`].
#[inline(always)]
pub(crate) fn fma<V: Lanes>(a: f32, b: f32, c: f32) -> f32 {
    if V::FMA { a.mul_add(b, c) } else { exact_fma(a, b, c) }
}

/// A fused multiply-add without the instruction.
///
/// The product is exact in f64. The sum is rounded to odd there: its last bit says that something was dropped, so the
/// second rounding, to f32, errs on neither side. (Boldo and Melquiond, Emulation of FMA and correctly rounded sums.)
#[inline(always)]
fn exact_fma(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let part = sum - product;
    let dropped = (product - (sum - part)) + (c - part);
    let bits = sum.to_bits();
    // Infinite sums and NaN have no number as what was dropped.
    let step = u64::from(dropped.abs() > 0.0) & !bits;
    let towards_zero = (dropped.to_bits() ^ bits) >> 63;
    f64::from_bits(bits.wrapping_add(step).wrapping_sub(2 * (step & towards_zero))) as f32
}

/// Defines a kernel once and compiles it for every [`Isa`]. The body sees its [`Lanes`] as a type.
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<V $(, const $cg:ident : $cgt:ty)*>($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name<$(const $cg: $cgt),*>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<V: $crate::lanes::Lanes $(, const $cg: $cgt)*>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn avx512<$(const $cg: $cgt),*>($($arg: $ty),*) $(-> $ret)? {
                body::<$crate::lanes::Avx512 $(, $cg)*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$(const $cg: $cgt),*>($($arg: $ty),*) $(-> $ret)? {
                body::<$crate::lanes::Avx2 $(, $cg)*>($($arg),*)
            }

            match $crate::isa::Isa::current() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Isa::current` says Avx512 only where these features were detected.
                $crate::isa::Isa::Avx512 => unsafe { avx512::<$($cg),*>($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above, for Avx2.
                $crate::isa::Isa::Avx2 => unsafe { avx2::<$($cg),*>($($arg),*) },
                _ => body::<$crate::lanes::Plain $(, $cg)*>($($arg),*),
            }
        }
    };
}
pub(crate) use kernel;

#[cfg(test)]
mod tests {
    use super::exact_fma;

    #[track_caller]
    fn check(a: f32, b: f32, c: f32) {
        let (got, expected) = (exact_fma(a, b, c), a.mul_add(b, c));
        let same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
        assert!(same, "{a:e} · {b:e} + {c:e}: {got:e}, not {expected:e}");
    }

    #[test]
    fn the_emulated_multiply_add_rounds_once() {
        // 1 + 2⁻²⁴ + 2⁻⁵⁴ rounds to 1 + 2⁻²³; a sum in f64 drops the last term and then rounds to even.
        let tiny = f32::from_bits(0x3f80_0000 - (30 << 23));
        check(tiny, f32::from_bits(0x3f80_0000 - (24 << 23)), 1.0 + f32::EPSILON / 2.0);
        let special = [
            0.0,
            1.0,
            1.0 + f32::EPSILON,
            1.0 - f32::EPSILON / 2.0,
            f32::EPSILON / 2.0,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            f32::from_bits(0x007f_ffff),
            f32::MAX,
            16_777_215.0,
            f32::INFINITY,
            f32::NAN,
            1e-20,
            3.0,
        ];
        let signed = || special.into_iter().flat_map(|x: f32| [x, -x]);
        for (a, b) in signed().flat_map(|a| signed().map(move |b| (a, b))) {
            signed().for_each(|c| check(a, b, c));
        }
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u32
        };
        for _ in 0..10_000_000 {
            let (a, b) = (f32::from_bits(next()), f32::from_bits(next()));
            // An addend near the product, and any other.
            let near = ((next() % 54) as i32 - 27) << 23;
            let product = (a * b).to_bits().wrapping_add_signed(near) ^ (next() >> 9 & 0x8000_00ff);
            check(a, b, f32::from_bits(product));
            check(a, b, f32::from_bits(next()));
        }
    }
}
