//! Which instructions the fused kernels use.
//!
//! Purpose: one body per kernel, compiled for AVX-512, for AVX2 with FMA and for the baseline, chosen
//! once per call at run time; a binary built once runs on all of them.
//!
//! Price: one relaxed atomic load per kernel call, and code three times. Never per element.

use std::sync::OnceLock;

/// Instruction set of the fused kernels.
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
        *ISA.get_or_init(|| {
            let best = detect();
            match (std::env::var("HAPO_CPU").as_deref(), best) {
                (Ok("portable"), _) => Isa::Portable,
                (Ok("avx2"), Isa::Avx512) => Isa::Avx2,
                _ => best,
            }
        })
    }

    /// True if a product and a sum round once.
    pub fn fused(self) -> bool {
        self != Isa::Portable || cfg!(target_arch = "aarch64")
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

/// `a · b + c`: one rounding when `FMA`, two otherwise. (Without the instruction, `mul_add` is a
/// library call.)
#[inline(always)]
pub(crate) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Defines a kernel once and compiles it for every [`Isa`]. The body sees `FMA` as a constant.
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<FMA $(, const $cg:ident : $cgt:ty)*>($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name<$(const $cg: $cgt),*>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<const FMA: bool $(, const $cg: $cgt)*>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn avx512<$(const $cg: $cgt),*>($($arg: $ty),*) $(-> $ret)? {
                body::<true $(, $cg)*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$(const $cg: $cgt),*>($($arg: $ty),*) $(-> $ret)? {
                body::<true $(, $cg)*>($($arg),*)
            }

            match $crate::isa::Isa::current() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Isa::current` says Avx512 only where these features were detected.
                $crate::isa::Isa::Avx512 => unsafe { avx512::<$($cg),*>($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above, for Avx2.
                $crate::isa::Isa::Avx2 => unsafe { avx2::<$($cg),*>($($arg),*) },
                _ => body::<{ cfg!(target_arch = "aarch64") } $(, $cg)*>($($arg),*),
            }
        }
    };
}
pub(crate) use kernel;
