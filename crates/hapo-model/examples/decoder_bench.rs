//! Tokens per second of training and decoding, beside the product rate and the memory bandwidth of
//! the same run.
//!
//!     cargo run --release -p hapo-model --example decoder_bench -- [tiny|0.5b] [train|decode|all] [threads] [batch]

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::OnceLock;
use std::time::Instant;

use hapo_kernels::{AdamW, Buffer, Cpu, Device, MatShape, Onto, row_stats};
use hapo_model::{
    Config, Family, Gradients, KvCache, Model, Moments, PackedBatch, Recompute, Rope, Tape, Target,
};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |i: usize, default: &str| args.get(i).cloned().unwrap_or_else(|| default.to_owned());
    let shape = arg(0, "tiny");
    let what = arg(1, "all");
    let threads: usize = arg(2, "0").parse().expect("a number of threads");
    let tiny = shape == "tiny";
    let batch: Option<usize> = args.get(3).map(|b| b.parse().expect("a batch size"));
    let cpu = Cpu::new(threads).expect("threads start");
    ONE_THREAD.get_or_init(|| cpu.threads() == 1);
    println!("{shape}, {} threads", cpu.threads());
    println!("product rate: {:.0} GFLOP/s", product_rate(&cpu, tiny));
    println!("memory read: {:.1} GB/s", bandwidth(&cpu));
    let config = if tiny {
        config(192, 4, 6, 2, 32, 512, 512)
    } else {
        config(896, 24, 14, 2, 64, 4864, 151_936)
    };
    let mut model = Model::new(cpu, config, 1024).expect("the model fits in memory");
    randomise(&mut model);
    if what != "decode" {
        let (sequences, len) = if tiny { (64, 96) } else { (1, 128) };
        let sequences = batch.unwrap_or(sequences);
        train(
            &mut model,
            sequences,
            if sequences == 4 { 512 } else { len },
        );
    }
    if what != "train" {
        decode(&model, batch.unwrap_or(if tiny { 64 } else { 8 }));
    }
    println!("peak memory: {:.2} GB", peak_memory());
}

fn config(
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    ffn: usize,
    vocab_size: usize,
) -> Config {
    Config {
        family: Family::Qwen2,
        vocab_size,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn,
        rms_eps: 1e-6,
        rope: Rope {
            theta: 1e6,
            llama3: None,
        },
        tied: true,
        qkv_bias: true,
        qk_norm: false,
        max_positions: 1024,
        eos: Vec::new(),
        bos: None,
        pad: None,
    }
}

fn randomise(model: &mut Model<Cpu>) {
    let mut state = 1_u64;
    for param in model.layout().params().to_vec() {
        let norm = param.shape.len() == 1 && !param.name.ends_with("bias");
        let values: Vec<f32> = (0..param.len)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let x = ((state >> 40) as f32 / (1_u64 << 24) as f32 - 0.5) * 0.07;
                if norm { 1.0 + x } else { x }
            })
            .collect();
        model
            .set_tensor(&param.name, &values)
            .expect("the layout's own tensor");
    }
}

static ONE_THREAD: OnceLock<bool> = OnceLock::new();

