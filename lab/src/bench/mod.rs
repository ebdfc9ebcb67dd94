//! `hapo-lab bench`: the speed of this machine, on random weights of a known shape.
//!
//! Every number stands next to two others of the same run: the rate of multiply-adds in registers and the rate of
//! reading memory. Absolute numbers of a busy machine say little; shares of those two do.

mod cases;
mod gpu;

use anyhow::Result;
use clap::ValueEnum;
use hapo_cli::failure::bad_input;
use hapo_cli::outln;
use hapo_cli::support::device::{DeviceArg, DeviceChoice};
use hapo_cli::support::{device, machine};
use hapo_kernels::{Compute, Cpu, Device, MatShape, NumberFormat};
use hapo_model::{ActivationCheckpointing, Config, Decoder, Model, Rope};
use serde::Serialize;

use self::cases::{Case, decoding, grading, grpo_step, sampling, training};

/// Measure tokens per second: training, sampling, decoding, a whole step, grading.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo-lab bench --shape bench-tiny --only training --json",
    after_help = "bench-tiny takes about 20 seconds, smollm2-135m a minute, qwen2.5-0.5b about four minutes and 12 GB (two cores of 2025)."
)]
pub(crate) struct Args {
    /// Shape of the model; its weights are random
    #[arg(long, value_enum, default_value_t = Shape::BenchTiny)]
    shape: Shape,
    /// Only these parts; may be given several times
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Batches of training, such as 4x256: sequences and tokens of each, in place of the shape's own
    #[arg(long, value_name = "NxTOKENS", value_parser = batch)]
    batch: Vec<(usize, usize)>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArg,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Shape {
    /// Hidden 192, 4 layers, 6 heads and 2 key/value heads of 32, ffn 512, vocabulary 512
    BenchTiny,
    /// Hidden 576, 30 layers, 9 heads and 3 key/value heads of 64, ffn 1536, vocabulary 49152
    #[value(name = "smollm2-135m")]
    Smollm135m,
    /// Hidden 896, 24 layers, 14 heads and 2 key/value heads of 64, ffn 4864, vocabulary 151936
    #[value(name = "qwen2.5-0.5b")]
    Qwen05b,
    /// Hidden 1536, 28 layers, 12 heads and 2 key/value heads of 128, ffn 8960, vocabulary 151936
    #[value(name = "qwen2.5-1.5b")]
    Qwen15b,
    /// Hidden 2048, 36 layers, 16 heads and 2 key/value heads of 128, ffn 11008, vocabulary 151936
    #[value(name = "qwen2.5-3b")]
    Qwen3b,
    /// Hidden 3584, 28 layers, 28 heads and 4 key/value heads of 128, ffn 18944, vocabulary 152064
    #[value(name = "qwen2.5-7b")]
    Qwen7b,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Forward, backward and optimiser on packed sequences
    Training,
    /// Prompts of 32 tokens and 64 new ones each, prefill included
    Sampling,
    /// New tokens alone, weights in f32 and in bf16
    Decoding,
    /// A whole GRPO step: 32 prompts, 8 completions of 64 tokens each, one update
    Step,
    /// The host's own work for a step of decoding on a GPU: tables, random numbers and events, without launches
    Scheduling,
    /// Answers graded per second
    Grading,
}

/// Sequences and tokens of `4x256`.
fn batch(text: &str) -> std::result::Result<(usize, usize), String> {
    let parts =
        text.split_once('x').and_then(|(n, tokens)| Some((n.parse().ok()?, tokens.parse().ok()?)));
    parts
        .filter(|it| it.0 > 0 && it.1 > 0)
        .ok_or_else(|| "expected two numbers, such as 4x256".to_owned())
}

/// The measurements.
#[derive(Serialize)]
struct Report {
    shape: String,
    parameters: usize,
    /// Where the model is computed.
    device: String,
    cpu: String,
    instructions: String,
    threads: usize,
    /// Limit of arithmetic in f32, in 10⁹ operations per second: multiply-adds in registers; on a GPU a large product.
    peak_gflops: f64,
    /// Rate of a large product in f32.
    product_gflops: f64,
    /// The same with factors rounded to `compute`, the limit of arithmetic with such factors.
    #[serde(skip_serializing_if = "Option::is_none")]
    rounded_product_gflops: Option<f64>,
    /// Rate of reading memory, in 10⁹ bytes per second.
    memory_gb_per_s: f64,
    results: Vec<Measured>,
}

#[derive(Serialize)]
struct Measured {
    part: &'static str,
    /// The rounding of products' factors.
    compute: Compute,
    case: String,
    /// Median of a repetition.
    seconds: f64,
    /// Fastest repetition.
    best_seconds: f64,
    /// Tokens (grading: pairs) per second at the median.
    per_second: f64,
    /// Of the machine's own limit, at the median: the longer of its arithmetic at the peak and of its weights, read
    /// once, at the memory rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    share_of_limit: Option<f64>,
    /// Share of the threads' time in which they had nothing to do, over all repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<f64>,
    /// Largest resident set while it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_bytes: Option<u64>,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    if let DeviceChoice::Cuda(ordinal) = args.device.device {
        let gpu = device::cuda(ordinal, args.device.compute.or_f32(), args.device.verbose)?;
        let driver = gpu.launcher().clone();
        let result = bench_gpu(args, gpu);
        device::print_trace(&driver, args.device.verbose);
        return result;
    }
    if matches!(args.shape, Shape::Qwen3b | Shape::Qwen7b) {
        let problem = format!("--shape {} is measured on a GPU", args.shape.name());
        return Err(bad_input(problem, "add --device cuda:0, or take a smaller shape"));
    }
    let compute = args.device.compute.or_f32();
    let wanted = |it: Part| args.only.is_empty() || args.only.contains(&it);
    let cpu = device::cpu(threads, Compute::F32)?;
    let rounding = match compute {
        Compute::F32 => None,
        _ => Some(device::cpu(threads, compute)?),
    };
    let name = args.shape.name();
    eprintln!(
        "bench: {name} on {threads} threads; about {}",
        match args.shape {
            Shape::BenchTiny => "20 s",
            Shape::Smollm135m => "1 min",
            _ => "4 min",
        }
    );
    let rates = machine::rates(&cpu, args.shape.product())?;
    let mut report = Report::new(args, cpu.threads(), rates.flops, rates.bandwidth);
    report.peak_gflops = machine::peak_rate(&cpu) / 1e9;
    if let Some(it) = &rounding {
        let rate = machine::product_rate(it, args.shape.product())?;
        report.rounded_product_gflops = Some(rate / 1e9);
    }
    let has_model = |it: &Part| !matches!(it, Part::Scheduling | Part::Grading);
    if args.only.is_empty() || args.only.iter().any(has_model) {
        report.measure_model(cpu, args, &wanted)?;
        if let Some(it) = rounding {
            report.measure_model(it, args, &wanted)?;
        }
    }
    if wanted(Part::Scheduling) {
        for rows in [64, 256] {
            report.add(("scheduling", Compute::Bf16), gpu::scheduling(args.shape.config(), rows)?);
        }
    }
    if wanted(Part::Grading) {
        report.add(("grading", Compute::F32), grading()?);
    }
    report.print(args.json)
}

