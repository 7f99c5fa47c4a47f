//! Signed tokens, verified by the real platform.

#[path = "../front/signer.rs"]
pub mod signer;
use crate::support::shared;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};
use signer::{RSA_N, Signer};
use std::time::{SystemTime, UNIX_EPOCH};
use tungstenite::{Message, protocol::frame::coding::CloseCode};

const SIGNERS: [Signer; 3] = [Signer::Rsa, Signer::Curve(7), Signer::Secret];

/// Creates a tenant that trusts `issuer`, with the keys of [`SIGNERS`].
fn tenant(id: &str, issuer: &str) {
    let keys = SIGNERS.map(|signer| signer.jwk(signer.alg()));
    let jwt = json!({ "issuer": issuer, "audience": "app", "jwks": { "keys": keys } });
    shared().admin().post("/v1/admin/tenants", json!({ "id": id, "jwt": jwt })).expect(201);
}

fn claims(issuer: &str, ends_in: i64) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let exp = i64::try_from(now).unwrap() + ends_in;
    json!({ "iss": issuer, "sub": "auth0|ada", "aud": "app", "exp": exp })
}

/// Returns the status of posting a message with this token.
fn status_of(token: &str) -> u16 {
    let client = shared().anonymous().with_key(token);
    client.post("/v1/sessions/tokens/messages", json!({ "content": "hello" })).status
}

#[test]
fn a_valid_token_authenticates_its_sub() {
    let issuer = "https://good.example";
    tenant("jwt-good", issuer);
    for signer in SIGNERS {
        let alg = signer.alg();
        let client = shared().anonymous().with_key(&signer.token(alg, &claims(issuer, 600)));
        let session = format!("/v1/sessions/{alg}");
        client.post(&format!("{session}/messages"), json!({ "content": "hello" })).expect(200);
        assert_eq!(client.get(&session).expect(200)["user"], "auth0|ada", "{alg}");
    }
}

#[test]
fn an_invalid_token_is_refused() {
    let issuer = "https://bad.example";
    tenant("jwt-bad", issuer);
    let good = claims(issuer, 600);
    for signer in SIGNERS {
        let alg = signer.alg();
        let token = signer.token(alg, &good);
        let (text, signature) = token.rsplit_once('.').unwrap();
        let mut bytes = B64.decode(signature).unwrap();
        bytes[9] ^= 1;
        for signature in [B64.encode(&bytes), B64.encode(&bytes[1..]), String::new()] {
            assert_eq!(status_of(&format!("{text}.{signature}")), 401, "{alg}: a wrong signature");
        }
        let header = token.split('.').next().unwrap();
        let forged = B64.encode(claims(issuer, 6_000).to_string());
        assert_eq!(status_of(&format!("{header}.{forged}.{signature}")), 401, "{alg}: other claims");
        assert_eq!(status_of(&signer.token(alg, &claims(issuer, -1))), 401, "{alg}: expired");
        for other in SIGNERS.map(Signer::alg).into_iter().filter(|other| *other != alg) {
            // Signed with one key, but naming another one, for both algorithms.
            assert_eq!(status_of(&signer.token(other, &good)), 401, "{alg} under the key of {other}");
            let header = json!({ "alg": other, "kid": other });
            assert_eq!(status_of(&signer.sign(&header, &good)), 401, "{alg} as {other}");
        }
        assert_eq!(status_of(&token), 200, "{alg}: the valid token");
    }
    assert_eq!(status_of(&Signer::Curve(9).token("ES256", &good)), 401, "another key of the same type");
}

#[test]
fn keys_that_the_platform_rejects_are_refused() {
    let curve = Signer::Curve(7).jwk("k");
    let off_curve = json!({ "kty": "EC", "crv": "P-256", "x": curve["x"], "y": curve["x"] });
    let short = json!({ "kty": "RSA", "n": RSA_N.split_at(200).0, "e": "AQAB" });
    let exponent = json!({ "kty": "RSA", "n": RSA_N, "e": "BQ" });
    for key in [off_curve, short, exponent] {
        let jwt = json!({ "issuer": "https://odd.example", "audience": "app", "jwks": { "keys": [key] } });
        let made = json!({ "id": "jwt-odd", "jwt": jwt });
        let refused = shared().admin().post("/v1/admin/tenants", made).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], "/jwt/jwks/keys/0");
    }
}

#[test]
fn a_socket_is_closed_when_its_token_expires() {
    let issuer = "https://brief.example";
    tenant("jwt-brief", issuer);
    let signer = SIGNERS[1];
    let client = shared().anonymous().with_key(&signer.token(signer.alg(), &claims(issuer, 4)));
    client.post("/v1/sessions/brief/messages", json!({ "content": "hello" })).expect(200);
    let mut socket = client.websocket("/v1/sessions/brief/ws");
    let code = loop {
        if let Message::Close(frame) = socket.read().unwrap() {
            break frame.unwrap().code;
        }
    };
    assert_eq!(code, CloseCode::Library(4401));
}
