use super::*;
use crate::types::json::from_value;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[allow(dead_code)]
struct Order {
    items: Vec<Item>,
    #[serde(default)]
    by_year: BTreeMap<u64, i8>,
    #[serde(default)]
    way: Option<Way>,
    #[serde(default)]
    pair: (String, f64),
}

#[derive(Debug, Deserialize)]
#[allow(dead_code)]
struct Item {
    name: String,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Way {
    Sea,
    Land(String),
    Air { speed: u32 },
}

#[test]
fn reads_what_fits() {
    let order = |way| {
        let body = json!({"items": [], "by_year": {"2026": -1}, "way": way, "pair": ["x", 1], "else": 1});
        from_value::<Order>(body).expect("an order")
    };
    let read = order(json!("sea"));
    assert_eq!((read.by_year[&2026], read.pair), (-1, ("x".to_owned(), 1.0)));
    assert_eq!(read.way, Some(Way::Sea));
    assert_eq!(order(json!({"land": "by train"})).way, Some(Way::Land("by train".into())));
    assert_eq!(order(json!({"air": {"speed": 900}})).way, Some(Way::Air { speed: 900 }));
    assert_eq!(order(Value::Null).way, None);
}

#[test]
fn says_what_does_not_fit_and_where() {
    let cases = [
        (json!([]), "", "invalid type: sequence, expected an object"),
        (json!({}), "", "missing field `items`"),
        (json!({"items": [{"name": null}]}), "/items/0/name", "invalid type: null, expected a string"),
        (json!({"items": [{"name": "a"}, ["b"]]}), "/items/1", "invalid type: sequence, expected an object"),
        (
            json!({"items": [], "by_year": {"a/b": 300}}),
            "/by_year",
            "invalid type: string \"a/b\", expected u64",
        ),
        (
            json!({"items": [], "by_year": {"1": 300}}),
            "/by_year/1",
            "invalid value: integer `300`, expected i8",
        ),
        (
            json!({"items": [], "pair": ["a", 1, 2]}),
            "/pair",
            "invalid length 3, expected fewer elements in array",
        ),
        (
            json!({"items": [], "way": "moon"}),
            "/way",
            "unknown variant `moon`, expected one of `sea`, `land`, `air`",
        ),
        (json!({"items": [], "way": {"sea": 5}}), "/way", "invalid type: integer `5`, expected null"),
    ];
    for (body, pointer, detail) in cases {
        let misfit = from_value::<Order>(body.clone()).expect_err("a misfit");
        assert_eq!((misfit.pointer().as_str(), misfit.detail()), (pointer, detail), "{body}");
    }
    let misfit = from_value::<Order>(json!({"items": [{"name": 1}]})).expect_err("a misfit");
    assert_eq!(misfit.to_string(), "invalid type: integer `1`, expected a string at items[0].name");
}

#[test]
fn a_tag_that_is_no_text_is_not_missing() {
    let detail = |part| from_value::<crate::types::Part>(part).expect_err("a misfit").detail().to_owned();
    assert_eq!(detail(json!({"type": 5})), "invalid type: integer `5`, expected a string, the kind");
    assert_eq!(detail(json!({"text": "x"})), "missing field `type`");
}

#[test]
fn members_may_be_named_by_kinds() {
    use crate::types::{Category, Policy};
    let read = |value| from_value::<BTreeMap<Category, Policy>>(value);
    assert_eq!(read(json!({"edit": "ask"})).expect("a map"), [(Category::Edit, Policy::Ask)].into());
    let misfit = read(json!({"web": "ask"})).expect_err("no category");
    assert!(
        misfit.detail().starts_with("unknown variant `web`, expected one of `read`"),
        "{}",
        misfit.detail()
    );
}
