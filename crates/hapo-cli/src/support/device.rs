//! `--device`: where a command computes.

use anyhow::Result;
use hapo_cuda::{Cuda, MatmulPrecision};
use hapo_kernels::{Cpu, DeviceError};

use crate::failure::bad_input;

/// Where a model is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU.
    Cuda {
        /// Its number.
        ordinal: usize,
        /// What the inputs of matmuls are rounded to.
        products: MatmulPrecision,
    },
}

/// The option of the commands that compute with a model.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct DeviceArg {
    /// Where to compute: cpu, cuda:N, or cuda:N:bf16 for matmuls of bf16 inputs
    #[arg(long, default_value = "cpu", value_name = "DEVICE", value_parser = parse)]
    pub(crate) device: DeviceChoice,
}

fn parse(text: &str) -> Result<DeviceChoice, String> {
    let wrong = || "expected cpu, cuda:N or cuda:N:bf16, N a number from 0".to_owned();
    if text == "cpu" {
        return Ok(DeviceChoice::Cpu);
    }
    let gpu = text.strip_prefix("cuda:").ok_or_else(wrong)?;
    let (number, products) = match gpu.split_once(':') {
        None => (gpu, MatmulPrecision::F32),
        Some((number, "bf16")) => (number, MatmulPrecision::Bf16),
        Some(_) => return Err(wrong()),
    };
    if number.is_empty() || !number.bytes().all(|it| it.is_ascii_digit()) {
        return Err(wrong());
    }
    Ok(DeviceChoice::Cuda { ordinal: number.parse().map_err(|_| wrong())?, products })
}

impl std::fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda { ordinal, products } => {
                let products = match products {
                    MatmulPrecision::F32 => "",
                    MatmulPrecision::Bf16 => ":bf16",
                };
                write!(f, "cuda:{ordinal}{products}")
            }
        }
    }
}

impl DeviceArg {
    /// Refuses a GPU by name, for a command that runs on the CPU only.
    pub(crate) fn require_cpu(self, command: &str) -> Result<()> {
        match self.device {
            DeviceChoice::Cpu => Ok(()),
            DeviceChoice::Cuda { .. } => Err(bad_input(
                format!("--device {}: hapo {command} runs on cpu only", self.device),
                "GPUs work with train, eval, generate, serve, logprobs and replay",
            )),
        }
    }
}

/// The CPU.
pub(crate) fn cpu(threads: usize) -> Result<Cpu> {
    Ok(Cpu::new(threads)?)
}

/// A GPU; one that cannot be opened is bad input.
pub(crate) fn cuda(ordinal: usize, products: MatmulPrecision) -> Result<Cuda> {
    hapo_cuda::open(ordinal, products).map_err(|it| match &it {
        DeviceError::Gpu { hint, .. } => bad_input(format!("--device {it}"), hint),
        _ => it.into(),
    })
}

/// Runs `$body` with a device of either type.
macro_rules! on_device {
    ($choice:expr, $threads:expr, |$device:ident| $body:expr) => {
        match $choice {
            $crate::support::device::DeviceChoice::Cpu => {
                let $device = $crate::support::device::cpu($threads)?;
                $body
            }
            $crate::support::device::DeviceChoice::Cuda { ordinal, products } => {
                let $device = $crate::support::device::cuda(ordinal, products)?;
                $body
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_written() {
        for text in ["cpu", "cuda:0", "cuda:12", "cuda:3:bf16"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in ["", "gpu", "cuda", "cuda:", "cuda:+1", "cuda:x", "cuda:0:f16", "cuda:-1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
