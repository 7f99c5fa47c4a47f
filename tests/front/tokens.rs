//! Tokens signed by a tenant's identity provider.

use crate::signer::{RSA_N, Signer};
use crate::stage::{ADMIN, NOW, Stage, get, ids, post, request};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use edge_harness::http::Handled;
use edge_harness::http::crypto::hmac;
use edge_harness::types::Scope;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

const ISSUER: &str = "https://id.example";
const KEYS_URL: &str = "https://id.example/keys";

/// Claims valid for an hour, merged with `changes`; `null` removes a claim.
fn claims(changes: Value) -> Value {
    let mut claims = json!({ "iss": ISSUER, "sub": "auth0|ada", "aud": "app", "exp": NOW.0 / 1_000 + 3_600 });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

fn trusting(keys: &[Value]) -> Stage {
    let stage = Stage::new();
    stage.tenant("acme", json!({ "issuer": ISSUER, "audience": "app", "jwks": { "keys": keys } }));
    stage
}

#[test]
fn each_algorithm_authenticates_the_subject() {
    let signers = [Signer::Secret, Signer::Rsa, Signer::Curve(7)];
    let stage = trusting(&signers.map(|signer| signer.jwk(signer.alg())));
    for signer in signers {
        let token = signer.token(signer.alg(), &claims(json!({})));
        let forward = stage.forward(post("/v1/sessions").bearer(&token).json(&json!({ "user": "bob" })));
        assert_eq!(forward.tenant, "acme", "{}", signer.alg());
        assert_eq!(forward.principal.user.as_deref(), Some("auth0|ada"));
        assert_eq!(forward.principal.scopes.0, [Scope::Chat, Scope::Read]);
        let (text, signature) = token.rsplit_once('.').unwrap();
        let mut bytes = B64.decode(signature).unwrap();
        bytes[9] ^= 1;
        assert_eq!(stage.status_of(&format!("{text}.{}", B64.encode(&bytes))), 401);
        assert_eq!(stage.status_of(&format!("{text}.")), 401);
        let forged = B64.encode(claims(json!({ "sub": "bob" })).to_string());
        let header = token.split('.').next().unwrap();
        assert_eq!(stage.status_of(&format!("{header}.{forged}.{signature}")), 401);
    }
    let shown = stage.answer(get("/v1/admin/tenants/acme").bearer(ADMIN)).body.to_string();
    assert!(!shown.contains("private"), "private members are not stored");
}

#[test]
fn claims_are_checked_after_the_signature() {
    let stage = trusting(&[Signer::Curve(7).jwk("k")]);
    let now = NOW.0 / 1_000;
    let cases = [
        (json!({}), 200),
        (json!({ "aud": ["x", "app"] }), 200),
        (json!({ "nbf": now }), 200),
        (json!({ "scope": "openid read" }), 200),
        (json!({ "scope": "chat" }), 403),
        (json!({ "exp": now }), 401),
        (json!({ "exp": null }), 401),
        (json!({ "exp": "tomorrow" }), 401),
        (json!({ "nbf": now + 31 }), 401),
        (json!({ "aud": "other" }), 401),
        (json!({ "aud": null }), 401),
        (json!({ "iss": "https://other.example" }), 401),
        (json!({ "sub": null }), 401),
        (json!({ "sub": "" }), 401),
        (json!({ "sub": "../bob" }), 401),
    ];
    for (changes, status) in cases {
        let token = Signer::Curve(7).token("k", &claims(changes.clone()));
        assert_eq!(stage.status_of(&token), status, "{changes}");
    }
}

/// The scopes of a token with this claim, in a tenant with these settings.
fn scopes(settings: Value, claim: Value) -> Vec<Scope> {
    let mut jwt =
        json!({ "issuer": ISSUER, "audience": "app", "jwks": { "keys": [Signer::Curve(7).jwk("k")] } });
    jwt.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let stage = Stage::new();
    stage.tenant("acme", jwt);
    let token = Signer::Curve(7).token("k", &claims(json!({ "scope": claim })));
    // Every set of the tests has the scope that one of these routes needs.
    match stage.send(get("/v1/sessions/s").bearer(&token)) {
        Handled::Forward(forward) => forward.principal.scopes.0,
        Handled::Response(_) | Handled::Socket(_) => {
            stage.forward(post("/v1/sessions/s/messages").bearer(&token)).principal.scopes.0
        }
    }
}

#[test]
fn a_token_has_the_scopes_that_it_names_up_to_those_of_the_tenant() {
    let standard = || json!({});
    let admins = || json!({ "max_scopes": ["admin", "read", "chat"] });
    let cases = [
        (standard(), json!(null), vec![Scope::Chat, Scope::Read]),
        (standard(), json!("openid profile"), vec![Scope::Chat, Scope::Read]),
        (standard(), json!(""), vec![Scope::Chat, Scope::Read]),
        (standard(), json!(["openid", "read"]), vec![Scope::Read]),
        (standard(), json!(["read chat", "admin"]), vec![Scope::Chat, Scope::Read]),
        (standard(), json!("read admin"), vec![Scope::Read]),
        (admins(), json!("read admin"), vec![Scope::Read, Scope::Admin]),
        (admins(), json!("openid"), vec![Scope::Chat, Scope::Read]),
        (
            json!({ "max_scopes": ["read", "approve"] }),
            json!("approve read"),
            vec![Scope::Read, Scope::Approve],
        ),
        (json!({ "max_scopes": ["read"] }), json!("openid"), vec![Scope::Read]),
    ];
    for (settings, claim, expected) in cases {
        assert_eq!(scopes(settings.clone(), claim.clone()), expected, "{settings} {claim}");
    }
    let stage = trusting(&[Signer::Curve(7).jwk("k")]);
    for (claim, status) in [(json!("admin"), 403), (json!(["chat"]), 403), (json!(7), 401), (json!([7]), 401)]
    {
        let token = Signer::Curve(7).token("k", &claims(json!({ "scope": claim })));
        assert_eq!(stage.status_of(&token), status, "{claim}");
    }
}

#[test]
fn a_tenant_may_accept_any_audience() {
    let stage = Stage::new();
    let keys = json!({ "keys": [Signer::Curve(7).jwk("k")] });
    stage.tenant("acme", json!({ "issuer": ISSUER, "any_audience": true, "jwks": keys }));
    for aud in [json!("other"), json!(null), json!(["a", "b"])] {
        let token = Signer::Curve(7).token("k", &claims(json!({ "aud": aud })));
        assert_eq!(stage.status_of(&token), 200, "{aud}");
    }
}

#[test]
fn a_cached_token_still_expires() {
    let stage = trusting(&[Signer::Curve(7).jwk("k")]);
    let token = Signer::Curve(7).token("k", &claims(json!({ "exp": NOW.0 / 1_000 + 20 })));
    assert_eq!(stage.status_of(&token), 200);
    stage.directory.down.set(true);
    assert!(stage.answer(get("/v1/models").bearer(&token)).status == 200, "remembered");
    stage.directory.down.set(false);
    stage.clock.advance(Duration::from_secs(20));
    assert_eq!(stage.status_of(&token), 401);
}

#[test]
fn the_key_determines_the_algorithm() {
    let stage = trusting(&[Signer::Rsa.jwk("r"), Signer::Curve(7).jwk("e")]);
    let good = claims(json!({}));
    let part = |value: &Value| B64.encode(value.to_string());
    // No signature at all.
    for alg in ["none", "None", "HS256"] {
        let header = json!({ "alg": alg });
        assert_eq!(stage.status_of(&format!("{}.{}.", part(&header), part(&good))), 401, "{alg}");
    }
    // The public key used as a shared secret.
    let text = format!("{}.{}", part(&json!({ "alg": "HS256", "kid": "r" })), part(&good));
    for secret in [RSA_N.as_bytes().to_vec(), B64.decode(RSA_N).unwrap(), Vec::new()] {
        let tag = B64.encode(hmac(&secret, text.as_bytes()));
        assert_eq!(stage.status_of(&format!("{text}.{tag}")), 401);
    }
    // A valid signature with another algorithm, another key id, or an unsupported critical header.
    for header in [
        json!({ "alg": "RS256", "kid": "e" }),
        json!({ "alg": "ES384", "kid": "e" }),
        json!({ "alg": "ES256", "kid": "r" }),
        json!({ "alg": "ES256", "kid": "e", "crit": ["b64"], "b64": false }),
        json!({ "kid": "e" }),
    ] {
        assert_eq!(stage.status_of(&Signer::Curve(7).sign(&header, &good)), 401, "{header}");
    }
    assert_eq!(stage.status_of(&Signer::Curve(7).sign(&json!({ "alg": "ES256" }), &good)), 200);
}

/// `key` merged with `changes`; `null` removes a member.
fn changed(mut key: Value, changes: Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        key[name] = value.clone();
    }
    key.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    key
}

