//! Signature verification with the platform's WebCrypto.

use super::exception::thrown;
use crate::ports::{PublicKey, Signatures, UnusableKey};
use async_trait::async_trait;
use js_sys::{Array, JSON, Uint8Array};
use wasm_bindgen::{JsValue, prelude::wasm_bindgen};

// Every import catches exceptions: an uncaught one would hang the request.
#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_namespace = ["crypto", "subtle"], js_name = importKey)]
    async fn import_key(
        format: &str,
        key: &JsValue,
        algorithm: &JsValue,
        extractable: bool,
        usages: &Array,
    ) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(catch, js_namespace = ["crypto", "subtle"])]
    async fn verify(
        algorithm: &JsValue,
        key: &JsValue,
        signature: &Uint8Array,
        data: &Uint8Array,
    ) -> Result<JsValue, JsValue>;
}

/// `crypto.subtle`.
pub struct WebCrypto;

/// An imported key and its algorithm.
struct Imported {
    key: JsValue,
    algorithm: JsValue,
}

async fn import(key: &PublicKey) -> Result<Imported, JsValue> {
    // The values are base64url, which JSON does not escape.
    let (algorithm, jwk) = match key {
        PublicKey::Rs256 { n, e } => (
            r#"{"name":"RSASSA-PKCS1-v1_5","hash":"SHA-256"}"#,
            format!(r#"{{"kty":"RSA","n":"{n}","e":"{e}"}}"#),
        ),
        PublicKey::Es256 { x, y } => (
            r#"{"name":"ECDSA","namedCurve":"P-256","hash":"SHA-256"}"#,
            format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"}}"#),
        ),
    };
    let (algorithm, jwk) = (JSON::parse(algorithm)?, JSON::parse(&jwk)?);
    let key = import_key("jwk", &jwk, &algorithm, false, &Array::of1(&"verify".into())).await?;
    Ok(Imported { key, algorithm })
}

fn unusable(error: JsValue) -> UnusableKey {
    UnusableKey(thrown(error))
}

#[async_trait(?Send)]
impl Signatures for WebCrypto {
    async fn check(&self, key: &PublicKey) -> Result<(), UnusableKey> {
        import(key).await.map(|_| ()).map_err(unusable)
    }

    async fn verify(&self, key: &PublicKey, data: &[u8], signature: &[u8]) -> Result<bool, UnusableKey> {
        let Imported { key, algorithm } = import(key).await.map_err(unusable)?;
        let (signature, data) = (Uint8Array::from(signature), Uint8Array::from(data));
        let signed = verify(&algorithm, &key, &signature, &data).await.map_err(unusable)?;
        Ok(signed.as_bool() == Some(true))
    }
}
