//! Parses signed tokens (RFC 7519) and checks their signatures and claims.

use super::jwk::{Jwk, KeyError};
use crate::ports::Signatures;
use crate::ports::directory::JwtConfig;
use crate::types::{Scope, Scopes, Timestamp};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::slice;
use std::time::Duration;

/// Longest token, in bytes.
const MAX_TOKEN: usize = 8 << 10;
/// How far the issuer's clock may be ahead.
const LEEWAY: Duration = Duration::from_secs(30);
/// A parsed token. Its claims are untrusted until [`Token::is_signed_by`] returns true.
pub struct Token<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    header: Header,
    /// The claims.
    pub claims: Claims,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that the verifier must support. None is supported.
    #[serde(default)]
    crit: Option<Value>,
}

/// The claims that are used.
#[derive(Deserialize)]
pub struct Claims {
    /// The issuer.
    pub iss: String,
    /// The user.
    pub sub: String,
    /// When the token expires, in seconds.
    pub exp: f64,
    /// When the token becomes valid, in seconds.
    #[serde(default)]
    pub nbf: Option<f64>,
    /// The audience.
    #[serde(default)]
    pub aud: Option<OneOrMany>,
    /// Scopes: a list, or a text that separates them by spaces. Scopes of other services are ignored.
    #[serde(default)]
    pub scope: Option<OneOrMany>,
}

/// One text or several.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One text.
    One(String),
    /// Several texts.
    Many(Vec<String>),
}

impl OneOrMany {
    fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}

impl<'a> Token<'a> {
    /// Parses a token; `None` when it is malformed.
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

    /// Returns the id of the key that the token names.
    pub fn kid(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// Returns whether one of `keys` signed the token. Keys with another `kid` than the token's are skipped.
    ///
    /// # Errors
    /// When no key verifies the token and the platform failed to use one of them.
    pub async fn is_signed_by(&self, keys: &[Jwk], signatures: &dyn Signatures) -> Result<bool, KeyError> {
        let named = keys.iter().filter(|jwk| self.header.kid.is_none() || jwk.kid == self.header.kid);
        let mut outcome = Ok(false);
        for jwk in named.filter(|jwk| jwk.alg() == self.header.alg) {
            match jwk.verify(self.signed.as_bytes(), &self.signature, signatures).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }
}

fn part<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

impl Claims {
    /// Returns when the token expires.
    pub fn ends_at(&self) -> Timestamp {
        timestamp(self.exp)
    }

    /// Returns why a token with a valid signature is not accepted now by a tenant with these settings.
    pub fn fault(&self, jwt: &JwtConfig, now: Timestamp) -> Option<&'static str> {
        let audiences = self.aud.as_ref().map_or(&[][..], OneOrMany::texts);
        let is_meant = jwt.any_audience || jwt.audience.as_ref().is_some_and(|aud| audiences.contains(aud));
        if self.ends_at() <= now {
            Some("the token has expired")
        } else if self.nbf.is_some_and(|nbf| timestamp(nbf) > now + LEEWAY) {
            Some("the token is not valid yet")
        } else if !is_meant {
            Some("the token is for another audience")
        } else if !crate::types::id::is_user(&self.sub) {
            Some("the token's sub is not a user name")
        } else {
            None
        }
    }

    /// Returns the scopes. A token that names none of ours, such as one with `openid profile`, has the standard
    /// ones.
    pub fn scopes(&self) -> Scopes {
        let texts = self.scope.as_ref().map_or(&[][..], OneOrMany::texts);
        let has = |scope: &Scope| {
            texts.iter().flat_map(|text| text.split_ascii_whitespace()).any(|word| word == scope.name())
        };
        let named: Vec<_> = Scope::ALL.into_iter().filter(has).collect();
        if named.is_empty() { Scopes::standard() } else { Scopes(named) }
    }
}

fn timestamp(seconds: f64) -> Timestamp {
    // The cast saturates, and turns NaN into zero, so that such a token has expired.
    Timestamp((seconds * 1_000.0) as u64)
}
