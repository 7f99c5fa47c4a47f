//! Reads typed values from parsed JSON, and knows the place of an error.
//!
//! serde generates the code that reads a type once for each deserializer, so all types are read by this one, unless
//! their speed matters. Three deserializers of `serde_json` (for text, bytes and values), and one around them that knows
//! the place of an error, took a sixth of the Worker.

use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected,
    IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor, value::StrDeserializer,
};
use serde_json::{Error, Number, Value, map};
use std::{cell::RefCell, vec};

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
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char bytes byte_buf unit unit_struct
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
        visitor.visit_map(&mut fields)
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
    fn name(&mut self) -> Option<StrDeserializer<'_, Error>> {
        self.next = self.fields.next();
        self.next.as_ref().map(|(name, _)| name.as_str().into_deserializer())
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

/// A variant of an enum, with its content if it was an object.
struct Variant<'p> {
    name: String,
    content: Option<Value>,
    place: &'p Place,
}

impl<'p> Variant<'p> {
    fn content(&mut self) -> Reader<'p> {
        Reader { value: self.content.take().unwrap_or_default(), place: self.place }
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

    fn unit_variant(mut self) -> Result<(), Error> {
        // Without content, this is null, which is what a unit is read from.
        let read = Deserialize::deserialize(self.content());
        self.read(read)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, Error> {
        if self.content.is_none() {
            return Err(Error::invalid_type(Unexpected::UnitVariant, &"newtype variant"));
        }
        let read = seed.deserialize(self.content());
        self.read(read)
    }

    fn tuple_variant<V: Visitor<'de>>(mut self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        let read = self.content().deserialize_seq(visitor);
        self.read(read)
    }

    fn struct_variant<V: Visitor<'de>>(
        mut self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let read = self.content().deserialize_map(visitor);
        self.read(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};
    use serde_json::json;
    use std::{collections::BTreeMap, rc::Rc};

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(transparent)]
    struct Id(Rc<str>);

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Level {
        Low,
        High,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Shape {
        Unit,
        Newtype(f64),
        Tuple(u8, String),
        Struct { side: i64 },
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Tagged {
        Empty,
        Sized { size: u32 },
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
        Many(Vec<Either>),
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Whole {
        by_id: BTreeMap<Id, Level>,
        by_level: BTreeMap<Level, u64>,
        shapes: Vec<Shape>,
        pair: (bool, Option<i64>),
        nothing: (),
        letter: char,
        tagged: Vec<Tagged>,
        either: Either,
        any: Value,
        #[serde(flatten)]
        more: BTreeMap<String, Value>,
    }

    fn shape() -> impl Strategy<Value = Shape> {
        prop_oneof![
            Just(Shape::Unit),
            (-1e9..1e9).prop_map(Shape::Newtype),
            (any::<u8>(), ".*").prop_map(|(size, name)| Shape::Tuple(size, name)),
            any::<i64>().prop_map(|side| Shape::Struct { side }),
        ]
    }

    fn either() -> impl Strategy<Value = Either> {
        let leaf = prop_oneof![any::<i64>().prop_map(Either::Number), ".*".prop_map(Either::Text)];
        leaf.prop_recursive(3, 20, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Either::Many))
    }

    prop_compose! {
        fn whole()(
            ids in prop::collection::btree_map(".*", any::<bool>(), 0..4),
            high in any::<Option<u64>>(),
            shapes in prop::collection::vec(shape(), 0..4),
            pair in any::<(bool, Option<i64>)>(),
            letter in any::<char>(),
            sizes in prop::collection::vec(any::<Option<u32>>(), 0..4),
            either in either(),
            more in prop::collection::btree_map("more.*", any::<f32>(), 0..4),
        ) -> Whole {
            let level = |high| if high { Level::High } else { Level::Low };
            let tagged = |size: Option<u32>| size.map_or(Tagged::Empty, |size| Tagged::Sized { size });
            Whole {
                by_id: ids.into_iter().map(|(id, high)| (Id(id.into()), level(high))).collect(),
                by_level: high.into_iter().map(|count| (Level::High, count)).collect(),
                any: json!({"shapes": shapes, "either": either}),
                shapes, pair, nothing: (), letter, either,
                tagged: sizes.into_iter().map(tagged).collect(),
                more: more.into_iter().map(|(name, number)| (name, json!(number))).collect(),
            }
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(written in whole()) {
            let value = serde_json::to_value(&written).expect("a value");
            prop_assert_eq!(read::<Whole>(value).expect("the same"), written);
        }

        /// Texts of any other form get the same errors as from `serde_json`, unless an array is read as a struct.
        #[test]
        fn errors_are_those_of_serde_json(either in either()) {
            let value = serde_json::to_value(&either).expect("a value");
            fn same<T: DeserializeOwned>(value: &Value) -> Result<(), TestCaseError> {
                let theirs = serde_json::from_value::<T>(value.clone()).err().map(|error| error.to_string());
                let ours = read::<T>(value.clone()).err().map(|(_, error)| error.to_string());
                prop_assert_eq!(ours, theirs);
                Ok(())
            }
            same::<Vec<String>>(&value)?;
            same::<Option<i8>>(&value)?;
            same::<(i64, String)>(&value)?;
            same::<BTreeMap<Id, u8>>(&value)?;
            same::<Shape>(&value)?;
            same::<Level>(&value)?;
            same::<()>(&value)?;
            same::<f64>(&value)?;
            same::<bool>(&value)?;
        }
    }

    #[test]
    fn structs_are_only_read_from_objects() {
        let (place, error) = read::<Vec<Shape>>(json!([{"struct": [1]}])).expect_err("an array");
        assert_eq!(
            (place.as_str(), error.to_string().starts_with("invalid type: sequence")),
            ("/0/struct", true)
        );
    }

    #[test]
    fn errors_in_names_and_contents_have_their_place() {
        for (value, place) in [
            (json!({"by_id": {"a/b": "mid"}}), "/by_id/a~1b"),
            (json!({"by_level": {"mid": 1}}), "/by_level/mid"),
            (json!({"shapes": ["unit", {"tuple": [1, 2]}]}), "/shapes/1/tuple/1"),
            (json!({"shapes": [{"unit": 1}]}), "/shapes/0/unit"),
            (json!({"shapes": ["newtype"]}), "/shapes/0"),
            (json!({"shapes": [{"unit": null, "tuple": null}]}), "/shapes/0"),
            (json!({"pair": [true, 1, 2]}), "/pair"),
        ] {
            #[derive(Debug, Deserialize)]
            #[allow(dead_code)]
            struct Parts {
                #[serde(default)]
                by_id: BTreeMap<Id, Level>,
                #[serde(default)]
                by_level: BTreeMap<Level, u64>,
                #[serde(default)]
                shapes: Vec<Shape>,
                #[serde(default)]
                pair: (bool, Option<i64>),
            }
            let (found, error) = read::<Parts>(value.clone()).expect_err("an error");
            assert_eq!(found, place, "{value}: {error}");
        }
    }
}
