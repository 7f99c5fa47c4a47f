#![allow(clippy::unwrap_used)]

use super::*;
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::json;

fn details(schema: Value, value: Value) -> Vec<String> {
    violations(&schema, &value)
        .into_iter()
        .map(|violation| format!("{}: {}", violation.pointer, violation.detail))
        .collect()
}

#[test]
fn violations_have_pointers() {
    let schema = json!({
        "type": "object",
        "required": ["name", "tags"],
        "properties": {
            "name": {"type": "string", "minLength": 2},
            "age": {"type": ["integer", "null"], "minimum": 0},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2, "uniqueItems": true},
            "a/b": {"$ref": "#/$defs/step"}
        },
        "additionalProperties": false,
        "$defs": {"step": {"multipleOf": 0.1}}
    });
    assert_eq!(
        details(schema.clone(), json!({"name": "Zoë", "age": 3.0, "tags": ["a"], "a/b": 0.3})),
        [""; 0]
    );
    assert_eq!(
        details(
            schema.clone(),
            json!({"name": "Z", "age": -1, "tags": ["a", "c", "a"], "a/b": 0.25, "x": 1})
        ),
        [
            "/a~1b: expected a multiple of 0.1",
            "/age: expected at least 0",
            "/name: expected at least 2 characters, found 1",
            "/tags: expected at most 2 items, found 3",
            "/tags: expected unique items",
            "/tags/1: expected one of \"a\", \"b\"",
            "/x: no value is allowed here",
        ]
    );
    assert_eq!(details(schema, json!([])), [": expected object, found array"]);
}

#[test]
fn the_violations_of_the_closest_alternative_are_reported() {
    let schema = json!({"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"], "properties": {"b": {"const": 1}}}]});
    assert_eq!(
        details(schema, json!({"b": 2})),
        [": matches none of 2 alternatives", ": expected string, found object"]
    );
    let schema = json!({"oneOf": [{"type": "number"}, {"type": "integer"}]});
    assert_eq!(details(schema.clone(), json!(1)), [": expected to match exactly one alternative, matches 2"]);
    assert_eq!(details(schema, json!(1.5)), [""; 0]);
}

#[test]
fn depth_work_and_violations_are_bounded() {
    let list = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
    let nested = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({"next": inner}));
    assert_eq!(details(list.clone(), nested(20)), [""; 0]);
    let too_much = [": too large or too deeply nested to check"];
    assert_eq!(details(list, nested(100)), too_much);
    // The work doubles at each level, and `not` must not turn an unchecked value into a match.
    let circle = json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}});
    assert_eq!(details(circle, json!(1)), too_much);
    assert_eq!(violations(&json!({"items": false}), &json!(vec![0; 100])).len(), 32);
}

#[test]
fn work_grows_with_the_size_of_the_input() {
    let all_of = |schema: Value, times: usize| json!({ "allOf": vec![schema; times] });
    let numbers: Vec<u32> = (0..5_000).collect();
    let nodes = json!(vec![json!({"a": [1, 2, 3]}); 5_000]);
    let long = |end: usize| format!("{}{end}", "x".repeat(50_000));
    let members: Map<String, Value> = (0..9_000).map(|n: u32| (n.to_string(), json!(n))).collect();
    for (schema, value) in [
        (json!({"items": {"enum": numbers}}), json!(numbers)),
        (json!({"items": {"enum": (0..10).map(long).collect::<Vec<_>>()}}), json!(vec![long(9); 100])),
        (all_of(json!({ "const": nodes }), 100), nodes.clone()),
        (all_of(json!({"uniqueItems": true}), 1_000), json!((0..5_000).map(|n| [n]).collect::<Vec<_>>())),
        (all_of(json!({"minLength": 1}), 1_500), json!(long(0))),
        (all_of(json!({"additionalProperties": true}), 1_000), Value::Object(members)),
        (all_of(json!({"additionalProperties": {}}), 2_000), json!({ long(0): 1 })),
        (json!({"items": all_of(json!(true), 9_000)}), json!(vec![1; 100])),
    ] {
        assert_eq!(details(schema, value), [": too large or too deeply nested to check"]);
    }
    // Each tried alternative copies the value.
    let alternatives = |times: usize| {
        let mut schemas = vec![json!({"properties": {"n": {"type": "null"}}}); times];
        schemas.push(json!({"properties": {"n": {"type": "integer"}}}));
        json!({ "anyOf": schemas })
    };
    let value = json!({"nodes": nodes, "n": "5"});
    assert_eq!(coerced(alternatives(3), value.clone()).unwrap()["n"], json!(5));
    assert_eq!(coerced(alternatives(800), value), None);
}

