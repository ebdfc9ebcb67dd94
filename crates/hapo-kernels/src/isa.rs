//! Which instructions the fused kernels use.
//!
//! Purpose: one body per kernel, compiled for AVX-512, for AVX2 with FMA and for the baseline, chosen
//! once per call at run time; a binary built once runs on all of them.
//!
//! Price: one relaxed atomic load per kernel call, and code three times. Never per element.

use std::sync::OnceLock;

use crate::lanes::Lanes;

/// Instruction set of the fused kernels. Results do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// AVX-512 (F, VL, DQ, BW) with FMA.
    Avx512,
    /// AVX2 with FMA.
    Avx2,
    /// The compiler's baseline for the target.
    Portable,
}

impl Isa {
    /// The best set of this machine, or the lower one named by `HAPO_CPU` (`avx2`, `portable`); read once.
    pub fn current() -> Self {
        static ISA: OnceLock<Isa> = OnceLock::new();
        #[cfg(test)]
        if let Some(chosen) = CHOSEN.get() {
            return chosen;
        }
        *ISA.get_or_init(|| {
            let best = detect();
            match (std::env::var("HAPO_CPU").as_deref(), best) {
                (Ok("portable"), _) => Isa::Portable,
                (Ok("avx2"), Isa::Avx512) => Isa::Avx2,
                _ => best,
            }
        })
    }
}

#[cfg(test)]
thread_local! {
    /// The set of this thread, where a test has chosen one.
    pub(crate) static CHOSEN: std::cell::Cell<Option<Isa>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
impl Isa {
    /// The sets that this machine can run.
    pub(crate) fn all() -> Vec<Self> {
        let all = [Isa::Portable, Isa::Avx2, Isa::Avx512];
        let best = all.iter().position(|isa| *isa == detect()).expect("one of them");
        all[..=best].to_vec()
    }
}

/// True if bf16 products have an instruction here (AVX-512 BF16) and `HAPO_CPU` does not lower the set.
pub fn multiplies_bf16() -> bool {
    Isa::current() == Isa::Avx512 && has_bf16()
}

#[cfg(target_arch = "x86_64")]
fn has_bf16() -> bool {
    is_x86_feature_detected!("avx512bf16")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_bf16() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("fma")
    {
        Isa::Avx512
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        Isa::Avx2
    } else {
        Isa::Portable
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Isa {
    Isa::Portable
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
