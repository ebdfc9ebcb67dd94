//! `--device` and `--compute`: where a command computes, and with what.

use anyhow::Result;
#[cfg(feature = "cuda")]
use hapo_cuda::{Cuda, Driver, Launcher};
use hapo_kernels::{Compute, Cpu};

use crate::{failure::bad_input, support::arguments::one_of, support::machine::ProductRates};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(usize),
}

#[derive(clap::Args, Clone, Copy, Debug)]
pub struct DeviceArg {
    /// Where to compute: cpu or cuda:N
    #[arg(long, default_value = "cpu", value_name = "DEVICE", value_parser = parse)]
    pub device: DeviceChoice,
    /// The rounding of products' factors.
    #[command(flatten)]
    pub compute: ComputeArg,
    /// Name the GPU, driver and libraries, and time the parts of the start
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct ComputeArg {
    /// Number format of the factors of matrix products, on any device; sums are f32 [default: the recipe's where there is one,
    /// else f32]
    #[arg(long, value_name = "FORMAT", value_parser = one_of(&FORMATS[1..]))]
    compute: Option<Asked>,
}

/// A format, or `None` for the faster of f32 and bf16.
type Asked = Option<Compute>;

/// What `hapo train` takes; other commands take all but the first.
pub(crate) const FORMATS: &[(&str, Asked)] = &[
    ("auto", None),
    ("f32", Some(Compute::F32)),
    ("tf32", Some(Compute::Tf32)),
    ("bf16", Some(Compute::Bf16)),
];

impl ComputeArg {
    /// The format on the command line, else f32.
    pub fn or_f32(self) -> Compute {
        self.named().unwrap_or_default()
    }

    fn named(self) -> Option<Compute> {
        self.compute.flatten()
    }

    pub(crate) fn is_auto(self) -> bool {
        self.compute == Some(None)
    }

    pub(crate) fn set(self) -> Option<String> {
        self.named().map(|it| format!("compute={it}"))
    }
}

/// How long the parts of a start took.
pub(crate) fn start_line(parts: &[(&str, f64)]) -> String {
    let parts: Vec<_> = parts.iter().map(|(part, s)| format!("{part} {s:.2} s")).collect();
    format!("start  {}", parts.join(", "))
}

pub(crate) fn tell_start(verbose: bool, parts: &[(&str, f64)]) {
    if verbose {
        errln!("{}", start_line(parts));
    }
}

/// Reads `cpu` or `cuda:N`.
pub fn parse(text: &str) -> Result<DeviceChoice, String> {
    let wrong = || "expected cpu or cuda:N, N a number from 0".to_owned();
    if text == "cpu" {
        return Ok(DeviceChoice::Cpu);
    }
    let number = text.strip_prefix("cuda:").ok_or_else(wrong)?;
    if let Some((number, format)) = number.split_once(':')
        && let Some((format, _)) = Compute::ALL.iter().find(|it| it.0 == format)
    {
        return Err(format!(
            "it names the device alone: --device cuda:{number} --compute {format}, or `compute = \"{format}\"` in the recipe"
        ));
    }
    if number.is_empty() || !number.bytes().all(|it| it.is_ascii_digit()) {
        return Err(wrong());
    }
    number.parse().map(DeviceChoice::Cuda).map_err(|_| wrong())
}

impl std::fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// The CPU; products that it does not have are bad input. Warns of bf16 that is no faster than f32.
pub fn cpu(threads: usize, compute: Compute) -> Result<Cpu> {
    let cpu = Cpu::computing(threads, compute)?;
    if compute == Compute::Bf16
        && let Some(rates) = ProductRates::measure(threads)?
        && rates.faster() == Compute::F32
    {
        errln!("warning: compute = \"bf16\" rounds and gains nothing on this processor: {rates}");
    }
    Ok(cpu)
}

/// A GPU; one that cannot be opened is bad input. Always prints environment variables that change results.
#[cfg(feature = "cuda")]
pub fn cuda(ordinal: usize, compute: Compute, verbose: bool) -> Result<Cuda> {
    let gpu = hapo_cuda::open(ordinal, compute).map_err(|it| match &it {
        hapo_kernels::DeviceError::Gpu { hint, .. } => bad_input(format!("--device {it}"), hint),
        _ => it.into(),
    })?;
    for it in gpu.launcher().warnings() {
        errln!("warning: {it}");
    }
    for it in gpu.launcher().about().iter().filter(|_| verbose) {
        errln!("{it}");
    }
    Ok(gpu)
}

/// Prints the times of a GPU's operations, where they were kept, and how many products had an algorithm of their own
/// shape, if `verbose` or if there are some.
#[cfg(feature = "cuda")]
pub fn print_trace(driver: &Driver, verbose: bool) {
    let refused = driver.refused();
    if verbose || refused.products > 0 {
        let (name, products, kinds) = (driver.name(), refused.products, refused.kinds);
        errln!(
            "{name}: cuBLASLt refused the algorithm of {products} forward products of {kinds} kinds"
        );
    }
    if let Some(it) = driver.trace() {
        errln!("{}", it.trim_end());
    }
}

/// The refusal of a GPU by a command that was built without CUDA.
#[cfg(not(feature = "cuda"))]
pub fn without_cuda() -> anyhow::Error {
    bad_input("--device: this command was built without CUDA", "build it with the feature `cuda`")
}

#[cfg(not(feature = "cuda"))]
#[macro_export]
macro_rules! on_device {
    ($choice:expr, $compute:expr, $threads:expr, |$device:ident| $body:expr) => {{
        if $choice.device != $crate::support::device::DeviceChoice::Cpu {
            return Err($crate::support::device::without_cuda());
        }
        let $device = $crate::support::device::cpu($threads, $compute)?;
        $body
    }};
}

/// Runs `$body` with a device of either type.
#[cfg(feature = "cuda")]
#[macro_export]
macro_rules! on_device {
    ($choice:expr, $compute:expr, $threads:expr, |$device:ident| $body:expr) => {{
        let choice = $choice;
        match choice.device {
            $crate::support::device::DeviceChoice::Cpu => {
                let $device = $crate::support::device::cpu($threads, $compute)?;
                $body
            }
            $crate::support::device::DeviceChoice::Cuda(ordinal) => {
                let $device = $crate::support::device::cuda(ordinal, $compute, choice.verbose)?;
                let driver = $device.launcher().clone();
                let result = $body;
                $crate::support::device::print_trace(&driver, choice.verbose);
                result
            }
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_written() {
        for text in ["cpu", "cuda:0", "cuda:12"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in ["", "gpu", "cuda", "cuda:", "cuda:+1", "cuda:x", "cuda:0:f16", "cuda:-1"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let old = parse("cuda:3:bf16").unwrap_err();
        assert!(old.contains("--device cuda:3 --compute bf16"), "{old}");
        assert!(old.contains("`compute = \"bf16\"`"), "{old}");
    }
}