#[test]
fn the_form_of_a_schema_is_checked_without_its_support() {
    for schema in [
        json!({"properties": {"a": {"pattern": "^a", "$ref": "https://example.com/a.json"}}}),
        json!({"if": {"required": ["a"]}, "properties": {"a": {"$id": "https://example.com/a"}}}),
    ] {
        assert!(check(&schema).is_err() && check_form(&schema).is_ok(), "{schema}");
    }
    for schema in [
        json!({"properties": 7}),
        json!({"properties": {"a": {"type": "text"}}}),
        json!({"required": [1]}),
        json!({"$ref": "#/nowhere"}),
        json!({"$ref": 7}),
    ] {
        assert!(check_form(&schema).is_err(), "{schema}");
    }
}

#[test]
fn unsupported_schemas_are_rejected() {
    let refused = |schema: Value| check(&schema).map_err(|violation| (violation.pointer, violation.detail));
    for good in [
        json!(true),
        json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "format": "email", "x-y": {"if": 1}}),
        json!({"type": "array", "items": {"$ref": "#/$defs/node"}, "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}}),
        json!({"properties": {"pattern": {"type": "string"}}, "default": {"pattern": 1}, "maxLength": 3.0}),
    ] {
        assert_eq!(refused(good), Ok(()));
    }
    for (bad, pointer) in [
        (json!("x"), ""),
        (json!({"properties": {"a": {"pattern": "^x"}}}), "/properties/a/pattern"),
        (json!({"anyOf": [{"type": "string"}, {"if": true}]}), "/anyOf/1/if"),
        (json!({"patternProperties": {}}), "/patternProperties"),
        (json!({"type": "text"}), "/type"),
        (json!({"type": []}), "/type"),
        (json!({"items": [{}]}), "/items"),
        (json!({"required": true}), "/required"),
        (json!({"multipleOf": 0}), "/multipleOf"),
        (json!({"minLength": -1}), "/minLength"),
        (json!({"exclusiveMinimum": true}), "/exclusiveMinimum"),
        (json!({"$ref": "https://example.com/x"}), "/$ref"),
        (json!({"$ref": "#/$defs/none"}), "/$ref"),
        (json!({"$ref": "#/x-more/a", "x-more": {"a": {"contains": {}}}}), "/x-more/a/contains"),
        (json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}), "/$defs/a/$ref"),
        (json!({"properties": {"a~/b": {"$id": "x"}}}), "/properties/a~0~1b/$id"),
        ((0..80).fold(json!({}), |inner, _| json!({"not": inner})), &"/not".repeat(64)),
    ] {
        assert_eq!(refused(bad).unwrap_err().0, pointer);
    }
    let detail = refused(json!({"pattern": "x"})).unwrap_err().1;
    assert!(detail.starts_with("`pattern` is not supported; supported keywords: type, enum"), "{detail}");
}

#[track_caller]
fn coerced(schema: Value, mut value: Value) -> Option<Value> {
    coerce(&schema, &mut value).then_some(value)
}

