//! Devices to plan for: this machine's CPU as it is measured, and GPUs by their data sheets.

use hapo_kernels::{Compute, DeviceCaps};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceSpec {
    pub name: String,
    pub memory_bytes: u64,
    pub flops: f64,
    /// Floating-point operations per second of its attention, which is plain f32.
    pub attention_flops: f64,
    pub bandwidth: f64,
    /// Share of `flops` that the products of training reach.
    pub training_share: f64,
    /// Share of `flops` that decoding reaches: its products have few rows.
    pub decoding_share: f64,
    /// Share of `bandwidth` that decoding and the optimiser reach.
    pub bandwidth_share: f64,
    /// True for the CPU, whose products copy a matrix.
    pub is_cpu: bool,
    pub compute: Compute,
}

/// A GPU: name, GB of memory, dense bf16 TFLOP/s of its tensor cores (twice those of TF32), TFLOP/s of plain f32, and GB/s, of its
/// data sheet.
type Gpu = (&'static str, f64, f64, f64, f64);

const GPUS: &[Gpu] = &[
    ("b200", 180.0, 2250.0, 75.0, 8000.0),
    ("h200", 141.0, 989.0, 67.0, 4800.0),
    ("h100", 80.0, 989.0, 67.0, 3350.0),
    ("a100-80gb", 80.0, 312.0, 19.5, 2039.0),
    ("a100-40gb", 40.0, 312.0, 19.5, 1555.0),
    ("l40s", 48.0, 362.0, 91.6, 864.0),
    ("rtx4090", 24.0, 165.0, 82.6, 1008.0),
    ("rtx3090", 24.0, 71.0, 35.6, 936.0),
];

impl DeviceSpec {
    /// A GPU by name, as the backend computes on it: f32 in memory, and products of factors in `compute`.
    pub fn gpu(name: &str, compute: Compute) -> Option<Self> {
        let &(_, memory, bf16, f32, bandwidth) = GPUS.iter().find(|it| it.0 == name)?;
        let flops = match compute {
            Compute::F32 => f32,
            Compute::Tf32 => bf16 / 2.0,
            Compute::Bf16 => bf16,
        };
        Some(Self {
            name: name.to_owned(),
            memory_bytes: (memory * 1e9) as u64,
            flops: 1e12 * flops,
            attention_flops: 1e12 * f32,
            bandwidth: bandwidth * 1e9,
            // Of the peak, as the plan assumes.
            training_share: 0.40,
            decoding_share: 0.40,
            bandwidth_share: 0.60,
            is_cpu: false,
            compute,
        })
    }

    /// How it lays out memory; blocks of rows on a CPU are not planned for.
    pub(super) fn caps(&self) -> DeviceCaps {
        if self.is_cpu { DeviceCaps::cpu(self.compute, 1) } else { DeviceCaps::gpu(self.compute) }
    }

    pub fn gpus() -> impl Iterator<Item = &'static str> {
        GPUS.iter().map(|it| it.0)
    }

    /// A CPU with its measured rates; everything is f32.
    pub fn cpu(name: &str, memory_bytes: u64, flops: f64, bandwidth: f64) -> Self {
        Self {
            name: name.to_owned(),
            memory_bytes,
            flops,
            attention_flops: flops,
            bandwidth,
            // Of the measured rates, as the plan assumes.
            training_share: 0.80,
            decoding_share: 0.75,
            bandwidth_share: 1.00,
            is_cpu: true,
            compute: Compute::F32,
        }
    }

    /// The same CPU with products of factors in `compute`, at their own rate.
    #[must_use]
    pub fn computing(self, compute: Compute, flops: f64) -> Self {
        Self { flops, compute, ..self }
    }
}
