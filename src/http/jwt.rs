//! Signed tokens (RFC 7519): reading them, and verifying them with keys of RFC 7517. The platform
//! verifies what a public key signed.
//!
//! The algorithm follows from the key, never from the token alone: an RSA key only ever verifies
//! RS256, a P-256 key ES256, a secret HS256. `none` is no algorithm.

use super::seal::hmac_is;
use crate::ports::{PublicKey, Signatures};
use crate::types::{Scope, Scopes, Timestamp};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longer tokens are not read.
const MAX_TOKEN: usize = 8 << 10;
/// How far the issuer's clock may be ahead of ours.
const LEEWAY_MS: u64 = 30_000;
/// Bits of the RSA keys that are accepted.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=4_096;
/// Bytes of an RSA key's exponent at most; in practice it is 65537.
const RSA_EXPONENT: usize = 4;
/// The shortest secret for HS256, in bytes (RFC 7518 §3.2).
pub const MIN_SECRET: usize = 32;

/// A token that has been read; nothing in it is true before [`Token::is_signed_by`] said so.
pub struct Token<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    header: Header,
    /// What it says.
    pub claims: Claims,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that must be understood. We understand none.
    #[serde(default)]
    crit: Option<Value>,
}

/// The claims that matter here.
#[derive(Deserialize)]
pub struct Claims {
    /// Who signed it.
    pub iss: String,
    /// Who is speaking.
    pub sub: String,
    /// When it ends, in seconds.
    pub exp: f64,
    /// When it begins, in seconds.
    #[serde(default)]
    pub nbf: Option<f64>,
    /// Whom it is for.
    #[serde(default)]
    pub aud: Option<Audience>,
    /// What it allows, as words; ours are `chat`, `read` and `admin`.
    #[serde(default)]
    pub scope: Option<String>,
}

/// One audience or several.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Audience {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl<'a> Token<'a> {
    /// Reads a token; `None` when it is not one.
    pub fn parse(token: &'a str) -> Option<Self> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header: Header = part(header)?;
        if header.crit.is_some() {
            return None;
        }
        Some(Self {
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
            header,
            claims: part(claims)?,
        })
    }

    /// The key that it names.
    pub fn kid(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// Whether one of `keys` signed it. A key with another `kid` than the token's is not tried.
    ///
    /// # Errors
    /// When none did, and one could not be used.
    pub async fn is_signed_by(&self, keys: &[Jwk], signatures: &dyn Signatures) -> Result<bool, String> {
        let named = keys.iter().filter(|jwk| self.header.kid.is_none() || jwk.kid == self.header.kid);
        let mut outcome = Ok(false);
        for jwk in named.filter(|jwk| jwk.key.alg() == self.header.alg) {
            let signed = match &jwk.key {
                Key::Secret(secret) => Ok(hmac_is(secret, self.signed.as_bytes(), &self.signature)),
                Key::Public(key) => signatures.verify(key, self.signed.as_bytes(), &self.signature).await,
            };
            match signed {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(fault) => outcome = Err(fault),
            }
        }
        outcome
    }
}

