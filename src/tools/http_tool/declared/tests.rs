use super::*;
use pretty_assertions::assert_eq;
use serde_json::json;

fn checked(declared: Value) -> Result<Checked, Vec<String>> {
    let declared = serde_json::from_value(declared).expect("a declaration");
    Checked::new(declared).map_err(|faults| faults.into_iter().map(|fault| fault.pointer).collect())
}

fn request(declared: Value, args: Value) -> Result<HttpRequest, Invalid> {
    let secrets =
        BTreeMap::from([("T".to_owned(), "line\nbreak".to_owned()), ("K".to_owned(), "key".to_owned())]);
    let checked = checked(declared).unwrap_or_else(|faults| panic!("{faults:?}"));
    let args = args.as_object().expect("arguments");
    checked.request(&Values { args, secrets: &secrets }, &AllowedHosts::parse("*"))
}

#[test]
fn a_request_has_the_arguments_in_their_places() {
    let declared = json!({
        "name": "create", "method": "POST", "url": "https://a.example/{{id}}?key=${secret:K}",
        "parameters": {"properties": {"id": {"type": "string"}, "to": {}, "n": {}, "unused": {}}},
        "headers": {"Authorization": "Bearer ${secret:K}", "X-To": "{{to}}", "X-N": "{{n}}"},
        "body": {"n": "{{n}}", "to": "{{to}}"},
    });
    let sent = request(declared, json!({"id": "a/b", "n": 7, "unused": "never sent"})).expect("a request");
    assert_eq!((sent.method, &*sent.url), ("POST", "https://a.example/a%2Fb?key=key"));
    let headers: Vec<_> = sent.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let expected = [
        ("authorization", "Bearer key"),
        ("x-n", "7"),
        ("accept", "application/json, text/*;q=0.9"),
        ("content-type", "application/json"),
    ];
    assert_eq!(headers, expected);
    assert_eq!(sent.body.as_deref(), Some(br#"{"n":7}"#.as_slice()));
}

#[test]
fn headers_contain_no_control_characters() {
    let declared = |value: &str| {
        let parameters = json!({"properties": {"a": {}}});
        json!({"name": "x", "url": "https://a.example/", "headers": {"X": value}, "parameters": parameters})
    };
    for bad in ["a\r\nb: c", "a\u{0}", "a\tb", "ü"] {
        let error = request(declared("{{a}}"), json!({ "a": bad })).expect_err(bad);
        assert!(error.0.contains("`x`") && !error.0.contains(bad), "{error}");
    }
    let error = request(declared("${secret:T}"), json!({})).expect_err("a line break");
    assert!(!error.0.contains("line"), "{error}");
}

#[test]
fn faults_have_their_places() {
    let faults = checked(json!({
        "name": "a b", "description": "x".repeat(4_001), "method": "GET", "url": "https://{{host}}/",
        "parameters": {"properties": {"a": {"pattern": "x"}}}, "timeout_s": 0, "result": "items",
        "headers": {"Host": "x", "X Y": "x", "X-A": "{{a", "x-b": "1", "X-B": "2", "X-C": "a\nb"}, "body": {"a": "${secret:A-B}"},
    }));
    let mut found = faults.err().expect("faults");
    found.sort();
    let expected = [
        "/body",
        "/body/a",
        "/description",
        "/headers/Host",
        "/headers/X Y",
        "/headers/X-A",
        "/headers/X-C",
        "/headers/x-b",
        "/name",
        "/parameters/properties/a/pattern",
        "/result",
        "/timeout_s",
        "/url",
    ];
    assert_eq!(found, expected);
    let unknown = checked(json!({
        "name": "a", "method": "PUT", "url": "https://a.example/{{x}}?{{a}}", "body": ["{{y}}"], "headers": {"Z": "{{z}}"},
        "parameters": {"properties": {"a": {}, "b c": {}}},
    }));
    assert_eq!(
        unknown.err().expect("faults"),
        ["/parameters/properties/b c", "/url", "/headers/z", "/body/0"]
    );
}

#[test]
fn the_method_gives_the_defaults() {
    let spec = |declared: Value| checked(declared).unwrap_or_else(|faults| panic!("{faults:?}")).spec;
    let read = spec(json!({"name": "a", "url": "https://a.example/"}));
    assert_eq!(
        (read.effect, read.category, read.idempotent, read.varies),
        (Effect::NetworkRead, Category::Other, true, true)
    );
    let write = spec(json!({"name": "a", "url": "https://a.example/", "method": "PUT"}));
    assert_eq!(
        (write.effect, write.idempotent, write.retry_on_timeout, write.varies),
        (Effect::Destructive, false, false, false)
    );
    let own = json!({"name": "a", "url": "https://a.example/", "method": "POST", "effect": "network", "category": "read", "idempotent": true});
    let own = spec(own);
    assert_eq!((own.effect, own.category, own.idempotent), (Effect::Network, Category::Read, true));
}

#[test]
fn only_allowed_hosts_get_requests() {
    let of =
        |url: &str| checked(json!({"name": "a", "url": url})).unwrap_or_else(|faults| panic!("{faults:?}"));
    let any = AllowedHosts::parse("*");
    assert!(of("https://a.example.com/").check_host(&any).is_ok());
    for bad in [
        "http://a.example.com/",
        "https://127.0.0.1/",
        "https://localhost/",
        "https://a.example.com:8443/",
        "https://u:p@a.example.com/",
    ] {
        assert!(of(bad).check_host(&any).is_err(), "{bad}");
    }
    let own = AllowedHosts::parse("127.0.0.1:4000");
    assert!(of("http://127.0.0.1:4000/x").check_host(&own).is_ok());
    assert!(of("https://a.example.com/").check_host(&own).is_err());
}
