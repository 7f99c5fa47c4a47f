//! The format of API keys: `eh_`, 43 random characters, and a checksum of 4 characters. The random part is 32
//! bytes in base64url. The checksum is the first 3 bytes of the SHA-256 of the text before it, also in
//! base64url.
//!
//! The server refuses random and mistyped keys by the checksum, without a query. The checksum is not a secret:
//! only the hash of the whole key decides whether a key is valid.

use super::crypto::sha256_hex;
use crate::ports::Entropy;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// Prefix of every API key, by which people and scanners recognize one.
const KEY_PREFIX: &str = "eh_";
/// Random bytes of a key.
const KEY_BYTES: usize = 32;
/// Characters of a checksum.
const CHECKSUM: usize = 4;

/// Makes the secret of a new key, and the hash that is stored.
pub(super) fn make_secret(entropy: &dyn Entropy) -> (String, String) {
    let mut bytes = [0; KEY_BYTES];
    entropy.fill(&mut bytes);
    let mut secret = format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    secret.push_str(&checksum(&secret));
    let hash = sha256_hex(secret.as_bytes());
    (secret, hash)
}

/// Returns whether a credential has the form of an API key, with a correct checksum. Others are refused without
/// a lookup.
pub(super) fn is_key(credential: &str) -> bool {
    let end = credential.len().saturating_sub(CHECKSUM);
    let Some((text, end)) = credential.split_at_checked(end) else { return false };
    let random = text.strip_prefix(KEY_PREFIX).and_then(|random| URL_SAFE_NO_PAD.decode(random).ok());
    random.is_some_and(|bytes| bytes.len() == KEY_BYTES) && end == checksum(text)
}

fn checksum(text: &str) -> String {
    let [a, b, c, ..] = <[u8; 32]>::from(Sha256::digest(text));
    URL_SAFE_NO_PAD.encode([a, b, c])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::in_memory::clock::SeededEntropy;

    #[test]
    fn a_key_has_a_checksum() {
        let (key, hash) = make_secret(&SeededEntropy::default());
        assert!(is_key(&key) && key.len() == 50, "{key}");
        assert_eq!(hash, sha256_hex(key.as_bytes()));
        for index in 0..key.len() {
            let mut other = key.clone().into_bytes();
            other[index] = if other[index] == b'A' { b'B' } else { b'A' };
            assert!(!is_key(std::str::from_utf8(&other).expect("ASCII")), "changed at {index}");
        }
    }

    #[test]
    fn other_texts_are_not_keys() {
        let made_up = format!("eh_{}", "A".repeat(43));
        let short = format!("eh_AAAA{}", checksum("eh_AAAA"));
        for text in ["", "eh_", "ü", "eh_üü", &made_up, &format!("{made_up}AAAA"), &short] {
            assert!(!is_key(text), "{text}");
        }
        assert!(is_key(&format!("{made_up}{}", checksum(&made_up))));
    }
}
