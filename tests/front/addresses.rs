//! The limit of failed credentials by address.

use crate::signer::Signer;
use crate::stage::{ADMIN, Answer, NOW, Stage, get};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

const HERE: &str = "192.0.2.7";
const MAX_FAILURES: usize = 30;

fn ask(stage: &Stage, credential: &str, address: &str) -> Answer {
    stage.answer(get("/v1/sessions").bearer(credential).header("cf-connecting-ip", address))
}

/// Well-formed keys that no tenant has.
fn made_up_keys(count: usize) -> Vec<String> {
    let elsewhere = Stage::new();
    elsewhere.tenant("elsewhere", Value::Null);
    (0..count + 10).map(|_| elsewhere.key("elsewhere", json!({})).1).skip(10).collect()
}

/// A token of an issuer, with a signature that no published key has made.
fn token(issuer: &str, sub: &str) -> String {
    let claims = json!({ "iss": issuer, "sub": sub, "aud": "app", "exp": NOW.0 / 1_000 + 3_600 });
    Signer::Curve(9).token("k", &claims)
}

/// The number of queries so far.
fn queries(stage: &Stage) -> usize {
    stage.directory.key_reads.get() + stage.directory.issuer_reads.get() + stage.web.asked.get()
}

#[test]
fn an_address_that_guesses_keys_causes_no_more_queries() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, cached) = stage.key("acme", json!({}));
    let (_, fresh) = stage.key("acme", json!({}));
    assert_eq!(ask(&stage, &cached, HERE).status, 200);
    let keys = made_up_keys(MAX_FAILURES + 1);
    for key in &keys[..MAX_FAILURES] {
        assert_eq!(ask(&stage, key, HERE).code(), (401, "unauthenticated"));
        // Refused without a query, so it does not count.
        assert_eq!(ask(&stage, key, HERE).code(), (401, "unauthenticated"));
        assert_eq!(ask(&stage, "eh_mistyped", HERE).code(), (401, "unauthenticated"));
    }
    stage.clock.advance(Duration::from_millis(10_500));
    let before = queries(&stage);
    let tokens = [token("https://made-up.example", "ann"), token("https://other.example", "ann")];
    for credential in [&keys[MAX_FAILURES], &fresh, &tokens[0], &tokens[1]] {
        let refused = ask(&stage, credential, HERE);
        assert_eq!(refused.code(), (429, "rate_limited"));
        assert_eq!(refused.header("retry-after"), Some("50"));
    }
    assert_eq!(queries(&stage), before);

    // Others are not affected, and neither are credentials that the isolate knows.
    assert_eq!(ask(&stage, &cached, HERE).status, 200);
    assert_eq!(ask(&stage, "eh_mistyped", HERE).status, 401);
    let operator = get("/v1/admin/tenants").bearer(ADMIN).header("cf-connecting-ip", HERE);
    assert_eq!(stage.answer(operator).status, 200);
    assert_eq!(ask(&stage, &keys[MAX_FAILURES], "192.0.2.8").status, 401);
    assert_eq!(ask(&stage, &fresh, "192.0.2.8").status, 200);
    assert_eq!(ask(&stage, &fresh, HERE).status, 200, "known now");
    stage.clock.advance(Duration::from_secs(50));
    assert_eq!(ask(&stage, &keys[0], HERE).status, 401, "a minute has passed");
    assert!(queries(&stage) > before);
}

#[test]
fn made_up_tokens_count_like_keys() {
    let stage = Stage::new();
    let (issuer, url) = ("https://id.example", "https://id.example/keys");
    stage.tenant("acme", json!({ "issuer": issuer, "audience": "app", "jwks_url": url }));
    let published = json!({ "keys": [Signer::Curve(7).jwk("k")] });
    stage.web.documents.borrow_mut().insert(url.into(), published);
    for n in 0..MAX_FAILURES / 2 {
        for issuer in [issuer.to_owned(), format!("https://made-up-{n}.example")] {
            assert_eq!(ask(&stage, &token(&issuer, &n.to_string()), HERE).status, 401);
        }
    }
    let before = queries(&stage);
    for issuer in [issuer, "https://another.example"] {
        assert_eq!(ask(&stage, &token(issuer, "x"), HERE).code(), (429, "rate_limited"));
    }
    assert_eq!(queries(&stage), before);
}

#[test]
fn a_client_is_counted_by_its_address_or_its_ipv6_network() {
    let keys = made_up_keys(MAX_FAILURES);
    let refused = |first: &str, then: &str| {
        let stage = Stage::new();
        keys.iter().for_each(|key| drop(ask(&stage, key, first)));
        let before = queries(&stage);
        let status = ask(&stage, &token("https://made-up.example", "ann"), then).status;
        assert_eq!(queries(&stage) - before, usize::from(status == 401), "{first} {then}");
        status
    };
    for (first, then, status) in [
        ("192.0.2.7", "192.0.2.7", 429),
        ("192.0.2.7", "::ffff:192.0.2.7", 429),
        ("192.0.2.7", "192.0.2.70", 401),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", 429),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", 401),
        // Without an address, and on a developer's machine, there is no limit.
        ("127.0.0.1", "127.0.0.1", 401),
        ("::1", "::1", 401),
        ("unknown", "unknown", 401),
    ] {
        assert_eq!(refused(first, then), status, "{first} {then}");
    }
}

#[test]
fn an_outage_is_not_the_fault_of_the_address() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    stage.directory.down.set(true);
    for _ in 0..=MAX_FAILURES {
        assert_eq!(ask(&stage, &key, HERE).status, 503);
    }
    stage.directory.down.set(false);
    assert_eq!(ask(&stage, &key, HERE).status, 200);
}
