//! Every kernel compiles for the architectures we name, with NVRTC and without a GPU.

use hapo_cuda::{Arch, Compiler, sources};

/// Where there is no NVRTC this says so and passes, unless `HAPO_REQUIRE_NVRTC` is set.
#[test]
fn every_kernel_compiles_for_ampere_hopper_and_blackwell() {
    let compiler = match Compiler::find("nvrtc") {
        Ok(compiler) => compiler,
        Err(error) => {
            assert!(
                std::env::var_os("HAPO_REQUIRE_NVRTC").is_none(),
                "HAPO_REQUIRE_NVRTC is set: {error}"
            );
            #[expect(clippy::print_stderr, reason = "a skipped test says so")]
            {
                eprintln!("skipped: {error}");
            }
            return;
        }
    };
    for (major, minor) in [(8, 0), (9, 0), (10, 0)] {
        for source in sources() {
            let image = compiler.compile(source, Arch { major, minor }).unwrap();
            assert!(
                image.starts_with(b"\x7fELF"),
                "{} is no cubin for sm_{major}{minor}",
                source.file
            );
            // Their names are in the image as they are looked up.
            for kernel in source.kernels {
                let found = image.windows(kernel.len()).any(|it| it == kernel.as_bytes());
                assert!(found, "{kernel} for sm_{major}{minor}");
            }
        }
    }
}
