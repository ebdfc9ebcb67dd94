//! The functions of the drop-in for Math-Verify: the answer of a text, and the comparison of two.

use crate::arguments::text;
use hapo_verify::{Boxes, CleanUp, Fallback, Math, MathOptions, Search, Targets, Tries, Variables};
use pyo3::prelude::*;

/// The form of an answer: the settings of Math-Verify's `parse`, as Python's `Request` has them.
#[derive(FromPyObject)]
#[expect(clippy::struct_excessive_bools, reason = "the settings of another package")]
pub struct Request {
    /// Formulas: everywhere, only after an anchor, or not at all.
    latex: Option<bool>,
    boxed_priority: Option<u32>,
    boxes: Option<String>,
    basic_latex: bool,
    units: bool,
    nits: bool,
    malformed_operators: bool,
    /// Plain numbers, likewise.
    expressions: Option<bool>,
    strings: Vec<String>,
    strings_anywhere: bool,
    only_first: bool,
}

impl Request {
    fn options(self) -> MathOptions {
        let search = |anywhere| match anywhere {
            None => Search::Off,
            Some(true) => Search::Anywhere,
            Some(false) => Search::AfterAnchor,
        };
        let boxes = match self.boxes.as_deref() {
            Some("all") => Some(Boxes::All),
            Some("last") => Some(Boxes::Last),
            _ => None,
        };
        let targets = Targets {
            latex: search(self.latex),
            expressions: search(self.expressions),
            strings: self.strings,
            string_search: search(Some(self.strings_anywhere)),
            boxed_priority: self.boxed_priority,
            clean_up: CleanUp {
                basic_latex: self.basic_latex,
                units: self.units,
                nits: self.nits,
                malformed_operators: self.malformed_operators,
                boxes,
            },
        };
        let tries = if self.only_first { Tries::First } else { Tries::Any };
        MathOptions { targets, tries, ..MathOptions::DEFAULT }
    }
}

/// The value in sympy's notation, the literal string and the text of the first candidate; and whether one was too large.
type Answer = (Option<String>, Option<String>, Option<String>, bool);

/// Reads the answer of a text.
#[pyfunction]
pub fn read_answer(
    py: Python<'_>,
    completion: &Bound<'_, PyAny>,
    request: Request,
) -> PyResult<Answer> {
    let completion = text("pred", completion)?;
    Ok(py.detach(|| {
        let it = Math::new(request.options()).read(&completion);
        (it.value(), it.word().map(str::to_owned), it.text, it.too_large)
    }))
}

/// A text, and what is looked for in it.
#[derive(FromPyObject)]
pub struct Source(String, Request);

/// The settings of Math-Verify's `verify`.
#[derive(FromPyObject)]
pub struct Rules {
    float_rounding: u32,
    strict: bool,
    allow_set_relation_comp: bool,
}

/// True if the values of two texts are the same.
#[pyfunction]
pub fn same_answer(py: Python<'_>, gold: Source, answer: Source, rules: Rules) -> bool {
    py.detach(|| {
        let read = |Source(text, request): Source| {
            let options = MathOptions { fallback: Fallback::Nothing, ..request.options() };
            Math::new(options).read(&text)
        };
        let options = MathOptions {
            variables: if rules.strict { Variables::ByName } else { Variables::ByPosition },
            allow_set_relation: rules.allow_set_relation_comp,
            float_rounding: rules.float_rounding,
            ..MathOptions::DEFAULT
        };
        Math::new(options).same(&read(gold), &read(answer))
    })
}
