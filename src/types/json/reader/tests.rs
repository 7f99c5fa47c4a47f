use super::super::in_terms_of_json;
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
struct Wrapped(u64);

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
    by_number: BTreeMap<i128, bool>,
    by_wrapped: BTreeMap<Wrapped, ()>,
    by_flag: BTreeMap<bool, ()>,
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

/// Names of variants and fields, and keys of other types.
const NAMES: &[&str] =
    &["unit", "newtype", "tuple", "struct", "side", "low", "type", "sized", "size", "1", "-1", "true", ""];

/// Any JSON, often with these names.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..9).prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        prop::sample::select(NAMES).prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 3, |inner| {
        let object = prop::collection::btree_map(prop::sample::select(NAMES), inner.clone(), 0..3);
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
            object.prop_map(|fields| json!(fields)),
        ]
    })
}

prop_compose! {
    fn whole()(
        ids in prop::collection::btree_map(".*", any::<bool>(), 0..4),
        high in any::<Option<u64>>(),
        by_number in prop::collection::btree_map(any::<i64>().prop_map(i128::from), any::<bool>(), 0..4),
        wrapped in prop::collection::vec(any::<u64>(), 0..4),
        by_flag in prop::collection::btree_map(any::<bool>(), Just(()), 0..3),
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
            by_wrapped: wrapped.into_iter().map(|number| (Wrapped(number), ())).collect(),
            by_number, by_flag,
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

    /// An array that is read as a struct is an error, too.
    #[test]
    fn errors_are_those_of_serde_json(value in value()) {
        fn errors<T: DeserializeOwned>(value: &Value) -> [Option<String>; 2] {
            let theirs = serde_json::from_value::<T>(value.clone()).err().map(|error| error.to_string());
            let ours = read::<T>(value.clone()).err().map(|(_, error)| error.to_string());
            [ours, theirs].map(|error| error.map(|error| in_terms_of_json(&error)))
        }
        for [ours, theirs] in [
            errors::<Vec<String>>(&value),
            errors::<Option<i8>>(&value),
            errors::<(i64, String)>(&value),
            errors::<BTreeMap<Id, u8>>(&value),
            errors::<Level>(&value),
            errors::<()>(&value),
            errors::<f64>(&value),
            errors::<bool>(&value),
            errors::<Tagged>(&value),
            errors::<Either>(&value),
            errors::<Value>(&value),
        ] {
            prop_assert_eq!(ours, theirs);
        }
        for [ours, theirs] in [errors::<BTreeMap<i8, Value>>(&value), errors::<BTreeMap<bool, Value>>(&value)] {
            prop_assert_eq!(ours.is_some(), theirs.is_some());
        }
        let [ours, theirs] = errors::<Shape>(&value);
        prop_assert!(ours.is_some() || theirs.is_none(), "{:?}", theirs);
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
