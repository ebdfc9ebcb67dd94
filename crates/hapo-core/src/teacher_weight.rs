//! λ, the weight of the teacher's term (Eq. 11, D15).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::decimal::NumberOrText;
use crate::group::{MixedGroup, confidence};

/// How the teacher's term is weighted while the gate is open (D15).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum TeacherWeight {
    /// λ = 1, the paper's indicator.
    #[default]
    One,
    /// λ = 1 − c.
    OneMinusConfidence,
    /// λ = (γ0 − c) / (γ0 − `c_min`), kept within 0 and 1: 1 for an all-failed group, 0 at the threshold.
    Relative,
    /// A constant.
    Constant(f64),
    /// The teacher's own advantage, as LUFFY's code has it; 0 where it is negative (D34).
    Advantage,
}

const WORDS: [(&str, TeacherWeight); 4] = [
    ("one", TeacherWeight::One),
    ("one-minus-confidence", TeacherWeight::OneMinusConfidence),
    ("relative", TeacherWeight::Relative),
    ("advantage", TeacherWeight::Advantage),
];

/// As a word, or as the number of a constant.
impl Serialize for TeacherWeight {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self, WORDS.iter().find(|it| it.1 == *self)) {
            (Self::Constant(weight), _) => serializer.serialize_f64(*weight),
            (_, Some((word, _))) => serializer.serialize_str(word),
            (_, None) => unreachable!("every rule but the constant has a word"),
        }
    }
}

/// From a word, a number, or a number as text.
impl<'de> Deserialize<'de> for TeacherWeight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: [&str; 5] = [WORDS[0].0, WORDS[1].0, WORDS[2].0, WORDS[3].0, "a number"];
        let constant = match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Number(value) => value,
            NumberOrText::Text(word) => {
                match (WORDS.iter().find(|it| it.0 == word), word.parse()) {
                    (Some((_, rule)), _) => return Ok(*rule),
                    (None, Ok(value)) => value,
                    (None, Err(_)) => return Err(de::Error::unknown_variant(&word, &EXPECTED)),
                }
            }
        };
        if constant.is_finite() && constant >= 0.0 {
            return Ok(Self::Constant(constant));
        }
        let got = de::Unexpected::Float(constant);
        Err(de::Error::invalid_value(got, &"a word or a number from 0"))
    }
}

/// λ(c) of an injected group (Eq. 11, D15). `initial_threshold` is γ0 of the schedule and `advantage` is the teacher's
/// own, of [`advantages`](crate::advantages); each is read by one rule only. All rules but [`TeacherWeight::Advantage`]
/// are monotone non-increasing in c.
pub fn teacher_weight(
    rule: TeacherWeight,
    group: &MixedGroup,
    initial_threshold: f64,
    advantage: f64,
) -> f64 {
    match rule {
        TeacherWeight::One => 1.0,
        TeacherWeight::OneMinusConfidence => 1.0 - group.confidence(),
        TeacherWeight::Relative => {
            let smallest = confidence(0, group.n_eff());
            // With few samples (D6) the whole ladder may lie above γ0; the order is kept then too.
            if group.successes() == 0 {
                1.0
            } else if initial_threshold <= smallest {
                0.0
            } else {
                ((initial_threshold - group.confidence()) / (initial_threshold - smallest)).max(0.0)
            }
        }
        TeacherWeight::Constant(weight) => weight,
        TeacherWeight::Advantage => advantage.max(0.0),
    }
}
