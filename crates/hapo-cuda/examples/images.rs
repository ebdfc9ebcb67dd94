//! Compiles the kernels for the architectures that ship: `cargo run -p hapo-cuda --example images -- kernels.zst`.
//!
//! Needs NVRTC and no GPU. `scripts/wheel` puts the file into the wheel. `-- planted.zst FUNCTION TEXT INSTEAD` puts an
//! error into `attention_tiles.cu`, for `racecheck` to find.

use std::path::Path;

use hapo_cuda::{ARCHS, Compiler, Source, sources, write_images};

/// The kernels that an error is put into, so that what looks for errors can be looked at.
const PLANTED: &str = "attention_tiles.cu";

#[expect(clippy::print_stdout, reason = "what it wrote is its output")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let compiler = Compiler::find("images")?;
    let (major, minor) = compiler.version;
    let (path, bytes) = match &args[..] {
        [path] => (path, write_images(&compiler, Path::new(path), &ARCHS, |it| it)?),
        [path, function, text, instead] => {
            let planted = sources().iter().find_map(|it| with_error(*it, function, text, instead));
            let planted = planted.ok_or_else(|| format!("{PLANTED}: no such text"))?;
            let changed = |it: Source| if it.file == PLANTED { planted } else { it };
            // For 9.0 alone.
            (path, write_images(&compiler, Path::new(path), &ARCHS[1..], changed)?)
        }
        _ => return Err("expected the path of the file to write".into()),
    };
    println!("{path}: {bytes} bytes, by NVRTC {major}.{minor}");
    Ok(())
}

/// A source with `instead` for the first `text` behind the name of a function, if both are in this file.
fn with_error(mut source: Source, function: &str, text: &str, instead: &str) -> Option<Source> {
    let (before, body) = source.text.split_once(function)?;
    if source.file != PLANTED || !body.contains(text) {
        return None;
    }
    source.text = format!("{before}{function}{}", body.replacen(text, instead, 1)).leak();
    Some(source)
}
