//! Every kernel compiles for the architectures we name, with NVRTC and without a GPU.

use hapo_cuda::{Arch, Compiler, Form, sources};

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
    // PTX that an older driver compiles itself.
    for source in sources() {
        let ptx = compiler.compile(source, Arch { major: 9, minor: 0 }, Form::Ptx).unwrap();
        let text = String::from_utf8(ptx).unwrap();
        assert!(text.contains(".target sm_90") && text.contains(".entry"), "{}", source.file);
    }
    let mut recorded = format!("NVRTC {:?}\n", compiler.version);
    for (major, minor) in [(8, 0), (8, 6), (9, 0), (10, 0)] {
        for source in sources() {
            let image = compiler.compile(source, Arch { major, minor }, Form::Image).unwrap();
            assert!(
                image.starts_with(b"\x7fELF"),
                "{} is no cubin for sm_{major}{minor}",
                source.file
            );
            // Their names are in the image as they are looked up.
            for kernel in source.kernels() {
                let it = resources(&image, kernel);
                let it = it.unwrap_or_else(|| panic!("{kernel} for sm_{major}{minor}"));
                if (major, minor) == (9, 0) {
                    let Resources { registers, instructions, tile_loop, .. } = it;
                    recorded += &format!("{kernel} {registers} {instructions} {tile_loop}\n");
                }
                // Two blocks of 256 threads on a multiprocessor; one where a warp holds rows of 128 columns on the tensor
                // cores.
                let tiles = kernel.strip_prefix("attention_tiles_");
                let most = if tiles.is_some_and(|it| it.ends_with("128")) { 255 } else { 128 };
                assert!(it.registers <= most, "{kernel} for sm_{major}{minor}: {it:?}");
                if let Some(tiles) = tiles {
                    let of_tiles = (it.products_of_tiles, it.loads_of_tiles);
                    assert_eq!(
                        of_tiles,
                        tile_instructions(tiles),
                        "{kernel} for sm_{major}{minor}"
                    );
                }
                // Nothing spills.
                assert_eq!(it.stack, 0, "{kernel} for sm_{major}{minor}: {it:?}");
                // The system's kilobyte, beyond the launch's own.
                assert!(it.shared <= 1024, "{kernel} for sm_{major}{minor}: {it:?}");
            }
        }
    }
    within_the_record(&recorded);
}

/// Registers, instructions, and those of the loop with products of tiles grow little over those in the file; more is
/// recorded with `UPDATE_EXPECT=1`, by whoever has seen why.
fn within_the_record(now: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machine_code.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        return std::fs::write(path, now).unwrap();
    }
    let then = std::fs::read_to_string(path).unwrap();
    // Another NVRTC makes other code.
    if now.lines().next() != then.lines().next() {
        return;
    }
    assert_eq!(now.lines().count(), then.lines().count(), "kernels in {path}");
    for (now, then) in now.lines().zip(then.lines()).skip(1) {
        let [ours, theirs] = [now, then].map(|it| it.split(' ').collect::<Vec<_>>());
        assert_eq!(ours[0], theirs[0], "kernels in {path}");
        for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate().skip(1) {
            let [ours, most] = [ours, theirs].map(|it| it.parse::<usize>().unwrap());
            let most = if i == 1 { most + 8 } else { most + most / 20 };
            assert!(ours <= most, "{now}; at most 8 registers and 5 % of instructions over {then}");
        }
    }
}

/// Products of tiles, and loads of four tiles each, of one of the kernels of the tensor cores: every product is of 16
/// rows, 8 columns and 16 steps.
fn tile_instructions(kernel: &str) -> (usize, usize) {
    let (kind, width) = kernel.rsplit_once('_').unwrap_or(("", kernel));
    let steps = width.parse::<usize>().unwrap() / 16;
    match kind {
        // Scores of eight keys and sums of sixteen columns, or none, of a warp; the queries stay.
        "decode" => (steps + 4 * 2, steps + steps / 2 + 4 * 2),
        // Scores and values of 64 keys; the queries stay.
        "" => (steps * 8 + 4 * 2 * steps, steps + steps * 4 + 4 * steps),
        // Scores, gradients of probabilities and sums of 16 keys at a time; queries and gradients stay.
        "grad_q" => (3 * 2 * steps, 2 * steps + 3 * steps),
        // The same of 16 keys and 16 queries, and sums for keys and for values.
        "grad_kv" => (4 * 2 * steps, 4 * steps + 2 * steps),
        _ => panic!("{kernel}"),
    }
}

