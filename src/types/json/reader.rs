//! Reads typed values from parsed JSON, and knows the place of an error.
//!
//! serde generates the code that reads a type once for each deserializer. So types are read by this one, unless their
//! speed matters, or most of the text is skipped.

#[cfg(test)]
mod tests;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor, value::StrDeserializer,
};
use serde_json::{Error, Number, Value, map};
use std::{cell::RefCell, marker::PhantomData, vec};

/// Reads `value` as a `T`.
///
/// # Errors
/// `value` is not a `T`. The error comes with the JSON Pointer to the part that does not fit.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, (String, Error)> {
    let place = Place::default();
    T::deserialize(Reader { value, place: &place }).map_err(|error| (place.pointer(), error))
}

/// The names and indexes that lead to an error, the innermost first.
#[derive(Default)]
struct Place(RefCell<Vec<String>>);

impl Place {
    fn add(&self, segment: String) {
        self.0.borrow_mut().push(segment);
    }

    fn pointer(&self) -> String {
        self.0.borrow().iter().rev().map(|segment| format!("/{}", super::escaped(segment))).collect()
    }
}

/// A value to read. What needs no type parameter is in functions of its own, so that it is compiled once.
struct Reader<'p> {
    value: Value,
    place: &'p Place,
}

impl<'p> Reader<'p> {
    fn text(self, expected: &dyn Expected) -> Result<String, Error> {
        match self.value {
            Value::String(text) => Ok(text),
            other => Err(mismatch(&other, expected)),
        }
    }

    fn items(self, expected: &dyn Expected) -> Result<Items<'p>, Error> {
        match self.value {
            Value::Array(values) => {
                Ok(Items { length: values.len(), values: values.into_iter(), place: self.place })
            }
            other => Err(mismatch(&other, expected)),
        }
    }

    fn fields(self, expected: &dyn Expected) -> Result<Fields<'p>, Error> {
        match self.value {
            Value::Object(fields) => Ok(Fields { fields: fields.into_iter(), next: None, place: self.place }),
            other => Err(mismatch(&other, expected)),
        }
    }

    fn variant(self) -> Result<Variant<'p>, Error> {
        let place = self.place;
        let mut fields = match self.value {
            Value::String(name) => return Ok(Variant { name, content: None, place }),
            Value::Object(fields) => fields.into_iter(),
            other => return Err(mismatch(&other, &"string or map")),
        };
        match (fields.next(), fields.next()) {
            (Some((name, content)), None) => Ok(Variant { name, content: Some(content), place }),
            _ => Err(Error::invalid_value(Unexpected::Map, &"map with a single key")),
        }
    }
}

/// Returns the error of a value that is not of the expected type.
fn mismatch(value: &Value, expected: &dyn Expected) -> Error {
    let found = match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(number) => match Kind::of(number) {
            Kind::Unsigned(number) => Unexpected::Unsigned(number),
            Kind::Signed(number) => Unexpected::Signed(number),
            Kind::Float(number) => Unexpected::Float(number),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    };
    Error::invalid_type(found, expected)
}

/// The types of numbers that serde distinguishes.
enum Kind {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl Kind {
    fn of(number: &Number) -> Self {
        match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Self::Unsigned(number),
            (None, Some(number)) => Self::Signed(number),
            (None, None) => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match Kind::of(&number) {
                Kind::Unsigned(number) => visitor.visit_u64(number),
                Kind::Signed(number) => visitor.visit_i64(number),
                Kind::Float(number) => visitor.visit_f64(number),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.text(&visitor)?;
        visitor.visit_string(text)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut items = self.items(&visitor)?;
        let read = visitor.visit_seq(&mut items)?;
        items.end().map(|()| read)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut fields = self.fields(&visitor)?;
        let read = visitor.visit_map(&mut fields)?;
        fields.end().map(|()| read)
    }

    // Only objects: serde would also accept an array of a struct's fields in their order.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.variant()?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

/// Implements methods of [`Deserializer`] like its `deserialize_u64`.
macro_rules! forward_to_u64 {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
                self.deserialize_u64(visitor)
            }
        )*
    };
}

/// The items of an array.
struct Items<'p> {
    /// The number of all items.
    length: usize,
    values: vec::IntoIter<Value>,
    place: &'p Place,
}