#[test]
fn unusable_keys_are_refused_or_skipped() {
    let stage = Stage::new();
    let (rsa, curve) = (Signer::Rsa.jwk("k"), Signer::Curve(7).jwk("k"));
    let number = |bytes: &[u8]| B64.encode(bytes);
    let of_bytes = |count: usize, last: u8| number(&[&vec![255; count - 1][..], &[last]].concat());
    let x = curve["x"].clone();
    let bad = [
        changed(rsa.clone(), json!({ "n": of_bytes(128, 255) })),
        changed(rsa.clone(), json!({ "n": number(&[&[0, 127][..], &[255; 255]].concat()) })),
        changed(rsa.clone(), json!({ "n": of_bytes(513, 255) })),
        changed(rsa.clone(), json!({ "n": of_bytes(256, 254) })),
        changed(rsa.clone(), json!({ "n": "" })),
        changed(rsa.clone(), json!({ "n": "+/+/" })),
        changed(rsa.clone(), json!({ "n": null })),
        changed(rsa.clone(), json!({ "e": "" })),
        changed(rsa.clone(), json!({ "e": number(&[0]) })),
        changed(rsa.clone(), json!({ "e": number(&[0, 1]) })),
        changed(rsa.clone(), json!({ "e": number(&[2]) })),
        changed(rsa.clone(), json!({ "e": number(&[1, 0, 0, 0, 1]) })),
        changed(rsa.clone(), json!({ "use": "enc" })),
        changed(rsa.clone(), json!({ "alg": "ES256" })),
        changed(rsa.clone(), json!({ "alg": "RS512" })),
        changed(rsa.clone(), json!({ "kty": "EC", "crv": "P-256" })),
        changed(curve.clone(), json!({ "y": x })),
        changed(curve.clone(), json!({ "y": number(&[1; 31]) })),
        changed(curve.clone(), json!({ "crv": "P-384" })),
        changed(curve.clone(), json!({ "alg": "RS256" })),
        changed(curve.clone(), json!({ "use": "enc" })),
        changed(curve.clone(), json!({ "kty": "RSA" })),
    ];
    let good = claims(json!({}));
    let [by_rsa, by_curve, by_other] =
        [Signer::Rsa, Signer::Curve(7), Signer::Curve(9)].map(|signer| signer.token("k", &good));
    for key in bad {
        let jwt = json!({ "issuer": ISSUER, "audience": "app", "jwks": { "keys": [rsa, key] } });
        let body = json!({ "id": "acme", "jwt": jwt });
        let answer = stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&body));
        assert_eq!(answer.code(), (422, "validation_failed"), "{key}");
        assert!(answer.body.to_string().contains("/jwt/jwks/keys/1"), "{answer:?}");
        // Published together with a valid key, it is ignored.
        let stage = publishing(&[key.clone(), Signer::Curve(9).jwk("k")]);
        assert_eq!(
            [&by_rsa, &by_curve, &by_other].map(|token| stage.status_of(token)),
            [401, 401, 200],
            "{key}"
        );
    }
    // Alternative encodings of valid keys.
    let e = number(&[0, 0, 1, 0, 1]);
    let padded = changed(rsa, json!({ "e": e, "n": format!("{RSA_N}=="), "use": "sig", "alg": "RS256" }));
    let stage = trusting(&[padded, changed(curve, json!({ "alg": "ES256" }))]);
    assert_eq!([by_rsa, by_curve].map(|token| stage.status_of(&token)), [200, 200]);
}

