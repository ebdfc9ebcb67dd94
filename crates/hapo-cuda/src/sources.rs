//! The kernels' sources and their names.

const COMMON: &str = include_str!("../kernels/common.cuh");

#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub file: &'static str,
    pub text: &'static str,
    pub(crate) kernels: &'static str,
}

impl Source {
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.kernels.split(' ')
    }

    /// The whole program, with the common part in front.
    pub fn program(&self) -> String {
        format!("#line 1 \"common.cuh\"\n{COMMON}\n#line 1 \"{}\"\n{}", self.file, self.text)
    }
}

macro_rules! source {
    ($file:literal, $kernels:literal) => {
        Source { file: $file, text: include_str!(concat!("../kernels/", $file)), kernels: $kernels }
    };
}

pub fn sources() -> &'static [Source] {
    SOURCES
}

const SOURCES: &[Source] = &[
    source!(
        "rows.cu",
        "fill scale gather_rows gather_rows_bf16 scatter_rows copy_rows copy_rows_bf16"
    ),
    source!(
        "norm.cu",
        "rms_norm_narrow rms_norm_wide rms_norm_grad_narrow rms_norm_grad_wide column_parts \
         rms_norm_narrow_bf16 rms_norm_wide_bf16 rms_norm_grad_narrow_bf16 \
         rms_norm_grad_wide_bf16 column_parts_bf16 add_parts"
    ),
    source!("rope.cu", "rope rope_bf16 store_heads"),
    source!("swiglu.cu", "swiglu swiglu_bf16 swiglu_grad swiglu_grad_bf16"),
    source!("embedding.cu", "embed_grad"),
    source!("head.cu", "head head_grad"),
    source!(
        "attention.cu",
        "attention_32 attention_64 attention_128 attention_256 attention_deltas \
         attention_deltas_bf16 attention_grad_q_32 attention_grad_q_64 attention_grad_q_128 \
         attention_grad_q_256 attention_grad_kv_32 attention_grad_kv_64 attention_grad_kv_128 \
         attention_grad_kv_256 attention_add_kv attention_add_kv_bf16"
    ),
    source!(
        "attention_tiles.cu",
        "attention_tiles_32 attention_tiles_64 attention_tiles_128 attention_tiles_grad_q_32 \
         attention_tiles_grad_q_64 attention_tiles_grad_q_128 attention_tiles_grad_kv_32 \
         attention_tiles_grad_kv_64 attention_tiles_grad_kv_128 attention_tiles_decode_32 \
         attention_tiles_decode_64 attention_tiles_decode_128"
    ),
    source!(
        "cache.cu",
        "cache_append cache_append_rounded cache_append_bf16 decode_parts decode_parts_rounded \
         decode_sum"
    ),
    source!("draw.cu", "draw"),
    source!(
        "adamw.cu",
        "adamw adamw_split adamw_bf16 adamw_split_bf16 squared_norms squared_norms_split"
    ),
    source!("bf16.cu", "round_to_bf16 round_in_place"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_listed_once_and_only_what_is_there() {
        for source in sources() {
            let globals = source.text.matches("__global__").count();
            let written = match source.file {
                // A macro expands to four widths, to three, or to two or three formats.
                "attention.cu" => (globals - 4) * 4 + 4,
                "attention_tiles.cu" => globals * 3,
                "norm.cu" => (globals - 1) * 2 + 1,
                "swiglu.cu" => globals * 2,
                "cache.cu" => 3 + 2 + (globals - 2),
                _ => globals,
            };
            assert_eq!(written, source.kernels().count(), "{}", source.file);
        }
        let mut names: Vec<_> = sources().iter().flat_map(Source::kernels).collect();
        names.sort_unstable();
        names.dedup();
        let all: usize = sources().iter().map(|it| it.kernels().count()).sum();
        assert_eq!(names.len(), all);
    }

    /// The first contact asks ncu for kernels by name.
    #[test]
    fn counters_are_read_of_kernels_that_are_there() {
        let script = include_str!("../../../scripts/gpu/first_contact");
        let names = script.lines().find_map(|it| it.strip_prefix("kernels='")).unwrap();
        for name in names.trim_end_matches('\'').split('|') {
            assert!(sources().iter().any(|it| it.kernels().any(|it| it == name)), "{name}");
        }
    }

    #[test]
    fn no_kernel_has_an_atomic() {
        for source in sources() {
            assert!(!source.program().contains("atomicAdd"), "{}", source.file);
        }
    }
}