fn part<T: DeserializeOwned>(text: &str) -> Option<T> {
    crate::types::json::read(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

impl Claims {
    /// When the token ends.
    pub fn ends_at(&self) -> Timestamp {
        millis(self.exp)
    }

    /// What keeps a token whose signature is good from being accepted now.
    pub fn fault(&self, audience: Option<&str>, now: Timestamp) -> Option<&'static str> {
        let meant_for = |wanted: &str| match &self.aud {
            None => false,
            Some(Audience::One(aud)) => aud == wanted,
            Some(Audience::Many(auds)) => auds.iter().any(|aud| aud == wanted),
        };
        if self.ends_at() <= now {
            Some("the token has expired")
        } else if self.nbf.is_some_and(|nbf| millis(nbf) > now.plus(LEEWAY_MS)) {
            Some("the token is not valid yet")
        } else if !audience.is_none_or(meant_for) {
            Some("the token is for another audience")
        } else if !crate::types::id::is_user(&self.sub) {
            Some("the token's sub cannot be a user's name")
        } else {
            None
        }
    }

    /// What it allows. Without a scope claim, what a user needs: talking and reading.
    pub fn scopes(&self) -> Scopes {
        let Some(words) = &self.scope else { return Scopes(vec![Scope::Chat, Scope::Read]) };
        let has = |wanted: &str| words.split_ascii_whitespace().any(|word| word == wanted);
        let known = [("chat", Scope::Chat), ("read", Scope::Read), ("admin", Scope::Admin)];
        Scopes(known.into_iter().filter(|(word, _)| has(word)).map(|(_, scope)| scope).collect())
    }
}

fn millis(seconds: f64) -> Timestamp {
    // A cast of a float saturates, and turns what is not a number into zero: long ago.
    Timestamp((seconds * 1_000.0) as u64)
}

/// A key that can verify, and its name.
#[derive(Clone)]
pub struct Jwk {
    /// Its name.
    pub kid: Option<String>,
    key: Key,
}

#[derive(Clone)]
enum Key {
    Secret(Vec<u8>),
    Public(PublicKey),
}

impl Jwk {
    /// Reads a JSON Web Key. Whether the platform takes it, [`Jwk::check`] says.
    ///
    /// # Errors
    /// Why it cannot verify tokens here.
    pub fn read(jwk: &Value) -> Result<Self, String> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| {
            text(name)
                .and_then(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok())
                .ok_or_else(|| format!("{name} must be base64url"))
        };
        if text("use").is_some_and(|usage| usage != "sig") {
            return Err("use must be \"sig\"".into());
        }
        let key = match text("kty") {
            Some("oct") => Key::Secret(bytes("k").and_then(|k| {
                if k.len() < MIN_SECRET {
                    Err(format!("k must have {MIN_SECRET} bytes or more"))
                } else {
                    Ok(k)
                }
            })?),
            Some("RSA") => Key::Public(rsa_key(&bytes("n")?, &bytes("e")?)?),
            Some("EC") if text("crv") == Some("P-256") => Key::Public(p256_key(&bytes("x")?, &bytes("y")?)?),
            _ => return Err("kty must be oct, RSA, or EC with crv P-256".into()),
        };
        if text("alg").is_some_and(|alg| alg != key.alg()) {
            return Err(format!("alg must be {}", key.alg()));
        }
        Ok(Self { kid: text("kid").map(Into::into), key })
    }

    /// Whether it is a shared secret, which must never be published.
    pub fn is_secret(&self) -> bool {
        matches!(self.key, Key::Secret(_))
    }

    /// Whether the platform can verify with it.
    ///
    /// # Errors
    /// Why it cannot.
    pub async fn check(&self, signatures: &dyn Signatures) -> Result<(), String> {
        match &self.key {
            Key::Secret(_) => Ok(()),
            Key::Public(key) => signatures.check(key).await,
        }
    }
}

fn rsa_key(n: &[u8], e: &[u8]) -> Result<PublicKey, String> {
    let [n, e] = [n, e].map(number);
    let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte & 1 == 1);
    let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) || !is_odd(n) {
        return Err("n must be odd and have 2048 to 4096 bits".into());
    }
    // With the exponent 1, everybody signs.
    if e.len() > RSA_EXPONENT || e == [1] || !is_odd(e) {
        return Err("e must be odd, above 1 and below 2^32".into());
    }
    let [n, e] = [n, e].map(|number| URL_SAFE_NO_PAD.encode(number));
    Ok(PublicKey::Rs256 { n, e })
}

/// A number's bytes without the zeros in front.
fn number(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or_default()
}

fn p256_key(x: &[u8], y: &[u8]) -> Result<PublicKey, String> {
    if x.len() != 32 || y.len() != 32 {
        return Err("x and y must have 32 bytes".into());
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

/// The keys of a set (RFC 7517 §5) that can verify tokens here; the others are passed over, as the
/// standard asks.
pub fn read_set(set: &Value) -> Vec<Jwk> {
    let keys = set.get("keys").and_then(Value::as_array);
    keys.into_iter().flatten().filter_map(|jwk| Jwk::read(jwk).ok()).collect()
}
