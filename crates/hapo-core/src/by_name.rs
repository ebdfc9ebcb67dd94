//! Entries of lists as recipes write them: by their names.

use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{GATES, GateRule, INJECTIONS, Injection, OPERATORS, Operator};

macro_rules! by_name {
    ($($entry:ident of $entries:ident, $find:path;)+) => {$(
        impl PartialEq for $entry {
            fn eq(&self, other: &Self) -> bool {
                self.name == other.name
            }
        }

        impl Serialize for $entry {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name)
            }
        }

        impl<'de> Deserialize<'de> for &'static $entry {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                static NAMES: LazyLock<Vec<&'static str>> =
                    LazyLock::new(|| $entries.iter().map(|it| it.name).collect());
                let name = String::deserialize(deserializer)?;
                $find(&name).ok_or_else(|| de::Error::unknown_variant(&name, &NAMES))
            }
        }
    )+};
}

by_name! {
    GateRule of GATES, crate::gate_rule;
    Injection of INJECTIONS, crate::injection;
    Operator of OPERATORS, crate::operator;
}
