//! The one check of a configuration, whoever made it.

use hapo_core::{Refusal, expected};

use super::decoder::{Decoder, Rope, Scaling, YarnScaling};
use super::{Config, TensorSpec};

/// Most parameters a model may have (2^40); larger sums in a file are taken for damage.
pub const MAX_PARAMETERS: u64 = 1 << 40;

pub(crate) const MAX_LAYERS: usize = 1 << 10;

const MAX_POSITIONS: usize = 1 << 31;

impl Config {
    /// Checks that the numbers of a configuration agree with each other: positive sizes, heads divisible by key/value
    /// heads, an even head width, special tokens inside the vocabulary, at most [`MAX_PARAMETERS`] parameters.
    pub fn check(&self) -> Result<(), Refusal> {
        for (field, size, limit) in [
            ("vocab_size", self.vocab_size, 1 << 24),
            ("hidden_size", self.hidden, 1 << 18),
            ("num_hidden_layers", self.layers, MAX_LAYERS),
            ("num_attention_heads", self.heads, 1 << 12),
            ("num_key_value_heads", self.kv_heads, 1 << 12),
            ("head_dim", self.head_dim, 1 << 12),
            ("intermediate_size", self.ffn, 1 << 20),
            ("max_position_embeddings", self.max_positions, MAX_POSITIONS),
        ] {
            require_size(field, size, limit)?;
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let wanted = format!("a divisor of num_attention_heads ({})", self.heads);
            return Err(expected(wanted).got(self.kv_heads).at("num_key_value_heads"));
        }
        if !self.head_dim.is_multiple_of(2) {
            let wanted = "an even number, as the rotation turns pairs";
            return Err(expected(wanted).got(self.head_dim).at("head_dim"));
        }
        if !(self.rms_eps > 0.0 && self.rms_eps < 1.0) {
            return Err(expected("a number between 0 and 1").got(self.rms_eps).at("rms_norm_eps"));
        }
        self.check_layers()?;
        for rope in &self.decoder.ropes {
            self.check_rope(rope)?;
        }
        let special = (self.eos.iter().map(|id| ("eos_token_id", *id)))
            .chain(self.bos.map(|id| ("bos_token_id", id)))
            .chain(self.pad.map(|id| ("pad_token_id", id)));
        for (field, id) in special {
            if id as usize >= self.vocab_size {
                let wanted = format!("an id below vocab_size ({})", self.vocab_size);
                return Err(expected(wanted).got(id).at(field));
            }
        }
        self.check_parameters()
    }

    fn check_layers(&self) -> Result<(), Refusal> {
        let Decoder { ropes, layers, .. } = &self.decoder;
        if layers.is_empty() || layers.len() > self.layers {
            let wanted = format!("kinds of {} layers", self.layers);
            return Err(expected(wanted).got(layers.len()).at("layer_types"));
        }
        for window in layers.iter().filter_map(|kind| kind.window) {
            require_size("sliding_window", window, MAX_POSITIONS)?;
        }
        match layers.iter().filter_map(|kind| kind.rope).find(|rope| *rope >= ropes.len()) {
            Some(rope) => {
                Err(expected("a rotary embedding for each kind").got(rope).at("layer_types"))
            }
            None => Ok(()),
        }
    }

    fn check_rope(&self, rope: &Rope) -> Result<(), Refusal> {
        let at_least_1 = |number: f64, place: &str| {
            if number.is_finite() && number >= 1.0 {
                return Ok(());
            }
            Err(expected("a finite number of at least 1").got(number).at(place))
        };
        at_least_1(rope.theta, "rope_theta")?;
        let rotated = rope.rotated(self.head_dim);
        if !(rope.share > 0.0 && rope.share <= 1.0) || rotated == 0 || !rotated.is_multiple_of(2) {
            let wanted = "a share of head_dim that is an even number, at most 1.0";
            return Err(expected(wanted).got(rope.share).at("partial_rotary_factor"));
        }
        let (factor, original, [slow, fast], names) = match &rope.scaling {
            Scaling::None => return Ok(()),
            Scaling::Linear(factor) => (*factor, 1, [1.0, 2.0], ["", ""]),
            Scaling::Llama3(it) => {
                let names = ["low_freq_factor", "high_freq_factor"];
                let both = [it.low_freq_factor, it.high_freq_factor];
                (it.factor, it.original_max_positions, both, names)
            }
            Scaling::Yarn(it) => {
                let names = ["beta_slow", "beta_fast"];
                (it.factor, it.original_max_positions, [it.beta_slow, it.beta_fast], names)
            }
            Scaling::Long(it) => {
                for (field, all) in [("short_factor", &it.short), ("long_factor", &it.long)] {
                    let place = format!("rope_scaling.{field}");
                    if let Some(it) = all.iter().find(|it| !(it.is_finite() && **it > 0.0)) {
                        return Err(expected("positive numbers").got(it).at(place));
                    }
                    if all.len() != rotated / 2 {
                        let wanted =
                            format!("{} numbers, one for each pair of a head", rotated / 2);
                        return Err(expected(wanted).got(all.len()).at(place));
                    }
                }
                // The logarithm of the original context divides.
                (1.0, it.original_max_positions.saturating_sub(1), [1.0, 2.0], ["", ""])
            }
        };
        at_least_1(factor, "rope_scaling.factor")?;
        if !(slow > 0.0 && fast > slow && fast.is_finite()) {
            let wanted = format!("a finite number above {} ({slow}), both positive", names[0]);
            return Err(expected(wanted).got(fast).at(format!("rope_scaling.{}", names[1])));
        }
        require_size("rope_scaling.original_max_position_embeddings", original, MAX_POSITIONS)?;
        match rope.scaling {
            Scaling::Yarn(YarnScaling { attention_factor: Some(it), .. }) if it <= 0.0 => {
                Err(expected("a positive number").got(it).at("rope_scaling.attention_factor"))
            }
            _ => Ok(()),
        }
    }

    /// Bounds the sum of parameters. One layer stands for all alike: with these sizes 1024 cannot overflow u64.
    fn check_parameters(&self) -> Result<(), Refusal> {
        let one = Self { layers: 1, ..self.clone() };
        let count = |spec: &TensorSpec| {
            let copies = if spec.name.starts_with("model.layers.") { self.layers } else { 1 };
            copies as u64 * spec.shape.iter().map(|size| *size as u64).product::<u64>()
        };
        let parameters: u64 = one.tensors().iter().map(count).sum();
        if parameters <= MAX_PARAMETERS {
            return Ok(());
        }
        let wanted = format!("at most {MAX_PARAMETERS} parameters in all");
        Err(expected(wanted).got(parameters).at("hidden_size × num_hidden_layers"))
    }
}

fn require_size(field: &str, size: usize, limit: usize) -> Result<(), Refusal> {
    if (1..=limit).contains(&size) {
        return Ok(());
    }
    Err(expected(format!("an integer from 1 to {limit}")).got(size).at(field))
}
