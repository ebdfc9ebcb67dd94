//! Which instructions the fused kernels use.
//!
//! Purpose: one body per kernel (`kernel!` in lanes.rs), compiled for AVX-512, for AVX2 with FMA and for the baseline,
//! chosen once per call at run time; a binary built once runs on all of them. Price: one relaxed atomic load per kernel
//! call, and code three times. Never per element.

use std::sync::OnceLock;

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

#[cfg(test)]
thread_local! {
    /// The set of this thread, where a test has chosen one.
    pub(crate) static CHOSEN: std::cell::Cell<Option<Isa>> = const { std::cell::Cell::new(None) };
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

    /// The sets that this machine can run.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let all = [Isa::Portable, Isa::Avx2, Isa::Avx512];
        let best = all.iter().position(|isa| *isa == detect()).expect("one of them");
        all[..=best].to_vec()
    }
}

/// True if bf16 products have an instruction here (AVX-512 BF16) and `HAPO_CPU` does not lower the set.
pub fn multiplies_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_bf16 = is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    let has_bf16 = false;
    Isa::current() == Isa::Avx512 && has_bf16
}

fn detect() -> Isa {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("fma")
    {
        return Isa::Avx512;
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return Isa::Avx2;
    }
    Isa::Portable
}
