//! The inline PTX of the tensor cores' functions, which the emulator replaces: what each becomes is compared with a line
//! written from NVIDIA's PTX ISA.

use crate::compile::{Arch, Compiler, Form};
use crate::sources::{Source, sources};

/// A kernel for each function: its operands come from memory and go there in a known order.
const PROBES: &str = r#"
extern "C" __global__ void load(const u32* in, u32* out) {
    HAPO_SHARED(u16, shared);
    u32 to[4];
    load_tiles(to, shared + in[0]);
    for (int i = 0; i < 4; i++) out[i] = to[i];
}
extern "C" __global__ void load_transposed(const u32* in, u32* out) {
    HAPO_SHARED(u16, shared);
    u32 to[4];
    load_tiles_transposed(to, shared + in[0]);
    for (int i = 0; i < 4; i++) out[i] = to[i];
}
extern "C" __global__ void multiply(const u32* in, float* out) {
    float sums[4] = {out[0], out[1], out[2], out[3]};
    u32 a[4] = {in[0], in[1], in[2], in[3]};
    multiply_tiles(sums, a, in[4], in[5]);
    for (int i = 0; i < 4; i++) out[i] = sums[i];
}
extern "C" __global__ void copy(const u32* in, const u16* from) {
    HAPO_SHARED(u16, shared);
    begin_copy(shared + in[0], from, in[1]);
}
extern "C" __global__ void groups() {
    end_group();
    wait_for_groups<3>();
}
extern "C" __global__ void both(const float* in, u32* out) { out[0] = pack(in[0], in[1]); }
"#;

/// What each becomes. `in` and `out` are numbered words of memory.
const EXPECTED: [&str; 7] = [
    // "Warp-level matrix load instruction: ldmatrix": a lane's four results are of the four matrices, in order.
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {out0, out1, out2, out3}, [shared];",
    // The same with `.trans`: matrices are loaded in column-major order.
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {out0, out1, out2, out3}, [shared];",
    // "Matrix fragments for mma.m16n8k16 with floating point type": a0..a3 are rows g and g + 8 of columns 0..8, then of
    // 8..16; b0 and b1 are rows 0..8 and 8..16.
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {out0, out1, out2, out3}, {in0, in1, in2, in3}, {in4, in5}, {out0, out1, out2, out3};",
    // "cp.async": of cp-size bytes the first src-size are copied, the rest are zeros.
    "cp.async.cg.shared.global [shared], [global], 16, in1 ? 16 : 0;",
    "cp.async.commit_group;",
    // "cp.async.wait_group": waits until at most N of the most recent groups are pending.
    "cp.async.wait_group 3;",
    // "cvt": of `cvt.rn.bf16x2.f32 d, a, b` the upper half of d is a, the lower b.
    "cvt.rn.bf16x2.f32 out0, in1, in0;",
];

/// Wrong instructions that compile, spill nothing and count alike.
const MUTANTS: [(&str, &str); 6] = [
    ("x4.trans.shared", "x4.shared"),
    (r#""r"(b0), "r"(b1)"#, r#""r"(b1), "r"(b0)"#),
    (r#""r"(a[1]), "r"(a[2])"#, r#""r"(a[2]), "r"(a[1])"#),
    (r#""f"(high), "f"(low)"#, r#""f"(low), "f"(high)"#),
    (r#""n"(N)"#, r#""n"(N + 1)"#),
    ("there ? 16 : 0", "16"),
];

#[test]
fn inline_instructions_are_those_of_the_isa() {
    let compiler = match Compiler::find("nvrtc") {
        Ok(compiler) => compiler,
        Err(error) => {
            let required = std::env::var_os("HAPO_REQUIRE_NVRTC").is_some();
            assert!(!required, "HAPO_REQUIRE_NVRTC is set: {error}");
            return;
        }
    };
    let tiles = sources().iter().find(|it| it.file == "attention_tiles.cu").unwrap();
    let functions = tiles.text.split("#endif").next().unwrap().to_owned() + "#endif\n";
    let lines = |functions: &str| {
        let text = format!("{functions}{PROBES}").leak();
        let source = Source { file: "probes.cu", text, kernels: "" };
        let ptx = compiler.compile(&source, Arch { major: 8, minor: 0 }, Form::Ptx).unwrap();
        inline_lines(&String::from_utf8(ptx).unwrap())
    };
    assert_eq!(lines(&functions), EXPECTED);
    for (right, wrong) in MUTANTS {
        assert_eq!(functions.matches(right).count(), 1, "{right}");
        assert_ne!(lines(&functions.replace(right, wrong)), EXPECTED, "{right} as {wrong}");
    }
}

/// Inline instructions, each register named by where it comes from or goes to.
fn inline_lines(ptx: &str) -> Vec<String> {
    let mut all = Vec::new();
    for kernel in ptx.split(".entry").skip(1) {
        let lines: Vec<&str> = kernel.lines().map(str::trim).collect();
        let mut is_inline = false;
        for line in &lines {
            match *line {
                "// begin inline asm" => is_inline = true,
                "// end inline asm" => is_inline = false,
                it if is_inline => all.push(renamed(it, &lines)),
                _ => {}
            }
        }
    }
    all
}

fn renamed(line: &str, kernel: &[&str]) -> String {
    let mut to = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('%') {
        let end = rest[at + 1..].find(|it: char| !it.is_ascii_alphanumeric()).unwrap() + at + 1;
        to += &rest[..at];
        to += &name_of(&rest[at..end], kernel);
        rest = &rest[end..];
    }
    to + rest
}

fn name_of(register: &str, kernel: &[&str]) -> String {
    let word = |address: &str| {
        let offset = address.trim_end_matches(']').split_once('+').map_or("0", |it| it.1);
        offset.parse::<usize>().unwrap() / 4
    };
    let mut name = format!("{register} of {kernel:?}");
    for line in kernel {
        let operands: Vec<&str> = line.trim_end_matches(';').split([' ', '\t', ',']).collect();
        let operands: Vec<&str> = operands.into_iter().filter(|it| !it.is_empty()).collect();
        match operands[..] {
            [load, to, from] if load.starts_with("ld.global") && to == register => {
                name = format!("in{}", word(from));
            }
            [store, to, from] if store.starts_with("st.global") && from == register => {
                name = format!("out{}", word(to));
            }
            [load, to, _] if load.starts_with("ld.param") && to == register => {
                "global".clone_into(&mut name);
            }
            ["cvt.u32.u64", to, _] if to == register => "shared".clone_into(&mut name),
            ["selp.b32", to, a, b, predicate] if to == register => {
                let set =
                    kernel.iter().find(|it| it.starts_with("setp.") && it.contains(predicate));
                let set: Vec<&str> = set.unwrap().split([' ', '\t', ',']).collect();
                let (then, otherwise) = if set[0].starts_with("setp.eq") { (b, a) } else { (a, b) };
                let of = set.iter().rev().find(|it| it.starts_with("%r")).unwrap();
                name = format!("{} ? {then} : {otherwise}", name_of(of, kernel));
            }
            _ => {}
        }
    }
    name
}
