//! The most that the processor can multiply: fused multiply-adds that touch nothing but registers.

use super::pool::Cpu;
use crate::isa::Isa;
use crate::lanes::{WIDTH, kernel};

/// Independent chains: enough to cover the latency of two multiply-adds a cycle, few enough for the registers, of which
/// a vector of [`WIDTH`] takes one in 32 with AVX-512 and two in 16 with AVX2.
const CHAINS: usize = 12;
const FEW_CHAINS: usize = CHAINS / 2;

impl Cpu {
    /// Does `rounds` rounds of multiply-adds in registers on every thread and returns how many operations these are,
    /// a multiply-add counting as two. Whoever takes the time has the processor's peak.
    pub fn multiply_adds(&self, rounds: usize) -> f64 {
        self.for_tasks(self.threads(), |_| {
            let mut sums = [[1.0; WIDTH]; CHAINS];
            if Isa::current() == Isa::Avx512 {
                chains(&mut sums, rounds);
            } else {
                // As many multiply-adds: half the chains, twice as often.
                let (few, _) = sums.split_first_chunk_mut::<FEW_CHAINS>().expect("half of them");
                chains(few, 2 * rounds);
            }
            std::hint::black_box(sums);
        });
        (2 * CHAINS * WIDTH * rounds * self.threads()) as f64
    }
}

kernel! {
    fn chains<V, const N: usize>(sums: &mut [[f32; WIDTH]; N], rounds: usize) {
        let (factor, term) = (V::splat(std::hint::black_box(0.5)), V::splat(0.5));
        let mut lanes = [V::splat(0.0); N];
        for (lane, sum) in lanes.iter_mut().zip(&*sums) {
            *lane = V::load(sum);
        }
        for _ in 0..rounds {
            for lane in &mut lanes {
                *lane = term.add_product(*lane, factor);
            }
        }
        for (lane, sum) in lanes.into_iter().zip(sums) {
            lane.store(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_is_a_multiply_add() {
        let mut sums = [[3.0; WIDTH]; CHAINS];
        chains(&mut sums, 2);
        // x ← x / 2 + 1 / 2, twice.
        assert_eq!(sums, [[1.5; WIDTH]; CHAINS]);
        let cpu = Cpu::new(2).unwrap();
        assert_eq!(cpu.multiply_adds(10), 2.0 * 12.0 * 16.0 * 10.0 * 2.0);
    }
}