/// The cases of a GPU. Times include the wait until the work is done.
fn bench_gpu<D: Device>(args: &Args, device: D) -> Result<()> {
    let tiny = args.shape == Shape::BenchTiny;
    let (config, lengths) = (args.shape.config(), if tiny { gpu::TINY } else { gpu::FULL });
    let compute = args.device.compute.or_f32();
    eprintln!("bench: {} on {}", args.shape.name(), args.device.device);
    let numbers = if tiny { 1 << 18 } else { 1 << 28 };
    let (flops, bandwidth) = gpu::rates(&device, gpu::product(&config, lengths), numbers)?;
    let mut model = Model::new(device, config, lengths.positions())?;
    gpu::randomise(&mut model)?;
    let mut report = Report::new(args, 1, flops, bandwidth);
    report.parameters = model.layout().parameters();
    let wanted = |it: Part| args.only.is_empty() || args.only.contains(&it);
    if wanted(Part::Decoding) {
        for &rows in lengths.decoded {
            for what in [gpu::Decoded::Shared, gpu::Decoded::Own, gpu::Decoded::Logits] {
                let case = gpu::decoding(&model, (rows, what), lengths)?;
                report.add(("decoding", compute), case);
            }
        }
    }
    if wanted(Part::Training) {
        let batches = [gpu::Batch::Independent, gpu::Batch::One, gpu::Batch::Group];
        for checkpointing in [ActivationCheckpointing::Layers, ActivationCheckpointing::Auto] {
            for batch in &batches {
                let of = (batch, checkpointing);
                report.add(("training", compute), gpu::training(&mut model, of, lengths)?);
            }
        }
    }
    report.print(args.json)
}

