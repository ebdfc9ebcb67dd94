//! Compiles the kernels for the architectures that ship: `cargo run -p hapo-cuda --example images -- kernels.zst`.
//!
//! Needs NVRTC and no GPU. `scripts/wheel` puts the file into the wheel. `-- planted.zst FUNCTION TEXT INSTEAD` puts an
//! error into `attention_tiles.cu`, for `racecheck` to find.

use std::path::Path;

use hapo_cuda::{Compiler, Planted, write_images, write_planted_images};

#[expect(clippy::print_stdout, reason = "what it wrote is its output")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let compiler = Compiler::find("images")?;
    let (major, minor) = compiler.version();
    let (path, bytes) = match &args[..] {
        [path] => (path, write_images(&compiler, Path::new(path))?),
        [path, function, text, instead] => {
            let planted = Planted { file: "attention_tiles.cu", function, text, instead };
            (path, write_planted_images(&compiler, Path::new(path), planted)?)
        }
        _ => return Err("expected the path of the file to write".into()),
    };
    println!("{path}: {bytes} bytes, by NVRTC {major}.{minor}");
    Ok(())
}