#[test]
fn lossless_conversions_are_applied() {
    let of = |kind: &str| json!({ "type": kind });
    for (kind, from, to) in [
        ("integer", json!("5"), json!(5)),
        ("integer", json!("-12"), json!(-12)),
        ("integer", json!(5.0), json!(5)),
        ("number", json!("1.5"), json!(1.5)),
        ("boolean", json!("true"), json!(true)),
        ("string", json!(5), json!("5")),
        ("string", json!(u64::MAX), json!("18446744073709551615")),
        ("string", json!(false), json!("false")),
        ("object", json!("{\"b\": 1, \"a\": [\"x y\"]}"), json!({"a": ["x y"], "b": 1})),
        ("array", json!("[1, 2]"), json!([1, 2])),
        ("array", json!("x"), json!(["x"])),
        ("array", json!(0), json!([0])),
    ] {
        assert_eq!(coerced(of(kind), from), Some(to));
    }
    for (kind, same) in [
        ("integer", json!("05")),
        ("integer", json!(" 5")),
        ("integer", json!("5e3")),
        ("integer", json!("5.0")),
        ("integer", json!(5.5)),
        ("number", json!("1.50")),
        ("number", json!("12345678901234567890123")),
        ("number", json!(5.0)),
        ("boolean", json!("yes")),
        ("boolean", json!(1)),
        ("string", json!(1.10)),
        ("string", json!(1e2)),
        ("string", serde_json::from_str("12345678901234567890123").unwrap()),
        ("string", json!(null)),
        ("string", json!({})),
        ("object", json!("{\"a\": 1, \"a\": 2}")),
        ("object", json!([])),
        ("array", json!(format!("{}{}", "[".repeat(65), "]".repeat(65)))),
        ("array", json!(null)),
        ("array", json!({})),
    ] {
        assert_eq!(coerced(of(kind), same), None);
    }
}

#[test]
fn coercion_is_recursive_and_all_or_nothing() {
    let schema = json!({
        "type": "object",
        "required": ["must"],
        "properties": {
            "must": {"type": ["null", "string"]},
            "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "list": {"type": "array", "items": {"$ref": "#/$defs/flag"}},
            "gone": {"type": "string"}
        },
        "additionalProperties": {"type": "number"},
        "$defs": {"flag": {"type": "boolean"}}
    });
    assert_eq!(
        coerced(
            schema.clone(),
            json!({"must": null, "n": "7", "list": "[\"true\", false]", "gone": null, "more": "0.5"})
        ),
        Some(json!({"must": null, "n": 7, "list": [true, false], "more": 0.5}))
    );
    assert_eq!(
        coerced(schema.clone(), json!({"must": null, "n": null, "list": "true"})).unwrap()["n"],
        json!(null)
    );
    assert_eq!(coerced(schema, json!({"n": "7"})), None);
    let single = json!({"oneOf": [{"type": "integer"}, {"type": "boolean"}]});
    assert_eq!(coerced(single, json!("true")), Some(json!(true)));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..4i64).prop_map(Value::from),
        (-6..7i32).prop_map(|half| json!(f64::from(half) / 2.0)),
        prop::sample::select(vec!["", "a", "bé", "5", "1.5", "true", "[1]", "{\"a\":1}"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn kinds() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["null", "boolean", "integer", "number", "string", "array", "object"])
}

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        kinds().prop_map(|kind| json!({ "type": kind })),
        prop::collection::btree_set(kinds(), 1..3).prop_map(|kinds| json!({ "type": kinds })),
        prop::collection::vec(values(), 1..3).prop_map(|values| json!({ "enum": values })),
        values().prop_map(|value| json!({ "const": value })),
        (-3..4i64, 0..4i64).prop_map(|(low, more)| json!({"minimum": low, "exclusiveMaximum": low + more})),
        (-3..4i64, 1..4i64).prop_map(|(high, step)| json!({"maximum": high, "multipleOf": step})),
        (-6..7i32).prop_map(|half| json!({"exclusiveMinimum": f64::from(half) / 2.0, "multipleOf": 0.5})),
        (0..3u64, 0..3u64).prop_map(|(min, more)| json!({"minLength": min, "maxLength": min + more})),
        (0..3u64, 0..3u64).prop_map(|(min, more)| json!({"minItems": min, "maxItems": min + more})),
        (0..3u64, 0..3u64).prop_map(|(min, more)| json!({"minProperties": min, "maxProperties": min + more})),
        Just(json!({"uniqueItems": true})),
        prop::collection::btree_set("[abc]", 0..3).prop_map(|names| json!({ "required": names })),
        Just(json!({"$ref": "#/$defs/shared"})),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            (prop::collection::btree_map("[abc]", inner.clone(), 0..3), inner.clone()).prop_map(
                |(properties, rest)| {
                    let required: Vec<_> = properties.keys().take(1).cloned().collect();
                    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": rest})
                }
            ),
            (some(), inner.clone()).prop_map(|(first, rest)| json!({"type": "array", "prefixItems": first, "items": rest})),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            inner.clone().prop_map(|schema| json!({ "not": schema })),
            some().prop_map(|schemas| json!({ "allOf": schemas })),
            some().prop_map(|schemas| json!({ "anyOf": schemas })),
            some().prop_map(|schemas| json!({ "oneOf": schemas })),
        ]
    })
}