impl Shape {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no shape is skipped");
        value.get_name().to_owned()
    }

    fn config(self) -> Config {
        let tiny = Config {
            family: "qwen2",
            vocab_size: 512,
            hidden: 192,
            layers: 4,
            heads: 6,
            kv_heads: 2,
            head_dim: 32,
            ffn: 512,
            rms_eps: 1e-6,
            decoder: Decoder { qkv_bias: true, ..Decoder::plain(Rope::of(1e6)) },
            tied: true,
            max_positions: 1024,
            eos: Vec::new(),
            bos: None,
            pad: None,
        };
        match self {
            Self::BenchTiny => tiny,
            Self::Smollm135m => Config {
                family: "llama",
                vocab_size: 49_152,
                hidden: 576,
                layers: 30,
                heads: 9,
                kv_heads: 3,
                head_dim: 64,
                ffn: 1536,
                decoder: Decoder::plain(Rope::of(1e6)),
                ..tiny
            },
            Self::Qwen05b => Config {
                vocab_size: 151_936,
                hidden: 896,
                layers: 24,
                heads: 14,
                head_dim: 64,
                ffn: 4864,
                ..tiny
            },
            Self::Qwen15b => Config {
                vocab_size: 151_936,
                hidden: 1536,
                layers: 28,
                heads: 12,
                head_dim: 128,
                ffn: 8960,
                ..tiny
            },
            Self::Qwen3b => Config {
                vocab_size: 151_936,
                hidden: 2048,
                layers: 36,
                heads: 16,
                head_dim: 128,
                ffn: 11_008,
                ..tiny
            },
            Self::Qwen7b => Config {
                vocab_size: 152_064,
                hidden: 3584,
                layers: 28,
                heads: 28,
                kv_heads: 4,
                head_dim: 128,
                ffn: 18_944,
                tied: false,
                ..tiny
            },
        }
    }

    /// The product whose rate others are compared with.
    fn product(self) -> MatShape {
        match self {
            Self::BenchTiny => MatShape { rows: 6144, inputs: 192, outputs: 512 },
            _ => MatShape { rows: 1024, inputs: 896, outputs: 4864 },
        }
    }
}

impl Report {
    /// Without a measurement yet.
    fn new(args: &Args, threads: usize, flops: f64, bandwidth: f64) -> Self {
        Self {
            shape: args.shape.name(),
            parameters: 0,
            device: args.device.device.to_string(),
            cpu: machine::cpu_name(),
            instructions: machine::instructions(),
            threads,
            peak_gflops: flops / 1e9,
            product_gflops: flops / 1e9,
            rounded_product_gflops: None,
            memory_gb_per_s: bandwidth / 1e9,
            results: Vec::new(),
        }
    }

