//! `config.json` as a family reads it.

use serde_json::Value;

use super::rope::Beside;
use super::sizes::Sizes;
use super::{Fields, rope, shown};
use crate::config::decoder::{LayerKind, Rope, Scaling};
use crate::error::Error;

/// The two kinds of layers in `layer_types`, in the order of [`Reader::ropes`].
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];

/// The fields of a file that are not yet taken. Problems are kept until all fields are read, so that one message names
/// them all; a value in the place of a refused one is meaningless.
pub(crate) struct Reader<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) refused: Vec<Error>,
    /// Is `None` where they were refused.
    pub(crate) sizes: Option<Sizes>,
    pub(crate) architecture: &'static str,
}

impl<'a> Reader<'a> {
    /// What is read, or its refusal among the others.
    pub(crate) fn keep<T>(
        &mut self,
        read: impl FnOnce(&mut Fields<'a>) -> Result<T, Error>,
    ) -> Option<T> {
        read(&mut self.fields).map_err(|it| self.refused.push(it)).ok()
    }

    /// A key whose value is one of some, as JSON, or absent.
    pub(crate) fn fixed(&mut self, name: &str, values: &[&str]) {
        self.refused.extend(self.fields.fixed(name, values, None));
    }

    /// A positive number.
    pub(crate) fn positive(&mut self, name: &str, absent: f64) -> f64 {
        let checked = self.keep(|fields| match fields.number(name)?.unwrap_or(absent) {
            it if it > 0.0 && it.is_finite() => Ok(it),
            it => Err(fields.refuse(name, "a positive number", it.to_string(), None)),
        });
        checked.unwrap_or(absent)
    }

    /// A size, or `null`.
    pub(crate) fn size(&mut self, name: &str) -> Option<usize> {
        self.keep(|it| it.size(name, 1 << 31)).flatten()
    }

    /// `attention_bias`, which the class has or has not.
    pub(crate) fn attention_bias(&mut self, implemented: bool) {
        let architecture = self.architecture;
        self.keep(|fields| match fields.flag("attention_bias")? {
            Some(bias) if bias != implemented => {
                let expected = format!("{implemented}, as {architecture} has it");
                Err(fields.refuse("attention_bias", expected, bias.to_string(), None))
            }
            _ => Ok(()),
        });
    }

    /// The rotary embedding of all layers; `absent` is the base of a file that names none.
    pub(crate) fn rope(&mut self, absent: Option<f64>) -> Rope {
        self.rope_with(Beside { absent, ..Beside::default() })
    }

    /// The same, with more beside it.
    pub(crate) fn rope_with(&mut self, beside: Beside) -> Rope {
        let longest = self.sizes.as_ref().map(|it| it.max_positions);
        let read = self.keep(|fields| {
            let (theta, inner) = (fields.number("rope_theta"), rope::object(fields));
            let (theta, inner) = (theta?, inner?);
            rope::read(fields, inner, Beside { theta, longest, ..beside })
        });
        read.unwrap_or_else(|| Rope::of(1.0))
    }

    /// The rotary embeddings of full layers and of those with a window, the second without scaling. `local` is the key
    /// of the second's base in the dialect of transformers 4, with its default; without one, both bases are the same.
    pub(crate) fn ropes(&mut self, absent: f64, local: Option<(&str, f64)>) -> Vec<Rope> {
        let of_windows = local.map(|(key, absent)| self.positive(key, absent));
        let longest = self.sizes.as_ref().map(|it| it.max_positions);
        let read = self.keep(|fields| {
            let (theta, inner) = (fields.number("rope_theta"), rope::object(fields));
            let (theta, mut inner) = (theta?, inner?);
            let full = Beside { theta, absent: Some(absent), longest, ..Beside::default() };
            let is_nested = inner.as_ref().is_some_and(|it| it.rest.contains_key(KINDS[0]));
            let [of_full, of_sliding] = match inner.take_if(|_| is_nested) {
                Some(outer) => by_kind(outer)?,
                None => [inner, None],
            };
            let full = rope::read(fields, of_full, full)?;
            let sliding = Beside { absent: of_windows.or(Some(full.theta)), ..Beside::default() };
            let sliding = rope::read(fields, of_sliding, sliding)?;
            let place = "rope_parameters.sliding_attention";
            if sliding.scaling != Scaling::None {
                let (expected, got) = ("\"default\"", "a scaling");
                return Err(fields.refuse(format!("{place}.rope_type"), expected, got, None));
            }
            if local.is_none() && sliding.theta != full.theta {
                let expected = format!("{}, as in full layers", full.theta);
                let got = sliding.theta.to_string();
                return Err(fields.refuse(format!("{place}.rope_theta"), expected, got, None));
            }
            Ok(vec![full, sliding])
        });
        read.unwrap_or_else(|| vec![Rope::of(1.0); 2])
    }

    /// The kinds of the layers by `layer_types`, with the window of the sliding ones and the embeddings of
    /// [`Reader::ropes`]. Without the field, each `every`-th layer is full.
    pub(crate) fn layers(&mut self, every: usize) -> Vec<LayerKind> {
        let window = self.size("sliding_window");
        let types = self.fields.take("layer_types");
        let Some(Sizes { layers, .. }) = self.sizes else {
            return Vec::new();
        };
        let sliding = match types {
            Some(types) => self.keep(|it| kinds_in(it, &types, layers, &KINDS)).unwrap_or_default(),
            None => (1..=layers).map(|it| !it.is_multiple_of(every)).collect(),
        };
        if window.is_none() && sliding.contains(&true) {
            let expected = "the window of the sliding layers";
            self.refused.push(self.fields.missing("sliding_window", expected));
        }
        let kind = |is_sliding: &bool| LayerKind {
            window: window.filter(|_| *is_sliding),
            rope: Some(usize::from(*is_sliding)),
        };
        sliding.iter().map(kind).collect()
    }

    /// Refuses a sliding window that is in use: where `has_switch`, one is only when `use_sliding_window` is true.
    pub(crate) fn full_attention(&mut self, has_switch: bool) {
        const HINT: Option<&str> = Some(
            "when your sequences are shorter than the window, set use_sliding_window to false",
        );
        let layers = self.sizes.as_ref().map(|it| it.layers);
        self.keep(|fields| {
            let in_use = fields.flag("use_sliding_window");
            let window = fields.take("sliding_window");
            let types = fields.take("layer_types");
            let in_use = in_use?;
            if in_use == Some(true) {
                return Err(fields.refuse("use_sliding_window", "false", "true", HINT));
            }
            if let (false, None, Some(window)) = (has_switch, in_use, window) {
                return Err(fields.refuse("sliding_window", "null", shown(&window), HINT));
            }
            if let (Some(types), Some(layers)) = (types, layers) {
                kinds_in(fields, &types, layers, &KINDS[..1])?;
            }
            Ok(())
        });
    }
}

/// The objects of both kinds of layers.
fn by_kind(mut outer: Fields<'_>) -> Result<[Option<Fields<'_>>; 2], Error> {
    let [full, sliding] = KINDS.map(|kind| match outer.take(kind) {
        Some(value) => outer.inner(kind, value).map(Some),
        None => Ok(None),
    });
    match Error::of_fields(outer.rest().0) {
        Some(it) => Err(it),
        None => Ok([full?, sliding?]),
    }
}

/// Which of the layers have a window, where `kinds`, all or the first, are what a layer may be.
fn kinds_in(
    fields: &Fields<'_>,
    types: &Value,
    layers: usize,
    kinds: &[&str],
) -> Result<Vec<bool>, Error> {
    let refuse = |place: &str, got: &Value| {
        let expected = format!("\"{}\" for each of the {layers} layers", kinds.join("\" or \""));
        fields.refuse(place, expected, shown(got), None)
    };
    let Some(list) = types.as_array().filter(|list| list.len() == layers) else {
        return Err(refuse("layer_types", types));
    };
    let kind_of = |(i, kind): (usize, &Value)| match kinds.iter().position(|it| kind == it) {
        Some(which) => Ok(which == 1),
        None => Err(refuse(&format!("layer_types[{i}]"), kind)),
    };
    list.iter().enumerate().map(kind_of).collect()
}