/// Returns a schema with definitions that it may refer to.
fn documents() -> impl Strategy<Value = Value> {
    let others = kinds().prop_filter("named twice", |kind| *kind != "array");
    (schemas(), others).prop_map(|(schema, kind)| {
        json!({"allOf": [schema], "$defs": {"shared": {"type": ["array", kind], "items": {"$ref": "#/$defs/shared"}}}})
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_reference_validator(schema in documents(), value in values()) {
        let oracle = jsonschema::draft202012::new(&schema).unwrap();
        prop_assert_eq!(violations(&schema, &value).is_empty(), oracle.is_valid(&value));
        prop_assert_eq!(check(&schema), Ok(()));
    }

    #[test]
    fn coerced_values_conform_and_stay_unchanged(schema in documents(), value in values()) {
        let mut coerced = value.clone();
        if coerce(&schema, &mut coerced) {
            prop_assert_eq!(violations(&schema, &coerced), Vec::new());
            prop_assert!(coerced != value);
        } else {
            prop_assert_eq!(&coerced, &value);
        }
        // A conforming value stays equal.
        if violations(&schema, &value).is_empty() {
            prop_assert_eq!(same(&coerced, &value, &mut MAX_WORK.clone()), Some(true));
        }
        prop_assert!(!coerce(&schema, &mut coerced), "coerced twice: {}", coerced);
    }

    #[test]
    fn invalid_schemas_do_not_panic(schema in values(), value in values()) {
        let mut coerced = value.clone();
        let _ = (violations(&schema, &value), check(&schema), coerce(&schema, &mut coerced));
    }
}

#[test]
fn work_is_bounded_for_any_spelling_of_references() {
    // Many references point to the same large schema, each spelled differently. A checker that visits it once
    // per spelling would visit 60 million schemas.
    let targets: Vec<Value> = (0..15_000).map(|_| json!({"type": "null"})).collect();
    let spelled = |n: usize| {
        let letters = (0..12).map(|bit| if n >> bit & 1 == 1 { "%61" } else { "a" });
        json!({"$ref": format!("#/{}", letters.collect::<String>())})
    };
    let references: Vec<Value> = (0..4_096).map(spelled).collect();
    let schema = json!({"allOf": references, "aaaaaaaaaaaa": {"anyOf": targets}});
    assert_eq!(check(&schema), Ok(()));
    // Each target starts a chain of references.
    let chain: serde_json::Map<String, Value> =
        (0..1_000).map(|n| (n.to_string(), json!({"$ref": format!("#/$defs/{}", n + 10)}))).collect();
    let schema = json!({"$defs": chain});
    assert_eq!(check(&schema).map_err(|violation| violation.detail), Err("the reference is circular".into()));
    let short = (0..1_000).map(|n| (n.to_string(), json!({"$ref": format!("#/$defs/{}", n + 20 - n % 20)})));
    let mut schema = json!({"$defs": short.take(40).collect::<serde_json::Map<_, _>>()});
    schema["$defs"]["40"] = json!(true);
    assert_eq!(check(&schema), Ok(()));
    let huge: Vec<Value> = vec![json!({}); 600_000];
    let violation = check(&json!({"anyOf": huge})).unwrap_err();
    assert_eq!(violation.detail, "the schema is too large to check");
}
