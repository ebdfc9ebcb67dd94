//! Does a row of a product depend on the rows beside it?
//!
//! `cargo run --release -p hapo-cuda --example invariance` multiplies by the matrices of the 135M, 0.5B, 3B and 7B shapes,
//! by adapters and by a head of 32,001 tokens, in bf16 on GPU 0, with every number of rows from 1 to 512 and 40 larger
//! ones, and compares the bits of the first and the last row with those rows among the most. A line of JSON for each
//! matrix has the numbers of rows at which one differs: for sums in one piece, as the sampler and the trainer ask for
//! them, with how many products had another algorithm than that of all numbers of rows; and, at nine numbers of rows, for
//! sums that cuBLASLt may split. `-- tiny` does the same on small matrices.

use hapo_cuda::{Driver, Launcher, Matrix, Memory, Operation, Product};
use hapo_kernels::{Compute, DeviceError};

/// A matrix, and what follows its product.
#[derive(Clone, Copy)]
struct Case {
    inputs: usize,
    outputs: usize,
    /// Added to the residual stream.
    add: bool,
    out_is_bf16: bool,
}

const fn case(inputs: usize, outputs: usize) -> Case {
    Case { inputs, outputs, add: false, out_is_bf16: false }
}

const fn residual(inputs: usize, outputs: usize) -> Case {
    Case { add: true, ..case(inputs, outputs) }
}

const fn gated(inputs: usize, outputs: usize) -> Case {
    Case { out_is_bf16: true, ..case(inputs, outputs) }
}

/// Queries with keys and values, attention's output, the gate with what it gates, the way down and the head of 0.5B, then
/// of 3B; the first and the way down, and the A's of adapters of rank 32, of 7B; 135M; queries, keys and values and the
/// way down of 3B behind adapters; a vocabulary with one token more.
const CASES: [Case; 21] = [
    case(896, 896 + 2 * 128),
    residual(896, 896),
    gated(896, 2 * 4864),
    residual(4864, 896),
    case(896, 151_936),
    case(2048, 2048 + 2 * 256),
    residual(2048, 2048),
    gated(2048, 2 * 11_008),
    residual(11_008, 2048),
    case(2048, 151_936),
    case(3584, 3584 + 2 * 512),
    residual(18_944, 3584),
    gated(3584, 3 * 32),
    gated(18_944, 32),
    case(576, 576 + 2 * 192),
    gated(576, 2 * 1536),
    residual(1536, 576),
    case(576, 49_152),
    case(2048 + 3 * 32, 2048 + 2 * 256),
    residual(11_008 + 32, 2048),
    case(4096, 32_001),
];
/// Numbers of rows for sums that may be split, and the most.
const ROWS: [usize; 9] = [1, 2, 7, 8, 64, 255, 256, 1766, 8192];

const TINY: [Case; 4] = [case(96, 64), residual(200, 48), gated(64, 96), case(64, 33)];
const TINY_ROWS: [usize; 5] = [1, 2, 8, 65, 130];

/// Every number of rows up to 512, and 40 larger ones up to the most, unevenly far apart.
fn all_counts(most: usize) -> Vec<usize> {
    let larger = (1..40).map(|i| 512 + i * i * 5 + i % 7).filter(|count| *count < most);
    (1..most.min(513)).chain(larger).chain([most]).collect()
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn main() -> Result<(), DeviceError> {
    let is_tiny = std::env::args().nth(1).is_some_and(|it| it == "tiny");
    let (cases, counts) =
        if is_tiny { (&TINY[..], &TINY_ROWS[..]) } else { (&CASES[..], &ROWS[..]) };
    let driver = Driver::open(0)?;
    for of in cases {
        let all = all_counts(counts[counts.len() - 1]);
        for (whole, counts) in [(true, &all[..]), (false, counts)] {
            let before = driver.refused();
            let unequal = unequal(&driver, *of, counts, whole)?;
            let refused = driver.refused().products - before.products;
            let (Case { inputs, outputs, .. }, counts) = (of, counts.len() - 1);
            println!(
                "{{\"inputs\": {inputs}, \"outputs\": {outputs}, \"whole\": {whole}, \"counts\": {counts}, \"refused\": {refused}, \"unequal\": {unequal:?}}}",
            );
        }
    }
    Ok(())
}

/// Numbers of rows at which the first or the last row has other bits than among the most.
fn unequal(
    driver: &Driver,
    of: Case,
    counts: &[usize],
    whole: bool,
) -> Result<Vec<usize>, DeviceError> {
    // Logits of 8,192 rows would be 5 GB.
    let most = counts[counts.len() - 1].min((1 << 30) / (4 * of.outputs));
    let (x, w) = (halves(most * of.inputs, 1), halves(of.inputs * of.outputs, 2));
    let [x, w] = [driver.alloc_of(&x)?, driver.alloc_of(&w)?];
    let width = of.outputs * if of.out_is_bf16 { 2 } else { 4 };
    let plain = |address, stride| Matrix { address, stride, transposed: false };
    let room = || driver.alloc(most * width);
    let [among, alone] = [room()?, room()?];
    let multiply = |n: usize, out: u64| {
        driver.begin(Operation::Zero { at: out, bytes: n * width }, &[])?;
        let product = Product {
            m: of.outputs,
            n,
            k: of.inputs,
            number: Compute::Bf16,
            left: Matrix { transposed: true, ..plain(w.address(), of.inputs) },
            right: plain(x.address(), of.inputs),
            factor: 1.0,
            add: of.add,
            whole,
            out: plain(out, of.outputs),
            out_is_bf16: of.out_is_bf16,
            bias: None,
        };
        driver.begin(Operation::Product(product), &[])
    };
    let rows = |out: u64, chosen: [usize; 2]| {
        let mut found = [vec![0; width], vec![0; width]];
        for (to, row) in found.iter_mut().zip(chosen) {
            driver.download(out + (row * width) as u64, to)?;
        }
        Ok::<_, DeviceError>(found)
    };
    multiply(most, among.address())?;
    let mut found = Vec::new();
    for &n in counts[..counts.len() - 1].iter().filter(|n| **n < most) {
        multiply(n, alone.address())?;
        let chosen = [0, n - 1];
        if rows(alone.address(), chosen)? != rows(among.address(), chosen)? {
            found.push(n);
        }
    }
    Ok(found)
}

/// Numbers in (−1, 1) in bf16.
fn halves(n: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut half = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = (state >> 8) as f32 / 8_388_608.0 - 1.0;
        ((number.to_bits() >> 16) as u16).to_ne_bytes()
    };
    (0..n).flat_map(|_| half()).collect()
}