#[test]
fn users_see_their_own_sessions_only() {
    let stage = trusting(&[Signer::Curve(7).jwk("k")]);
    stage.session("acme", "hers", "auth0|ada", 1);
    stage.session("acme", "his", "bob", 0);
    let token = Signer::Curve(7).token("k", &claims(json!({})));
    assert_eq!(ids(&stage.answer(get("/v1/sessions").bearer(&token))), ["hers"]);
    assert_eq!(stage.answer(get("/v1/sessions?user=bob").bearer(&token)).code(), (422, "user_mismatch"));
    let ask = post("/v1/tickets").bearer(&token).json(&json!({ "session": "his" }));
    let ticket = stage.answer(ask).text("ticket");
    let forward = stage.forward(get(&format!("/v1/sessions/his/events?ticket={ticket}")));
    assert_eq!(forward.principal.user.as_deref(), Some("auth0|ada"));
}

fn publishing(keys: &[Value]) -> Stage {
    let stage = Stage::new();
    stage.tenant("acme", json!({ "issuer": ISSUER, "audience": "app", "jwks_url": KEYS_URL }));
    publish(&stage, keys);
    stage
}

fn publish(stage: &Stage, keys: &[Value]) {
    stage.web.documents.borrow_mut().insert(KEYS_URL.into(), json!({ "keys": keys }));
}

