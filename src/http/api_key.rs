//! The format of API keys.

use super::crypto::sha256_hex;
use crate::ports::Entropy;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

/// Prefix of every API key, by which people and scanners recognize one.
const KEY_PREFIX: &str = "eh_";
/// Random bytes of a key.
const KEY_BYTES: usize = 32;

/// Makes the secret of a new key, and the hash that is stored.
pub(super) fn make_secret(entropy: &dyn Entropy) -> (String, String) {
    let mut bytes = [0; KEY_BYTES];
    entropy.fill(&mut bytes);
    let secret = format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let hash = sha256_hex(secret.as_bytes());
    (secret, hash)
}

/// Returns whether a credential has the form of an API key. Others are refused without a lookup.
pub(super) fn is_key(credential: &str) -> bool {
    credential
        .strip_prefix(KEY_PREFIX)
        .and_then(|text| URL_SAFE_NO_PAD.decode(text).ok())
        .is_some_and(|bytes| bytes.len() == KEY_BYTES)
}
