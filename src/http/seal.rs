//! Secrets at rest. The keys that seal and sign are derived from the operator's key, one per
//! purpose; whoever changes the operator's key makes what was sealed unreadable.

use crate::ports::Entropy;
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

const NONCE: usize = 12;

/// HMAC-SHA256.
pub fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    keyed(key).chain_update(message).finalize().into_bytes().into()
}

/// Whether `tag` is the HMAC-SHA256 of `message`, in constant time.
pub fn hmac_is(key: &[u8], message: &[u8], tag: &[u8]) -> bool {
    keyed(key).chain_update(message).verify_slice(tag).is_ok()
}

/// Fills the block that HMAC starts from as RFC 2104 says: unlike taking a slice, this cannot fail.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    let fill = |block: &mut [u8], key: &[u8]| block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    match key.len() {
        0..=64 => fill(&mut block, key),
        _ => fill(&mut block, &Sha256::digest(key)),
    }
    <Hmac<Sha256> as Mac>::new(&block.into())
}

/// The key for one purpose.
pub fn derive(secret: &str, purpose: &str) -> [u8; 32] {
    hmac(secret.as_bytes(), format!("edge-harness/{purpose}").as_bytes())
}

/// Lower-case hex SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Seals and opens small values with AES-256-GCM.
pub struct Seal(Aes256Gcm);

impl Seal {
    /// The seal of a deployment.
    pub fn new(admin_key: &str) -> Self {
        Self(Aes256Gcm::new(&derive(admin_key, "seal").into()))
    }

    /// Seals `text`. It opens only under the same `context` (what and whose it is), so a stored
    /// value cannot be put in another's place.
    pub fn seal(&self, entropy: &dyn Entropy, context: &str, text: &str) -> Option<String> {
        let mut nonce = [0; NONCE];
        entropy.fill(&mut nonce);
        let payload = Payload { msg: text.as_bytes(), aad: context.as_bytes() };
        let mut sealed = nonce.to_vec();
        sealed.extend(self.0.encrypt(&nonce.into(), payload).ok()?);
        Some(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens what [`Seal::seal`] made; `None` when it was made with another key or context, or
    /// was tampered with.
    pub fn open(&self, context: &str, sealed: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE>()?;
        let payload = Payload { msg: text, aad: context.as_bytes() };
        String::from_utf8(self.0.decrypt(nonce.into(), payload).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::in_memory::clock::SeededEntropy;

    #[test]
    fn hmac_is_the_standard_one() {
        for key in [vec![1; 20], vec![2; 64], vec![3; 131]] {
            let theirs = <Hmac<Sha256> as Mac>::new_from_slice(&key).expect("any length");
            let tag = theirs.chain_update("text").finalize().into_bytes();
            assert_eq!(hmac(&key, b"text"), *tag);
            assert!(hmac_is(&key, b"text", &tag) && !hmac_is(&key, b"text", &tag[1..]));
        }
    }

    #[test]
    fn opens_only_with_the_same_key_and_context() {
        let (seal, entropy) = (Seal::new("operator"), SeededEntropy::default());
        let sealed = seal.seal(&entropy, "tenant a", "secret").expect("sealed");
        assert_eq!(seal.open("tenant a", &sealed).as_deref(), Some("secret"));
        assert_eq!(seal.open("tenant b", &sealed), None);
        assert_eq!(Seal::new("other").open("tenant a", &sealed), None);
        assert_eq!(seal.open("tenant a", &sealed[1..]), None);
        assert_eq!(seal.open("tenant a", ""), None);
        assert_ne!(seal.seal(&entropy, "tenant a", "secret"), Some(sealed), "a nonce is never used twice");
    }
}