fn user(name: &str, kid: &str, scalar: u8) -> String {
    Signer::Curve(scalar).token(kid, &claims(json!({ "sub": name })))
}

#[test]
fn published_keys_are_fetched_cached_and_fetched_again_for_an_unknown_id() {
    let stage = publishing(&[Signer::Curve(7).jwk("old")]);
    assert_eq!((stage.status_of(&user("a", "old", 7)), stage.web.asked.get()), (200, 1));
    assert_eq!((stage.status_of(&user("b", "old", 7)), stage.web.asked.get()), (200, 1));
    publish(&stage, &[Signer::Curve(9).jwk("new")]);
    assert_eq!((stage.status_of(&user("c", "new", 9)), stage.web.asked.get()), (200, 2));
    // Unknown ids cause at most one fetch per minute.
    for n in 0..5 {
        assert_eq!(stage.status_of(&user("d", &format!("made-up-{n}"), 9)), 401);
    }
    assert_eq!(stage.web.asked.get(), 2);
    stage.clock.advance(Duration::from_mins(1));
    assert_eq!((stage.status_of(&user("d", "made-up", 9)), stage.web.asked.get()), (401, 3));
    assert_eq!(stage.status_of(&user("e", "old", 7)), 401, "the old key is gone");
    stage.clock.advance(Duration::from_mins(10));
    assert_eq!((stage.status_of(&user("f", "new", 9)), stage.web.asked.get()), (200, 4));
}

