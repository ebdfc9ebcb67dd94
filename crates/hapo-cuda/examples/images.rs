//! Compiles the kernels for the architectures that ship: `cargo run -p hapo-cuda --example images -- kernels.zst`.
//!
//! Needs NVRTC and no GPU. `scripts/wheel` puts the file into the wheel.

use std::path::Path;

#[expect(clippy::print_stdout, reason = "what it wrote is its output")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("expected the path of the file to write")?;
    let compiler = hapo_cuda::Compiler::find("images")?;
    let (major, minor) = compiler.version();
    let bytes = hapo_cuda::write_images(&compiler, Path::new(&path))?;
    println!("{}: {bytes} bytes, by NVRTC {major}.{minor}", Path::new(&path).display());
    Ok(())
}