impl<'p> Items<'p> {
    fn next(&mut self) -> Option<Reader<'p>> {
        self.values.next().map(|value| Reader { value, place: self.place })
    }

    /// Adds the index of the item that was read last to the place of an error.
    fn failed(&self) {
        self.place.add((self.length - self.values.len() - 1).to_string());
    }

    /// Checks that all items were read.
    fn end(self) -> Result<(), Error> {
        match self.values.len() {
            0 => Ok(()),
            _ => Err(Error::invalid_length(self.length, &"fewer elements in array")),
        }
    }
}

// For references, so that the generated code need not drop what is left.
impl<'de> SeqAccess<'de> for &mut Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(item) = self.next() else { return Ok(None) };
        let read = seed.deserialize(item);
        if read.is_err() {
            self.failed();
        }
        read.map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.values.len())
    }
}

/// The fields of an object.
struct Fields<'p> {
    fields: map::IntoIter,
    /// The field whose name was read last.
    next: Option<(String, Value)>,
    place: &'p Place,
}

impl<'p> Fields<'p> {
    fn name(&mut self) -> Option<Name<'_>> {
        self.next = self.fields.next();
        self.next.as_ref().map(|(name, _)| Name(name))
    }

    /// Checks that all fields were read.
    fn end(self) -> Result<(), Error> {
        match self.fields.len() {
            0 => Ok(()),
            left => Err(Error::invalid_length(left, &"no more fields")),
        }
    }

    /// Adds the name of the current field to the place of an error.
    fn failed(&mut self) {
        self.place.add(self.next.take().map(|(name, _)| name).unwrap_or_default());
    }

    fn value(&mut self) -> Reader<'p> {
        let value = self.next.as_mut().map(|(_, value)| value.take()).unwrap_or_default();
        Reader { value, place: self.place }
    }
}

impl<'de> MapAccess<'de> for &mut Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.name() else { return Ok(None) };
        let read = seed.deserialize(name);
        if read.is_err() {
            self.failed();
        }
        read.map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let read = seed.deserialize(self.value());
        if read.is_err() {
            self.failed();
        }
        read
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// The name of a field. In a map whose keys are numbers or booleans, the name is the key as JSON.
struct Name<'n>(&'n str);

impl<'de> Deserializer<'de> for Name<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.parse() {
            Ok(value) => visitor.visit_bool(value),
            Err(_) => visitor.visit_str(self.0),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.parse::<Number>().as_ref().map(Kind::of) {
            Ok(Kind::Unsigned(number)) => visitor.visit_u64(number),
            Ok(Kind::Signed(number)) => visitor.visit_i64(number),
            Ok(Kind::Float(number)) => visitor.visit_f64(number),
            Err(_) => visitor.visit_str(self.0),
        }
    }

    forward_to_u64! {
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u128 deserialize_i8 deserialize_i16 deserialize_i32
        deserialize_i64 deserialize_i128 deserialize_f32 deserialize_f64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A variant of an enum, with its content if it was an object.
struct Variant<'p> {
    name: String,
    content: Option<Value>,
    place: &'p Place,
}

impl<'p> Variant<'p> {
    fn content(&mut self, expected: &str) -> Result<Reader<'p>, Error> {
        match self.content.take() {
            Some(value) => Ok(Reader { value, place: self.place }),
            None => Err(Error::invalid_type(Unexpected::UnitVariant, &expected)),
        }
    }

    /// Returns what was read of the content. Adds the variant to the place of an error.
    fn read<T>(self, read: Result<T, Error>) -> Result<T, Error> {
        if read.is_err() {
            self.place.add(self.name);
        }
        read
    }
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let name: StrDeserializer<'_, Error> = self.name.as_str().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            None => Ok(()),
            Some(_) => self.newtype_variant_seed(PhantomData),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, Error> {
        let read = seed.deserialize(self.content("newtype variant")?);
        self.read(read)
    }

    fn tuple_variant<V: Visitor<'de>>(mut self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        let read = self.content("tuple variant")?.deserialize_seq(visitor);
        self.read(read)
    }

    fn struct_variant<V: Visitor<'de>>(
        mut self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let read = self.content("struct variant")?.deserialize_map(visitor);
        self.read(read)
    }
}
