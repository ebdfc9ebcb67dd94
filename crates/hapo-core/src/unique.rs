//! An object whose fields come once each: of two, readers would take different ones.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// The fields of an object, in their order; a field that comes twice is an error.
#[derive(Debug)]
pub struct UniqueFields<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueFields<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

struct Fields<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Fields<V> {
    type Value = UniqueFields<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut fields, mut names) = (Vec::new(), std::collections::BTreeSet::new());
        while let Some((name, value)) = map.next_entry::<String, V>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("the field `{name}` comes twice")));
            }
            fields.push((name, value));
        }
        Ok(UniqueFields(fields))
    }
}
