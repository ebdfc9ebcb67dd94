//! Errors to plant in the kernels, each with the test that has to fail for it; `docs/cuda.md` lists them.

/// Names the mutant that the kernels are built with.
pub(crate) const MUTANT: &str = "HAPO_TEST_MUTANT";

/// An error in the source of a kernel.
#[derive(Debug)]
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The file.
    pub(crate) file: &'static str,
    /// The function: the text is looked for behind this name.
    function: &'static str,
    text: &'static str,
    instead: &'static str,
    /// The test that fails.
    pub(crate) test: &'static str,
}

const TILES: &str = "attention_tiles.cu";
const ATTENTION: &str = "attention_on_the_tensor_cores";
const DECODING: &str = "a_decoded_row_has_the_bits_of_the_forward_pass";

/// The barrier that ends a loop over tiles.
const END_OF_LOOP: [&str; 2] = ["        __syncthreads();\n    }\n", "    }\n"];
/// The barrier after which a thread reads what others have copied.
const AFTER_WAIT: [&str; 2] =
    ["wait_for_groups<1>();\n        __syncthreads();", "wait_for_groups<1>();"];

const fn in_tiles(
    name: &'static str,
    function: &'static str,
    [text, instead]: [&'static str; 2],
    test: &'static str,
) -> Mutant {
    Mutant { name, file: TILES, function, text, instead, test }
}

/// All of them.
pub(crate) const MUTANTS: [Mutant; 10] = [
    in_tiles("forward: no barrier at the end of the loop", "forward_tiles", END_OF_LOOP, ATTENTION),
    in_tiles(
        "gradient of queries: no barrier at the end of the loop",
        "grad_q_tiles",
        END_OF_LOOP,
        ATTENTION,
    ),
    in_tiles(
        "gradients of keys and values: no barrier at the end of the loop",
        "grad_kv_tiles",
        END_OF_LOOP,
        ATTENTION,
    ),
    in_tiles(
        "forward: no barrier after the queries are loaded",
        "forward_tiles",
        ["c * 16));\n    __syncthreads();", "c * 16));"],
        ATTENTION,
    ),
    in_tiles("forward: no barrier after the wait", "forward_tiles", AFTER_WAIT, ATTENTION),
    in_tiles(
        "gradients of keys and values: no barrier after the wait",
        "grad_kv_tiles",
        AFTER_WAIT,
        ATTENTION,
    ),
    in_tiles(
        "forward: one group too few is waited for",
        "forward_tiles",
        ["wait_for_groups<1>", "wait_for_groups<2>"],
        ATTENTION,
    ),
    in_tiles("decoding: no barrier at the end of the loop", "decode_rows", END_OF_LOOP, DECODING),
    in_tiles("decoding: no barrier after the wait", "decode_rows", AFTER_WAIT, DECODING),
    in_tiles(
        "decoding: no barrier before exponentials are added",
        "decode_rows",
        ["__syncthreads();\n        // One warp", "// One warp"],
        DECODING,
    ),
];

impl Mutant {
    /// A program of its file with the error in it.
    pub(crate) fn plant(&self, program: &str) -> String {
        let (before, function) = program
            .split_once(&format!("inline void {}(", self.function))
            .unwrap_or_else(|| panic!("{}: no function {}", self.name, self.function));
        let mutated = function.replacen(self.text, self.instead, 1);
        // A text that is first found in the next function would be another mutant.
        let own = function.find("\n}\n").expect("the function ends");
        let place = function.find(self.text);
        assert!(place.is_some_and(|it| it < own), "{}: no such text", self.name);
        format!("{before}inline void {}({mutated}", self.function)
    }
}

/// The mutant that this process is to run.
pub(crate) fn wanted() -> Option<&'static Mutant> {
    let name = std::env::var(MUTANT).ok()?;
    Some(MUTANTS.iter().find(|it| it.name == name).expect("a mutant of the table"))
}