/// Seconds: of this thread's processor time when one thread does all the work, so that other work on
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

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn best(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// GFLOP/s of a large product.
fn product_rate(cpu: &Cpu, tiny: bool) -> f64 {
    let shape = if tiny {
        MatShape {
            rows: 6144,
            inputs: 192,
            outputs: 512,
        }
    } else {
        MatShape {
            rows: 1024,
            inputs: 896,
            outputs: 4864,
        }
    };
    let MatShape {
        rows: m,
        inputs: k,
        outputs: n,
    } = shape;
    let x = cpu.alloc(m * k).expect("room");
    let w = cpu.alloc(k * n).expect("room");
    let mut y = cpu.alloc(m * n).expect("room");
    let times: Vec<f64> = (0..30)
        .map(|_| {
            let start = now();
            cpu.enter(|| {
                cpu.matmul(
                    shape,
                    x.first(m * k),
                    w.first(k * n),
                    Onto::Nothing,
                    y.first_mut(m * n),
                );
            });
            now() - start
        })
        .collect();
    2.0 * (m * n * k) as f64 / best(&times) / 1e9
}

/// GB/s of reading 512 MB.
fn bandwidth(cpu: &Cpu) -> f64 {
    let mut x = cpu.alloc(128 << 20).expect("room");
    let len = x.len();
    cpu.fill(x.first_mut(len), 1.0);
    let times: Vec<f64> = (0..5)
        .map(|_| {
            let start = now();
            let sum = cpu.enter(|| cpu.squared_norm(x.first(len)));
            assert!(sum > 0.0);
            now() - start
        })
        .collect();
    len as f64 * 4.0 / best(&times) / 1e9
}

fn train(model: &mut Model<Cpu>, sequences: usize, len: usize) {
    let vocabulary = model.config().vocab_size as u32;
    let mut batch = PackedBatch::default();
    for s in 0..sequences {
        let tokens: Vec<u32> = (0..=len)
            .map(|i| (i * 7919 + s * 104_729) as u32 % vocabulary)
            .collect();
        let index = batch.push(&tokens[..len], None);
        let start = batch.segments[index].start;
        batch.targets.extend((0..len).map(|i| Target {
            row: start + i,
            token: tokens[i + 1],
            inverse_temperature: 1.0,
        }));
    }
    let n = batch.targets.len();
    let mut tape = Tape::new(Recompute::None);
    let mut gradients = Gradients::new(model).expect("room");
    let mut moments = Moments::new(model).expect("room");
    let (d, zero) = (vec![-1.0 / n as f32; n], vec![0.0; n]);
    let reps = if model.config().hidden < 512 { 15 } else { 4 };
    let (mut all, mut forwards, mut backwards, mut steps) = (vec![], vec![], vec![], vec![]);
    for step in 1..=reps + 1 {
        let t0 = now();
        model.forward(&batch, &mut tape).expect("a good batch");
        let t1 = now();
        gradients.clear();
        model
            .backward(&mut tape, &d, &zero, &mut gradients)
            .expect("a forward pass");
        let t2 = now();
        let norm = gradients.squared_norms(model).iter().sum::<f64>().sqrt();
        let step = AdamW {
            learning_rate: 1e-4,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            step,
            gradient_scale: (1.0 / norm).min(1.0),
        };
        model.adamw(step, &gradients, &mut moments);
        let t3 = now();
        if step.step > 1 {
            forwards.push(t1 - t0);
            backwards.push(t2 - t1);
            steps.push(t3 - t2);
            all.push(t3 - t0);
        }
    }
    let c = model.config();
    let (qw, kw) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    let weights =
        c.layers * (c.hidden * (2 * qw + 2 * kw) + 3 * c.hidden * c.ffn) + c.hidden * c.vocab_size;
    // Products of the weights, and of causal attention, whose backward is 2.5 forwards.
    let flops = 6.0 * (weights * sequences * len) as f64
        + 3.5 * 2.0 * (c.layers * qw * sequences * len * len) as f64;
    println!(
        "train {sequences}x{len}: best {:.4} s, median {:.4} s ({:.0} tok/s, {:.0} GFLOP/s at best); forward {:.4}, backward {:.4}, adamw {:.4}",
        best(&all),
        median(all.clone()),
        (sequences * len) as f64 / median(all.clone()),
        flops / best(&all) / 1e9,
        best(&forwards),
        best(&backwards),
        best(&steps),
    );
}

fn decode(model: &Model<Cpu>, sequences: usize) {
    let vocabulary = model.config().vocab_size;
    let tiny = model.config().hidden < 512;
    let (prompt_len, new) = (32, if tiny { 64 } else { 16 });
    let mut cache = KvCache::new(model, sequences * (32 + 64) + 64).expect("room");
    let mut logits = Vec::new();
    let reps = if tiny { 15 } else { 2 };
    let (mut all, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..reps {
        cache.clear();
        let prompts: Vec<Vec<u32>> = (0..sequences)
            .map(|s| {
                (0..prompt_len)
                    .map(|i| ((i * 31 + s * 17) % vocabulary) as u32)
                    .collect()
            })
            .collect();
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let t0 = now();
        let prefill = model.prefill(&mut cache, &prompts).expect("room");
        let mut rows: Vec<_> = prefill
            .slots
            .iter()
            .map(|&slot| (cache.fork(slot, new).expect("room"), 1_u32))
            .collect();
        let t1 = now();
        let mut checksum = 0.0;
        for _ in 1..new {
            model
                .decode(&mut cache, &rows, &mut logits)
                .expect("a good step");
            for ((_, token), row) in rows.iter_mut().zip(logits.chunks(vocabulary)) {
                let stats = row_stats(row, 1.0);
                checksum += stats.entropy;
                *token = (*token * 31 + 7) % vocabulary as u32;
            }
        }
        assert!(checksum > 0.0);
        all.push(now() - t0);
        steps.push((now() - t1) / (new - 1) as f64);
    }
    println!(
        "decode {sequences}: {:.0} tok/s at best, median {:.0}; a step {:.3} ms at best ({:.0} tok/s)",
        (sequences * new) as f64 / best(&all),
        (sequences * new) as f64 / median(all.clone()),
        best(&steps) * 1e3,
        sequences as f64 / best(&steps),
    );
}

/// GB of the largest resident set so far.
fn peak_memory() -> f64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| {
            let line = s.lines().find(|l| l.starts_with("VmHWM"))?.to_owned();
            line.split_whitespace().nth(1)?.parse::<f64>().ok()
        })
        .map_or(f64::NAN, |kb| kb / (1024.0 * 1024.0))
}
