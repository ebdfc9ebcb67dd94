//! A method's own table of a recipe, kept as it was written until the method reads it.
//!
//! The recipe cannot know the settings of a method that is one file, and a method knows no file format. The price
//! is this small copy of a table, which the method reads into a type of its own by `Deserialize`.

use std::collections::BTreeMap;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize};

/// The table `[NAME]` of a recipe whose method is NAME; empty where it is not written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OwnSettings(BTreeMap<String, Value>);

impl OwnSettings {
    /// The settings as the method's own type. The message is serde's: an unknown field or variant is named with
    /// those that are expected.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        T::deserialize(Value::Table(self.0.clone())).map_err(|it: Error| it.to_string())
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Value {
    Bool(bool),
    Integer(i64),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Table(BTreeMap<String, Value>),
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Bool(it) => visitor.visit_bool(it),
            Self::Integer(it) => visitor.visit_i64(it),
            Self::Number(it) => visitor.visit_f64(it),
            Self::Text(it) => visitor.visit_string(it),
            Self::List(it) => visitor.visit_seq(SeqDeserializer::new(it.into_iter())),
            Self::Table(it) => visitor.visit_map(MapDeserializer::new(it.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Text(it) => it.into_deserializer().deserialize_enum(name, variants, visitor),
            other => other.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
