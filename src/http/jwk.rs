//! JSON Web Keys (RFC 7517) that verify tokens. The platform verifies signatures of public keys.
//!
//! The key determines the algorithm, never the token alone: an RSA key verifies only RS256, a P-256 key
//! ES256, a secret HS256. `none` is not supported.

use super::crypto::verify_hmac;
use crate::ports::{PublicKey, Signatures, UnusableKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

/// Accepted sizes of RSA keys, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=4_096;
/// Longest exponent of an RSA key, in bytes; in practice the exponent is 65537.
const RSA_EXPONENT: usize = 4;
/// Shortest secret for HS256, in bytes (RFC 7518, section 3.2).
pub const MIN_SECRET: usize = 32;

/// A key that verifies tokens.
#[derive(Clone)]
pub struct Jwk {
    /// The id of the key.
    pub kid: Option<String>,
    key: Key,
}

/// Why a key cannot verify tokens here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A member is not base64url.
    #[error("{0} must be base64url")]
    Encoding(&'static str),
    /// The key is not for signatures.
    #[error("use must be \"sig\"")]
    Use,
    /// The secret of an HS256 key is too short.
    #[error("k must have {MIN_SECRET} bytes or more")]
    ShortSecret,
    /// The type of the key is not supported.
    #[error("kty must be oct, RSA, or EC with crv P-256")]
    Type,
    /// The key names an algorithm that is not supported for its type.
    #[error("alg must be {0}")]
    Algorithm(&'static str),
    /// The modulus of an RSA key is not acceptable.
    #[error("n must be odd and have 2048 to 4096 bits")]
    Modulus,
    /// The exponent of an RSA key is not acceptable.
    #[error("e must be odd, above 1 and below 2^32")]
    Exponent,
    /// The coordinates of a P-256 key do not have the right length.
    #[error("x and y must have 32 bytes")]
    Point,
    /// The platform refuses the key.
    #[error(transparent)]
    Platform(#[from] UnusableKey),
}

#[derive(Clone)]
enum Key {
    Secret(Vec<u8>),
    Public(PublicKey),
}

impl Jwk {
    /// Parses a JSON Web Key. [`Jwk::check`] asks the platform whether it accepts the key.
    ///
    /// # Errors
    /// Why the key cannot verify tokens here.
    pub fn read(jwk: &Value) -> Result<Self, KeyError> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &'static str| {
            text(name)
                .and_then(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok())
                .ok_or(KeyError::Encoding(name))
        };
        if text("use").is_some_and(|usage| usage != "sig") {
            return Err(KeyError::Use);
        }
        let key = match text("kty") {
            Some("oct") => match bytes("k")? {
                k if k.len() < MIN_SECRET => return Err(KeyError::ShortSecret),
                k => Key::Secret(k),
            },
            Some("RSA") => Key::Public(rsa_key(&bytes("n")?, &bytes("e")?)?),
            Some("EC") if text("crv") == Some("P-256") => Key::Public(p256_key(&bytes("x")?, &bytes("y")?)?),
            _ => return Err(KeyError::Type),
        };
        if text("alg").is_some_and(|alg| alg != key.alg()) {
            return Err(KeyError::Algorithm(key.alg()));
        }
        Ok(Self { kid: text("kid").map(Into::into), key })
    }

    /// Returns the algorithm of the key's signatures.
    pub fn alg(&self) -> &'static str {
        self.key.alg()
    }

    /// Returns whether the key signed `message`.
    ///
    /// # Errors
    /// [`KeyError::Platform`].
    pub async fn verify(
        &self,
        message: &[u8],
        signature: &[u8],
        signatures: &dyn Signatures,
    ) -> Result<bool, KeyError> {
        match &self.key {
            Key::Secret(secret) => Ok(verify_hmac(secret, message, signature)),
            Key::Public(key) => signatures.verify(key, message, signature).await.map_err(KeyError::from),
        }
    }

    /// Returns whether the key is a shared secret, which must never be published.
    pub fn is_secret(&self) -> bool {
        matches!(self.key, Key::Secret(_))
    }

    /// Checks that the platform can verify signatures with the key.
    ///
    /// # Errors
    /// [`KeyError::Platform`].
    pub async fn check(&self, signatures: &dyn Signatures) -> Result<(), KeyError> {
        match &self.key {
            Key::Secret(_) => Ok(()),
            Key::Public(key) => signatures.check(key).await.map_err(KeyError::from),
        }
    }
}

fn rsa_key(n: &[u8], e: &[u8]) -> Result<PublicKey, KeyError> {
    let [n, e] = [n, e].map(number);
    let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte & 1 == 1);
    let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) || !is_odd(n) {
        return Err(KeyError::Modulus);
    }
    // With the exponent 1, any signature would be valid.
    if e.len() > RSA_EXPONENT || e == [1] || !is_odd(e) {
        return Err(KeyError::Exponent);
    }
    let [n, e] = [n, e].map(|number| URL_SAFE_NO_PAD.encode(number));
    Ok(PublicKey::Rs256 { n, e })
}

/// Returns the bytes of a number without leading zeros.
fn number(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}

fn p256_key(x: &[u8], y: &[u8]) -> Result<PublicKey, KeyError> {
    if x.len() != 32 || y.len() != 32 {
        return Err(KeyError::Point);
    }
    let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
    Ok(PublicKey::Es256 { x, y })
}

impl Key {
    fn alg(&self) -> &'static str {
        match self {
            Self::Secret(_) => "HS256",
            Self::Public(PublicKey::Rs256 { .. }) => "RS256",
            Self::Public(PublicKey::Es256 { .. }) => "ES256",
        }
    }
}

/// Returns the keys of a set (RFC 7517, section 5) that can verify tokens here; the standard requires that
/// others are ignored.
pub fn read_set(set: &Value) -> Vec<Jwk> {
    let keys = set.get("keys").and_then(Value::as_array);
    keys.into_iter().flatten().filter_map(|jwk| Jwk::read(jwk).ok()).collect()
}
