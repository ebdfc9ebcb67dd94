//! This machine: its name, its memory, and what it reaches.

use std::{ffi::OsString, time::Instant};

use anyhow::Result;
use hapo_kernels::{
    Accumulate, Buffer, Compute, Cpu, CpuWeight, Device, Held, Isa, MatShape, Matrix, NumberFormat,
    Numbers, Output, multiplies_bf16,
};
use hapo_model::Config;
use hapo_train::plan::DeviceSpec;

/// The user's Python: `HAPO_PYTHON`, else `python3`.
pub(crate) fn python() -> OsString {
    std::env::var_os("HAPO_PYTHON").unwrap_or_else(|| "python3".into())
}

#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Operations per second of a matrix product.
    pub flops: f64,
    /// Bytes per second of reading memory.
    pub bandwidth: f64,
}

/// Measures the CPU, in under two seconds: the best of several products of `shape`, and of several readings of 512 MB.
pub fn rates(cpu: &Cpu, shape: MatShape) -> Result<Rates> {
    Ok(Rates { flops: product_rate(cpu, shape)?, bandwidth: bandwidth(cpu)? })
}

/// What products of f32 and of bf16 factors reach, in operations per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductRates {
    f32: f64,
    bf16: f64,
}

impl ProductRates {
    /// How many times as fast bf16 has to be, that its rounding is worth it.
    const GAIN: f64 = 1.15;

    /// Measures both in less than half a second; `None` where the CPU has no products of bf16 numbers.
    pub(crate) fn measure(threads: usize) -> Result<Option<Self>> {
        const SHAPE: MatShape = MatShape { rows: 96, inputs: 768, outputs: 2048 };
        const TURNS: usize = 4;
        if !multiplies_bf16() {
            return Ok(None);
        }
        let cpu = |compute| Cpu::computing(threads, compute);
        let (plain, rounding) = (cpu(Compute::F32)?, cpu(Compute::Bf16)?);
        let mut best = Self { f32: 0.0, bf16: 0.0 };
        // In turns, so that what else the machine does slows both.
        for _ in 0..TURNS {
            best.f32 = best.f32.max(product_rate(&plain, SHAPE)?);
            best.bf16 = best.bf16.max(product_rate(&rounding, SHAPE)?);
        }
        Ok(Some(best))
    }

    /// bf16 where it gains enough, else f32.
    pub(crate) fn faster(self) -> Compute {
        if self.bf16 >= Self::GAIN * self.f32 { Compute::Bf16 } else { Compute::F32 }
    }
}

impl std::fmt::Display for ProductRates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [f32, bf16] = [self.f32, self.bf16].map(|it| it / 1e9);
        write!(f, "products make {bf16:.0} GFLOP/s in bf16, {f32:.0} in f32")
    }
}

/// Operations per second of a product, of factors as the CPU rounds them: the best of several.
pub fn product_rate(cpu: &Cpu, shape: MatShape) -> Result<f64> {
    let (m, k, n) = (shape.rows, shape.inputs, shape.outputs);
    let x = cpu.alloc(m * k, NumberFormat::F32)?;
    let mut y = cpu.alloc(m * n, NumberFormat::F32)?;
    let weight = &CpuWeight::zeros(cpu, [k, n], Held::Trained)?;
    let best = best_of(20, || {
        cpu.enter(|| {
            let y = y.first_mut(m * n);
            let output = Output { shape, weight, pair: None, onto: Accumulate::Nothing, y };
            cpu.product(x.first(m * k), None, vec![output]);
        });
    });
    Ok(2.0 * (m * n * k) as f64 / best)
}

/// Operations per second of fused multiply-adds in registers: no product in f32 can be faster.
pub fn peak_rate(cpu: &Cpu) -> f64 {
    let mut operations = 0.0;
    let best = best_of(4, || operations = cpu.multiply_adds(10_000_000));
    operations / best
}

fn bandwidth(cpu: &Cpu) -> Result<f64> {
    let mut x = cpu.alloc(128 << 20, NumberFormat::F32)?;
    let len = x.len();
    cpu.fill(x.first_mut(len), 1.0);
    let sum = || cpu.enter(|| cpu.squared_norms(&[Numbers::Span(x.first(len))]));
    let best = best_of(4, || drop(std::hint::black_box(sum())));
    Ok((len * size_of::<f32>()) as f64 / best)
}

fn best_of(times: usize, mut work: impl FnMut()) -> f64 {
    let seconds = |_| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64()
    };
    (0..times).map(seconds).fold(f64::INFINITY, f64::min)
}

/// This machine for a plan, with the rates that it reaches: of a product of the model's width, and of reading memory.
pub(crate) fn device_spec(threads: usize, compute: Compute, config: &Config) -> Result<DeviceSpec> {
    let product = MatShape { rows: 1024, inputs: config.hidden, outputs: config.ffn };
    let rates = rates(&Cpu::new(threads)?, product)?;
    let memory = memory_bytes().unwrap_or(u64::MAX);
    let name = format!("{}, {threads} threads", cpu_name());
    let spec = DeviceSpec::cpu(&name, memory, rates.flops, rates.bandwidth);
    if compute == Compute::F32 {
        return Ok(spec);
    }
    let flops = product_rate(&Cpu::computing(threads, compute)?, product)?;
    Ok(spec.computing(compute, flops))
}

/// The widest instructions that the kernels use on it.
pub fn instructions() -> String {
    format!("{:?}", Isa::current()).to_lowercase()
}

/// The CPU's name, where the system says.
pub fn cpu_name() -> String {
    // On EIO it is named by its architecture.
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|it| it.starts_with("model name"));
    let name = line.and_then(|it| it.split_once(':')).map(|it| it.1.trim());
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), ToOwned::to_owned)
}

/// Bytes of memory, where the system says.
pub(crate) fn memory_bytes() -> Option<u64> {
    // On EIO a plan has no memory to fit into.
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|it| it.starts_with("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
