//! Tenants and keys.

use crate::stage::{ADMIN, Stage, delete, get, ids, post, request};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

fn secret_set() -> Value {
    json!({ "keys": [{ "kty": "oct", "kid": "s", "alg": "HS256", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA" }] })
}

#[test]
fn tenants_are_created_listed_updated_and_shown_without_secrets() {
    let stage = Stage::new();
    let jwt = json!({ "issuer": "https://id.example", "audience": "app", "jwks": secret_set() });
    let made = stage.answer(
        post("/v1/admin/tenants").bearer(ADMIN).json(&json!({ "id": "acme", "name": "Acme", "jwt": jwt })),
    );
    let shown = json!({
        "id": "acme", "name": "Acme", "created_at": "2026-11-20T12:00:00.000Z", "shard": "DB",
        "jwt": {
            "issuer": "https://id.example", "audience": "app", "any_audience": false,
            "max_scopes": ["chat", "read"], "jwks_url": null,
            "jwks": { "keys": [{ "kty": "oct", "kid": "s", "alg": "HS256" }] },
        },
    });
    assert_eq!((made.status, &made.body), (201, &shown));
    let mut one = stage.answer(get("/v1/admin/tenants/acme").bearer(ADMIN)).body;
    assert_eq!(one.as_object_mut().and_then(|one| one.remove("storage")).unwrap()["files"], 0);
    assert_eq!(one, shown);
    let again = stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&json!({ "id": "acme" })));
    assert_eq!(again.code(), (409, "already_exists"));

    let stored = block_on(stage.gateway.directory.tenant(&"acme".into())).unwrap().unwrap();
    assert!(!serde_json::to_string(&stored).unwrap().contains("c2VjcmV0"), "encrypted at rest");

    let path = "/v1/admin/tenants/acme";
    let named = stage.answer(request("PATCH", path).bearer(ADMIN).json(&json!({ "name": "New" })));
    assert_eq!((&named.body["name"], &named.body["jwt"]), (&json!("New"), &shown["jwt"]));
    let cut = stage.answer(request("PATCH", path).bearer(ADMIN).json(&json!({ "jwt": null })));
    assert_eq!((cut.status, cut.body.get("jwt")), (200, None));

    for id in ["b", "c"] {
        stage.tenant(id, Value::Null);
    }
    let first = stage.answer(get("/v1/admin/tenants?limit=2").bearer(ADMIN));
    assert_eq!(ids(&first), ["acme", "b"]);
    let next = format!("/v1/admin/tenants?limit=2&cursor={}", first.text("next_cursor"));
    assert_eq!(ids(&stage.answer(get(&next).bearer(ADMIN))), ["c"]);
    for (method, path) in
        [("GET", "x"), ("PATCH", "x"), ("DELETE", "x"), ("GET", "x/keys"), ("POST", "x/keys")]
    {
        let ask = request(method, &format!("/v1/admin/tenants/{path}")).bearer(ADMIN).json(&json!({}));
        assert_eq!(stage.answer(ask).code(), (404, "not_found"), "{method} {path}");
    }
}

#[test]
fn invalid_tenants_are_refused_with_a_pointer() {
    let stage = Stage::new();
    // The settings of tokens, merged with `changes`.
    let jwt = |changes: Value| {
        let mut jwt = json!({ "issuer": "i", "audience": "app" });
        jwt.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({ "jwt": jwt })
    };
    let rejects = [
        (json!({ "id": "a b" }), "/id"),
        (json!({ "name": "" }), "/name"),
        (json!({ "name": 1 }), "/name"),
        (json!({ "shard": "DB_2" }), "/shard"),
        (json!({ "shard": "" }), "/shard"),
        (json!({ "shard": 1 }), "/shard"),
        (json!({ "id": "dev", "shard": "DB" }), "/shard"),
        (json!({ "jwt": { "issuer": "" , "jwks": secret_set() } }), "/jwt/issuer"),
        (jwt(json!({})), "/jwt"),
        (jwt(json!({ "jwks_url": "http://id.example/keys" })), "/jwt/jwks_url"),
        (jwt(json!({ "jwks_url": "http://localhost.evil/keys" })), "/jwt/jwks_url"),
        (jwt(json!({ "jwks_url": "http://localhost@evil/keys" })), "/jwt/jwks_url"),
        (jwt(json!({ "jwks": { "keys": [] } })), "/jwt/jwks/keys"),
        (jwt(json!({ "jwks": { "keys": [{ "kty": "oct", "k": "c2hvcnQ" }] } })), "/jwt/jwks/keys/0"),
        (json!({ "jwt": { "issuer": "i", "jwks": secret_set() } }), "/jwt/audience"),
        (jwt(json!({ "audience": null, "any_audience": false, "jwks": secret_set() })), "/jwt/audience"),
        (jwt(json!({ "audience": "", "jwks": secret_set() })), "/jwt/audience"),
        (jwt(json!({ "any_audience": true, "jwks": secret_set() })), "/jwt/any_audience"),
        (jwt(json!({ "any_audience": "yes", "jwks": secret_set() })), "/jwt/any_audience"),
        (jwt(json!({ "max_scopes": [], "jwks": secret_set() })), "/jwt/max_scopes"),
        (jwt(json!({ "max_scopes": ["root"], "jwks": secret_set() })), "/jwt/max_scopes/0"),
    ];
    for (body, pointer) in rejects {
        let answer = stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&body));
        assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!(pointer)), "{body}");
    }
    let local = json!({ "issuer": "i", "any_audience": true, "jwks_url": "http://127.0.0.1:8080/keys" });
    stage.tenant("local", local);
    for (body, pointer) in [
        (json!({ "scopes": [] }), "/scopes"),
        (json!({ "scopes": ["root"] }), "/scopes/0"),
        (json!({ "expires_at": "2020-01-01T00:00:00Z" }), "/expires_at"),
        (json!({ "expires_at": "soon" }), "/expires_at"),
    ] {
        let answer = stage.answer(post("/v1/admin/tenants/local/keys").bearer(ADMIN).json(&body));
        assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!(pointer)), "{body}");
    }
}

