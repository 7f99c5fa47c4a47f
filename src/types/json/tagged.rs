//! Enums whose objects name their kind in a member: `{"type": "text", "text": "…"}`.
//!
//! serde's own `tag` reads such an object into a form between that is not JSON, and brings a second
//! copy of the code of every type in it. `tagged!` reads it by the one reader.

use super::reader::{Kind, Misfit};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, Visitor},
    ser::{Error as _, Impossible, SerializeMap, SerializeStruct, SerializeStructVariant},
};
use serde_json::{Map, Value};

/// Lets an enum that derives `Serialize` and `Deserialize` with `#[serde(remote = "Self")]` name its
/// kind in the member `$tag`. Its kinds are structs, or hold one.
macro_rules! tagged {
    ($name:ident, $tag:literal) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, $crate::types::json::tagged::Tagging { tag: $tag, kind: "", to })
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::types::json::tagged::read(from, $tag, |kind| Self::deserialize(kind))
            }
        }
    };
}

pub(crate) use tagged;

/// Reads an object whose member `tag` names its kind.
///
/// # Errors
/// When it is no object, does not name its kind, or does not fit that.
pub fn read<'de, D: Deserializer<'de>, T>(
    from: D,
    tag: &'static str,
    kind: impl FnOnce(Tagged) -> Result<T, Misfit>,
) -> Result<T, D::Error> {
    let mut content = Map::deserialize(from)?;
    match content.remove(tag) {
        Some(Value::String(name)) => {
            kind(Tagged(Kind { name, content: Value::Object(content) })).map_err(D::Error::custom)
        }
        Some(other) => Err(D::Error::custom(Misfit::unexpected(&other, &"a string, the kind"))),
        None => Err(D::Error::missing_field(tag)),
    }
}

/// An object whose kind is known.
pub struct Tagged(Kind);

impl<'de> Deserializer<'de> for Tagged {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_enum(self.0)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Writes the kind as the first member of what it holds.
pub struct Tagging<S> {
    /// The member's name.
    pub tag: &'static str,
    /// The kind, once it is known.
    pub kind: &'static str,
    /// Where to.
    pub to: S,
}

/// What no kind is.
macro_rules! never {
    ($($method:ident($($arg:ty),*) -> $ok:ty;)*) => {
        $(fn $method(self, $(_: $arg),*) -> Result<$ok, S::Error> {
            Err(S::Error::custom("a kind is a struct"))
        })*
    };
}

impl<S: Serializer> Serializer for Tagging<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Impossible<S::Ok, S::Error>;
    type SerializeTuple = Impossible<S::Ok, S::Error>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
    type SerializeMap = S::SerializeMap;
    type SerializeStruct = S::SerializeStruct;
    type SerializeStructVariant = Members<S::SerializeStruct>;

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        kind: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        Self { kind, ..self }.serialize_struct(name, len).map(Members)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        kind: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(Self { kind, ..self })
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<S::SerializeStruct, S::Error> {
        let mut to = self.to.serialize_struct(name, len + 1)?;
        to.serialize_field(self.tag, self.kind)?;
        Ok(to)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<S::SerializeMap, S::Error> {
        let mut to = self.to.serialize_map(len.map(|len| len + 1))?;
        to.serialize_entry(self.tag, self.kind)?;
        Ok(to)
    }

    never! {
        serialize_bool(bool) -> S::Ok;
        serialize_i8(i8) -> S::Ok;
        serialize_i16(i16) -> S::Ok;
        serialize_i32(i32) -> S::Ok;
        serialize_i64(i64) -> S::Ok;
        serialize_u8(u8) -> S::Ok;
        serialize_u16(u16) -> S::Ok;
        serialize_u32(u32) -> S::Ok;
        serialize_u64(u64) -> S::Ok;
        serialize_f32(f32) -> S::Ok;
        serialize_f64(f64) -> S::Ok;
        serialize_char(char) -> S::Ok;
        serialize_str(&str) -> S::Ok;
        serialize_bytes(&[u8]) -> S::Ok;
        serialize_none() -> S::Ok;
        serialize_unit() -> S::Ok;
        serialize_unit_struct(&'static str) -> S::Ok;
        serialize_unit_variant(&'static str, u32, &'static str) -> S::Ok;
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
    }

    fn serialize_some<T: ?Sized + Serialize>(self, _: &T) -> Result<S::Ok, S::Error> {
        self.serialize_none()
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: &T,
    ) -> Result<S::Ok, S::Error> {
        self.serialize_none()
    }
}

/// The members of a kind.
pub struct Members<S>(S);

impl<S: SerializeStruct> SerializeStructVariant for Members<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_field<T: ?Sized + Serialize>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), S::Error> {
        self.0.serialize_field(key, value)
    }

    fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
        self.0.skip_field(key)
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}