    fn measure_model(
        &mut self,
        cpu: Cpu,
        args: &Args,
        wanted: &dyn Fn(Part) -> bool,
    ) -> Result<()> {
        let tiny = args.shape == Shape::BenchTiny;
        let compute = cpu.compute();
        let longest = args.batch.iter().map(|it| it.1).max().unwrap_or(0).max(1024);
        let config = Config { max_positions: longest, ..args.shape.config() };
        let mut model = Model::new(cpu, config, longest)?;
        gpu::randomise(&mut model)?;
        self.parameters = model.layout().parameters();
        // Decoding comes first: training changes the weights.
        if wanted(Part::Sampling) && tiny {
            for sequences in [64, 256] {
                self.add(("sampling", compute), sampling(&model, sequences)?);
            }
        }
        if wanted(Part::Decoding) {
            let plain = format_of(compute);
            let formats = [Some(plain), (plain == NumberFormat::F32).then_some(NumberFormat::Bf16)];
            for format in formats.into_iter().flatten() {
                if format != plain && !model.pack_for_decode()? {
                    continue;
                }
                for sequences in [1, 4, 8, 64] {
                    let case = decoding(&model, sequences, format)?;
                    self.add(("decoding", compute), case);
                }
            }
        }
        if wanted(Part::Training) {
            let cases: &[(usize, usize)] = match args.shape {
                _ if !args.batch.is_empty() => &args.batch,
                Shape::BenchTiny => &[(64, 96)],
                Shape::Smollm135m => &[(4, 256)],
                _ => &[(1, 128), (4, 512)],
            };
            for case in cases {
                self.add(("training", compute), training(&mut model, *case)?);
            }
        }
        if wanted(Part::Step) && tiny {
            self.add(("step", compute), grpo_step(model)?);
        }
        Ok(())
    }

    fn print(&self, json: bool) -> Result<()> {
        if json {
            outln!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        outln!(
            "{} ({} parameters) on {}, {}, {} threads, {}",
            self.shape,
            self.parameters,
            self.device,
            self.cpu,
            self.threads,
            self.instructions
        );
        outln!(
            "peak {:.0} GFLOP/s, product {:.0}{}, memory {:.1} GB/s",
            self.peak_gflops,
            self.product_gflops,
            self.rounded_product_gflops.map_or(String::new(), |it| format!(", rounded {it:.0}")),
            self.memory_gb_per_s
        );
        for it in &self.results {
            let share = it.share_of_limit.map(|share| format!("  {:.0} % of limit", 100.0 * share));
            outln!(
                "{:<10} {:<5} {:<34} {:>10.6} s {:>10.0} /s{}{}{}",
                it.part,
                it.compute.name(),
                it.case,
                it.seconds,
                it.per_second,
                share.unwrap_or_default(),
                it.idle.map_or(String::new(), |it| format!("  idle {:.1} %", 100.0 * it)),
                it.peak_bytes
                    .map_or(String::new(), |it| format!("  peak {:.2} GB", it as f64 / 1e9)),
            );
        }
        Ok(())
    }

    fn add(&mut self, (part, compute): (&'static str, Compute), it: Case) {
        let rounded = self.rounded_product_gflops.filter(|_| compute != Compute::F32);
        let arithmetic = it.flops / (1e9 * rounded.unwrap_or(self.peak_gflops));
        let limit = arithmetic.max(it.bytes / (1e9 * self.memory_gb_per_s));
        let all: f64 = it.times.iter().sum();
        let threads = self.threads as f64;
        let mut times = it.times;
        times.sort_by(f64::total_cmp);
        let seconds = times[times.len() / 2];
        eprintln!("bench: {part}, {compute}, {}: {seconds:.6} s", it.name);
        self.results.push(Measured {
            part,
            compute,
            case: it.name,
            seconds,
            best_seconds: times[0],
            per_second: it.items / seconds,
            share_of_limit: (limit > 0.0).then(|| limit / seconds),
            idle: it.cpu_seconds.map(|used| 1.0 - used / (all * threads)),
            peak_bytes: hapo_train::memory::peak_resident_bytes(),
        });
        // Resets the peak of memory; without permission, peaks cover the whole run.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
}

/// The format of trained weights that decoding reads.
fn format_of(compute: Compute) -> NumberFormat {
    match compute {
        Compute::Bf16 => NumberFormat::Bf16,
        Compute::F32 | Compute::Tf32 => NumberFormat::F32,
    }
}