#[test]
fn a_tenant_stays_on_its_chosen_or_derived_shard() {
    let stage = Stage::new();
    let make = |body: Value| {
        let made = stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&body));
        assert_eq!(made.status, 201, "{made:?}");
        let stored = block_on(stage.gateway.directory.tenant(&made.text("id").into())).unwrap().unwrap();
        assert_eq!(stored.shard, Some(made.text("shard")), "stored");
        made.text("shard")
    };
    let by_name: Vec<String> = ["a", "b", "c", "d", "e", "dev"].map(|id| make(json!({ "id": id }))).into();
    assert_eq!(by_name, ["DB", "DB_1", "DB", "DB", "DB_1", "DB_1"]);
    assert_eq!(["DB", "DB_1"].map(|shard| make(json!({ "shard": shard }))), ["DB", "DB_1"]);

    let path = "/v1/admin/tenants/a";
    let patch = |shard: &str| {
        stage.answer(request("PATCH", path).bearer(ADMIN).json(&json!({ "name": "new", "shard": shard })))
    };
    for other in ["DB_1", "DB_2"] {
        let refused = patch(other);
        assert_eq!((refused.status, &refused.body["errors"][0]["pointer"]), (422, &json!("/shard")));
    }
    let shown = stage.answer(get(path).bearer(ADMIN));
    assert_eq!((shown.text("name"), shown.text("shard")), ("a".into(), "DB".into()));
    assert_eq!(patch("DB").text("name"), "new");
}

#[test]
fn a_keys_secret_is_shown_once() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (id, secret) = stage.key("acme", json!({ "name": "ci", "scopes": ["admin", "read", "read"] }));
    assert!(id.starts_with("key_") && secret.starts_with("eh_") && secret.len() == 50);
    let list = stage.answer(get("/v1/admin/tenants/acme/keys").bearer(ADMIN));
    assert_eq!(
        list.body["data"],
        json!([{
            "id": id, "tenant": "acme", "name": "ci", "scopes": ["read", "admin"],
            "created_at": "2026-11-20T12:00:00.000Z", "expires_at": null,
        }])
    );
    assert!(!list.body.to_string().contains(&secret));
    stage.tenant("other", Value::Null);
    let foreign = format!("/v1/admin/tenants/other/keys/{id}");
    assert_eq!(stage.answer(delete(&foreign).bearer(ADMIN)).status, 404);
}
