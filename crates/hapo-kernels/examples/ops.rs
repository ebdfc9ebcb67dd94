//! GFLOP/s of every product of a layer, forward and backward.
//!
//!     cargo run --release -p hapo-kernels --example ops -- [tiny|0.5b] [threads] [rows]

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::OnceLock;
use std::time::Instant;

use hapo_kernels::{Accumulate, Buffer, Cpu, CpuBuf, Device, MatShape};

static ONE_THREAD: OnceLock<bool> = OnceLock::new();

/// Seconds: of this thread's CPU time when one thread does all the work, so that other work on
/// the machine does not count, of the clock otherwise.
fn now() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    if ONE_THREAD.get() == Some(&true)
        && let Ok(line) = std::fs::read_to_string("/proc/thread-self/schedstat")
        && let Some(Ok(nanoseconds)) = line.split_whitespace().next().map(str::parse::<f64>)
    {
        return nanoseconds / 1e9;
    }
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let tiny = args.first().is_none_or(|a| a == "tiny");
    let number =
        |i: usize, default: usize| args.get(i).map_or(default, |a| a.parse().expect("a number"));
    let cpu = Cpu::new(number(1, 1)).expect("threads start");
    ONE_THREAD.get_or_init(|| cpu.threads() == 1);
    let rows = number(2, if tiny { 6144 } else { 128 });
    let shapes: &[(usize, usize)] = if tiny {
        &[(192, 192), (192, 64), (192, 512), (512, 192)]
    } else {
        &[(896, 896), (896, 128), (896, 4864), (4864, 896), (896, 151_936)]
    };
    for &(inputs, outputs) in shapes {
        let shape = MatShape { rows, inputs, outputs };
        let buf = |n: usize| {
            let mut b = cpu.alloc(n).expect("room");
            cpu.fill(b.first_mut(n), 0.5);
            b
        };
        let (nx, nw, ny) = (rows * inputs, inputs * outputs, rows * outputs);
        let (mut x, mut w, mut y) = (buf(nx), buf(nw), buf(ny));
        let rate = |work: &mut dyn FnMut()| {
            let best = (0..40)
                .map(|_| {
                    let start = now();
                    work();
                    now() - start
                })
                .fold(f64::INFINITY, f64::min);
            2.0 * (rows * inputs * outputs) as f64 / best / 1e9
        };
        let none = || Accumulate::<CpuBuf>::Nothing;
        let forward = rate(&mut || {
            cpu.matmul(shape, x.first(nx), w.first(nw), none(), y.first_mut(ny));
        });
        let input = rate(&mut || {
            cpu.matmul_input_grad(shape, y.first(ny), w.first(nw), none(), x.first_mut(nx));
        });
        let weight = rate(&mut || {
            cpu.matmul_weight_grad(shape, x.first(nx), y.first(ny), none(), w.first_mut(nw));
        });
        println!(
            "{rows} x {inputs} x {outputs}: forward {forward:.0}, input grad {input:.0}, weight grad {weight:.0} GFLOP/s"
        );
    }
}
