//! The one way from a JSON value to a type.
//!
//! Each deserializer makes its own copy of the code of every type that is read by it. One for all of
//! them, which knows JSON only and lets a struct be an object only, keeps the Worker small. It also
//! knows where it stands, for whoever sent what does not fit.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde_json::{Number, Value, map};
use std::{fmt, mem, vec};

/// A value that is not of the shape that was asked for. Boxed: it may be the outcome of each field.
#[derive(Debug)]
pub struct Misfit(Box<Found>);

#[derive(Debug)]
struct Found {
    detail: String,
    /// The way to it, innermost step first.
    way: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Member(String),
    Item(usize),
}

impl Misfit {
    /// What is wrong.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Where, as a JSON pointer; empty for the whole.
    pub fn pointer(&self) -> String {
        let mut out = String::new();
        for step in self.0.way.iter().rev() {
            out.push('/');
            match step {
                Step::Item(index) => out.push_str(&index.to_string()),
                Step::Member(key) => out.push_str(&key.replace('~', "~0").replace('/', "~1")),
            }
        }
        out
    }

    /// Where, as people write it: `files[0].path`; a dot for the whole.
    pub fn path(&self) -> String {
        let mut out = String::new();
        for step in self.0.way.iter().rev() {
            match step {
                Step::Item(index) => out.push_str(&format!("[{index}]")),
                Step::Member(key) => {
                    if !out.is_empty() {
                        out.push('.');
                    }
                    out.push_str(key);
                }
            }
        }
        if out.is_empty() { ".".to_owned() } else { out }
    }

    fn within(mut self, step: Step) -> Self {
        self.0.way.push(step);
        self
    }

    pub(super) fn unexpected(found: &Value, expected: &dyn Expected) -> Self {
        let found = match found {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => Unexpected::Unsigned(number),
                (None, Some(number)) => Unexpected::Signed(number),
                (None, None) => Unexpected::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        Self::invalid_type(found, expected)
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.detail)?;
        if self.0.way.is_empty() { Ok(()) } else { write!(f, " at {}", self.path()) }
    }
}

impl std::error::Error for Misfit {}

impl Error for Misfit {
    fn custom<T: fmt::Display>(detail: T) -> Self {
        Self(Box::new(Found { detail: detail.to_string(), way: Vec::new() }))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match found {
            Unexpected::Unit => Self::custom(format_args!("invalid type: null, expected {expected}")),
            found => Self::custom(format_args!("invalid type: {found}, expected {expected}")),
        }
    }
}

/// Methods that do what another one does.
macro_rules! same {
    ($method:ident: $($name:ident)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            self.$method(visitor)
        })*
    };
}

/// A value that is being read.
pub struct Reader(pub Value);

impl<'de> Deserializer<'de> for Reader {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(_) => self.deserialize_f64(visitor),
            Value::String(text) => visitor.visit_string(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Bool(value) => visitor.visit_bool(value),
            other => Err(Misfit::unexpected(&other, &visitor)),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.0 {
            Value::Number(number) => visit_number(number, visitor),
            other => Err(Misfit::unexpected(other, &visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::String(text) => visitor.visit_string(text),
            other => Err(Misfit::unexpected(&other, &visitor)),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.0 {
            Value::String(text) => visitor.visit_str(text),
            other => Err(Misfit::unexpected(other, &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.0 {
            Value::Null => visitor.visit_unit(),
            other => Err(Misfit::unexpected(other, &visitor)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let Value::Array(items) = self.0 else { return Err(Misfit::unexpected(&self.0, &visitor)) };
        let mut items = Items { rest: items.into_iter(), read: 0 };
        let value = visitor.visit_seq(&mut items)?;
        match items.rest.len() {
            0 => Ok(value),
            more => Err(Misfit::invalid_length(items.read + more, &"fewer elements in array")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Object(members) => {
                visitor.visit_map(Members { rest: members.into_iter(), current: Default::default() })
            }
            other => Err(Misfit::unexpected(&other, &visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Object(_) => self.deserialize_map(visitor),
            // A type's Rust name means nothing to whoever sent this.
            other => Err(Misfit::unexpected(&other, &"an object")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let (name, content) = match self.0 {
            Value::String(name) => (name, Value::Null),
            Value::Object(members) if members.len() == 1 => members.into_iter().next().unwrap_or_default(),
            other => return Err(Misfit::unexpected(&other, &visitor)),
        };
        visitor.visit_enum(Kind { name, content })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { bytes byte_buf unit_struct tuple_struct }
    same! { deserialize_f64: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
    deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 }
    same! { deserialize_string: deserialize_str deserialize_char }
}

struct Items {
    rest: vec::IntoIter<Value>,
    read: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some(item) = self.rest.next() else { return Ok(None) };
        self.read += 1;
        match seed.deserialize(Reader(item)) {
            Ok(item) => Ok(Some(item)),
            Err(misfit) => Err(misfit.within(Step::Item(self.read - 1))),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Members {
    rest: map::IntoIter,
    /// The member that is being read.
    current: (String, Value),
}

// Apart from the methods below, of which each type has a copy.
impl Members {
    #[inline(never)]
    fn key(&mut self) -> Option<Key<'_>> {
        self.current = self.rest.next()?;
        Some(Key(&self.current.0))
    }

    #[inline(never)]
    fn value(&mut self) -> Reader {
        Reader(self.current.1.take())
    }

    #[inline(never)]
    fn locate(&mut self, misfit: Misfit) -> Misfit {
        misfit.within(Step::Member(mem::take(&mut self.current.0)))
    }
}

impl<'de> MapAccess<'de> for Members {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        self.key().map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        seed.deserialize(self.value()).map_err(|misfit| self.locate(misfit))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A member's key: text, a whole number in it, or the name of a kind that holds nothing.
struct Key<'a>(&'a str);

impl<'de> Deserializer<'de> for Key<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_str(self.0)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0.parse() {
            Ok(number) => visitor.visit_u64(number),
            Err(_) => Err(Misfit::invalid_type(Unexpected::Str(self.0), &visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_enum(Kind { name: self.0.to_owned(), content: Value::Null })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// One of the kinds of an enum: its name, and what it holds.
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) content: Value,
}

impl<'de> EnumAccess<'de> for Kind {
    type Error = Misfit;
    type Variant = Reader;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Reader), Misfit> {
        Ok((seed.deserialize(Key(&self.name))?, Reader(self.content)))
    }
}

impl<'de> VariantAccess<'de> for Reader {
    type Error = Misfit;

    fn unit_variant(self) -> Result<(), Misfit> {
        match &self.0 {
            Value::Null => Ok(()),
            other => Err(Misfit::unexpected(other, &"null")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Misfit> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.deserialize_map(visitor)
    }
}

fn visit_number<'de, V: Visitor<'de>>(number: &Number, visitor: V) -> Result<V::Value, Misfit> {
    match (number.as_u64(), number.as_i64()) {
        (Some(number), _) => visitor.visit_u64(number),
        (None, Some(number)) => visitor.visit_i64(number),
        (None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