#[test]
fn if_a_provider_is_silent_cached_keys_still_verify_tokens() {
    let stage = publishing(&[Signer::Curve(7).jwk("k")]);
    stage.web.documents.borrow_mut().clear();
    let answer = stage.answer(get("/v1/sessions").bearer(&user("a", "k", 7)));
    assert_eq!(answer.code(), (503, "unavailable"));
    assert_eq!(
        (stage.status_of(&user("b", "k", 7)), stage.web.asked.get()),
        (503, 1),
        "not fetched again at once"
    );
    publish(&stage, &[Signer::Curve(7).jwk("k")]);
    stage.clock.advance(Duration::from_secs(5));
    assert_eq!(stage.status_of(&user("a", "k", 7)), 200);
    stage.web.documents.borrow_mut().clear();
    assert_eq!(stage.status_of(&user("b", "other", 7)), 401);
    assert_eq!(stage.status_of(&user("b", "k", 7)), 200);
}

#[test]
fn a_published_symmetric_key_verifies_nothing() {
    let stage = publishing(&[Signer::Secret.jwk("k"), Signer::Curve(7).jwk("e")]);
    assert_eq!(stage.status_of(&Signer::Secret.token("k", &claims(json!({})))), 401);
    assert_eq!(stage.status_of(&user("a", "e", 7)), 200);
}

#[test]
fn an_issuer_of_several_tenants_needs_distinct_audiences() {
    let stage = trusting(&[Signer::Curve(7).jwk("k")]);
    let keys = json!({ "keys": [Signer::Curve(7).jwk("k")] });
    stage.tenant("other", json!({ "issuer": ISSUER, "audience": "elsewhere", "jwks": keys }));
    let tenant = |aud: Value| {
        let token = Signer::Curve(7).token("k", &claims(json!({ "aud": aud })));
        stage.forward(get("/v1/sessions/s").bearer(&token)).tenant
    };
    assert_eq!((tenant(json!("app")), tenant(json!("elsewhere"))), ("acme".into(), "other".into()));
    let both = Signer::Curve(7).token("k", &claims(json!({ "aud": ["app", "elsewhere"] })));
    assert_eq!(stage.status_of(&both), 401);
}

#[test]
fn changing_the_issuer_ends_its_tokens_here() {
    let stage = trusting(&[Signer::Curve(7).jwk("k")]);
    let token = user("a", "k", 7);
    assert_eq!(stage.status_of(&token), 200);
    let patch = request("PATCH", "/v1/admin/tenants/acme").bearer(ADMIN).json(&json!({ "jwt": null }));
    assert_eq!(stage.answer(patch).status, 200);
    assert_eq!(stage.status_of(&token), 401);
}

#[test]
fn an_issuer_that_no_tenant_trusts_is_looked_up_once_a_minute() {
    let stage = Stage::new();
    let reads = || stage.directory.issuer_reads.get();
    for name in ["a", "b", "c"] {
        assert_eq!(stage.status_of(&user(name, "k", 7)), 401);
    }
    assert_eq!(reads(), 1);
    stage.clock.advance(Duration::from_mins(1));
    assert_eq!((stage.status_of(&user("a", "k", 7)), reads()), (401, 2));
    // The isolate that stores the issuer accepts its tokens at once.
    let jwt = json!({ "issuer": ISSUER, "audience": "app", "jwks": { "keys": [Signer::Curve(7).jwk("k")] } });
    stage.tenant("acme", Value::Null);
    let patch = request("PATCH", "/v1/admin/tenants/acme").bearer(ADMIN).json(&json!({ "jwt": jwt }));
    assert_eq!(stage.answer(patch).status, 200);
    assert_eq!(stage.status_of(&user("a", "k", 7)), 200);
    let other = "https://other.example";
    let token = Signer::Curve(7).token("k", &claims(json!({ "iss": other })));
    assert_eq!(stage.status_of(&token), 401);
    let keys = json!({ "keys": [Signer::Curve(7).jwk("k")] });
    stage.tenant("other", json!({ "issuer": other, "audience": "app", "jwks": keys }));
    assert_eq!(stage.status_of(&token), 200);
}