/// Resources of a multiprocessor that a kernel takes.
#[derive(Clone, Copy, Debug)]
struct Resources {
    /// Registers of a thread.
    registers: u32,
    /// Bytes of a thread's stack.
    stack: u32,
    /// Bytes of shared memory that a block has in any case.
    shared: u64,
    /// HMMA: products of the tensor cores.
    products_of_tiles: usize,
    /// LDSM: their tiles from shared memory.
    loads_of_tiles: usize,
    /// Instructions, without those that fill up.
    instructions: usize,
    /// Instructions from the first to the last of the longest loop with products of tiles; 0 without one.
    tile_loop: usize,
}

/// Reads them from an image: an ELF file whose section `.nv.info` has attributes by symbol.
fn resources(image: &[u8], kernel: &str) -> Option<Resources> {
    const REGISTERS: u8 = 0x2f;
    const FRAME: u8 = 0x11;
    let sections = sections(image);
    let named = |name: &str| sections.iter().find(|it| it.name == name);
    let symbols = named(".symtab")?.bytes;
    let names = named(".strtab")?.bytes;
    // Of 24 bytes, the first four are where the name begins.
    let is_kernel = |it: &&[u8]| text(names, word(it, 0) as usize) == kernel && it[4] & 15 == 2;
    let symbol = symbols.chunks_exact(24).position(|it| is_kernel(&it))? as u32;
    let info = named(".nv.info")?.bytes;
    let (mut at, mut registers, mut stack) = (0, None, None);
    while at + 4 <= info.len() {
        let (form, attribute) = (info[at], info[at + 1]);
        let len = usize::from(u16::from_le_bytes([info[at + 2], info[at + 3]]));
        at += 4;
        if form != 4 {
            continue;
        }
        let value = &info[at..at + len];
        if len == 8 && word(value, 0) == symbol {
            match attribute {
                REGISTERS => registers = Some(word(value, 4)),
                FRAME => stack = Some(word(value, 4)),
                _ => {}
            }
        }
        at += len;
    }
    let shared = named(&format!(".nv.shared.{kernel}")).map_or(0, |it| it.size);
    // An instruction has 16 bytes, and its kind is in the lowest twelve bits.
    let code = named(&format!(".text.{kernel}"))?.bytes;
    let count = |kind| code.chunks_exact(16).filter(|it| word(it, 0) & 0xfff == kind).count();
    Some(Resources {
        registers: registers?,
        stack: stack?,
        shared,
        products_of_tiles: count(PRODUCT),
        loads_of_tiles: count(0x83b),
        instructions: code.len() / 16 - count(0x918),
        tile_loop: tile_loop(code),
    })
}

/// HMMA.
const PRODUCT: u32 = 0x23c;

/// A branch has its distance from the next instruction, in words of four bytes, in byte 2 and the bits from 34 on: so for
/// `sm_90`, by the listings of `nvdisasm`.
fn tile_loop(code: &[u8]) -> usize {
    const BRANCH: u32 = 0x947;
    let all: Vec<&[u8]> = code.chunks_exact(16).collect();
    let kind = |it: &[u8]| word(it, 0) & 0xfff;
    let mut longest = 0;
    for (at, it) in all.iter().enumerate().filter(|it| kind(it.1) == BRANCH) {
        let high = i64::from(word(it, 4).cast_signed() >> 2);
        let words = (high << 8) | i64::from(it[2]);
        let target = at as i64 + 1 + words / 4;
        if let Ok(first) = usize::try_from(target)
            && first < at
            && all[first..at].iter().any(|it| kind(it) == PRODUCT)
        {
            longest = longest.max(at + 1 - first);
        }
    }
    longest
}

/// A section of an ELF file.
struct Section<'a> {
    name: String,
    size: u64,
    /// Nothing of one that takes no space in the file.
    bytes: &'a [u8],
}

fn sections(image: &[u8]) -> Vec<Section<'_>> {
    let number = |at: usize, n: usize| {
        image[at..at + n].iter().rev().fold(0_u64, |all, it| all << 8 | u64::from(*it)) as usize
    };
    let (table, entry) = (number(0x28, 8), number(0x3a, 2));
    let (count, names) = (number(0x3c, 2), number(0x3e, 2));
    let names = number(table + names * entry + 24, 8);
    (0..count)
        .map(|i| {
            let at = table + i * entry;
            let (name, kind) = (number(at, 4), number(at + 4, 4));
            let (offset, size) = (number(at + 24, 8), number(at + 32, 8));
            let bytes = if kind == 8 { &[][..] } else { &image[offset..offset + size] };
            Section { name: text(&image[names..], name).to_owned(), size: size as u64, bytes }
        })
        .collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn text(bytes: &[u8], at: usize) -> &str {
    std::ffi::CStr::from_bytes_until_nul(&bytes[at..]).unwrap().to_str().unwrap()
}
