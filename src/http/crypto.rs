//! Hashes, signatures, and encryption of secrets at rest. The key for encryption is derived from the operator's
//! key: changing the operator's key makes encrypted values unreadable.

use crate::ports::{Entropy, Sealer};
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use std::rc::Rc;

/// Length of a nonce of AES-GCM, in bytes.
const NONCE: usize = 12;

/// Computes the HMAC-SHA256 of `message`.
pub fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    keyed(key).chain_update(message).finalize().into_bytes().into()
}

/// Returns whether `tag` is the HMAC-SHA256 of `message`, in constant time.
pub fn verify_hmac(key: &[u8], message: &[u8], tag: &[u8]) -> bool {
    keyed(key).chain_update(message).verify_slice(tag).is_ok()
}

/// Builds the first block of HMAC as RFC 2104 defines it: unlike `new_from_slice`, this cannot fail.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    let fill = |block: &mut [u8], key: &[u8]| block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    match key.len() {
        0..=64 => fill(&mut block, key),
        _ => fill(&mut block, &Sha256::digest(key)),
    }
    <Hmac<Sha256> as Mac>::new(&block.into())
}

/// Derives the key for one purpose.
pub fn derive(secret: &str, purpose: &str) -> [u8; 32] {
    hmac(secret.as_bytes(), format!("edge-harness/{purpose}").as_bytes())
}

/// Returns the SHA-256 of `bytes` in lower-case hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Encrypts and decrypts small values with AES-256-GCM.
pub struct Cipher(Aes256Gcm);

impl Cipher {
    /// Derives the cipher of a deployment from the operator's key.
    pub fn new(admin_key: &str) -> Self {
        // A different purpose would make every stored value unreadable.
        Self(Aes256Gcm::new(&derive(admin_key, "seal").into()))
    }

    /// Encrypts `text`. It can be decrypted only with the same `context`, which names the value and its
    /// owner, so that a stored value cannot be moved to another row.
    pub fn encrypt(&self, entropy: &dyn Entropy, context: &str, text: &str) -> Option<String> {
        let mut nonce = [0; NONCE];
        entropy.fill(&mut nonce);
        let payload = Payload { msg: text.as_bytes(), aad: context.as_bytes() };
        let mut encrypted = nonce.to_vec();
        encrypted.extend(self.0.encrypt(&nonce.into(), payload).ok()?);
        Some(URL_SAFE_NO_PAD.encode(encrypted))
    }

    /// Decrypts a value of [`Cipher::encrypt`]; `None` when the key or the context differs, or the value
    /// was modified.
    pub fn decrypt(&self, context: &str, encrypted: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(encrypted).ok()?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE>()?;
        let payload = Payload { msg: text, aad: context.as_bytes() };
        String::from_utf8(self.0.decrypt(nonce.into(), payload).ok()?).ok()
    }
}

/// Encrypts with the cipher of a deployment, if it has an operator's key.
pub struct AdminSealer {
    cipher: Option<Cipher>,
    entropy: Rc<dyn Entropy>,
}

impl AdminSealer {
    /// Creates the sealer of a deployment.
    pub fn new(admin_key: Option<&str>, entropy: Rc<dyn Entropy>) -> Self {
        Self { cipher: admin_key.map(Cipher::new), entropy }
    }
}

impl Sealer for AdminSealer {
    fn seal(&self, context: &str, text: &str) -> Option<String> {
        self.cipher.as_ref()?.encrypt(self.entropy.as_ref(), context, text)
    }

    fn open(&self, context: &str, sealed: &str) -> Option<String> {
        self.cipher.as_ref()?.decrypt(context, sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::in_memory::clock::SeededEntropy;

    #[test]
    fn hmac_is_the_standard_one() {
        for key in [vec![1; 20], vec![2; 64], vec![3; 131]] {
            let reference = <Hmac<Sha256> as Mac>::new_from_slice(&key).expect("any length");
            let tag = reference.chain_update("text").finalize().into_bytes();
            assert_eq!(hmac(&key, b"text"), *tag);
            assert!(verify_hmac(&key, b"text", &tag) && !verify_hmac(&key, b"text", &tag[1..]));
        }
    }

    #[test]
    fn decrypts_only_with_the_same_key_and_context() {
        let (cipher, entropy) = (Cipher::new("operator"), SeededEntropy::default());
        let encrypted = cipher.encrypt(&entropy, "tenant a", "secret").expect("encrypted");
        assert_eq!(cipher.decrypt("tenant a", &encrypted).as_deref(), Some("secret"));
        assert_eq!(cipher.decrypt("tenant b", &encrypted), None);
        assert_eq!(Cipher::new("other").decrypt("tenant a", &encrypted), None);
        assert_eq!(cipher.decrypt("tenant a", &encrypted[1..]), None);
        assert_eq!(cipher.decrypt("tenant a", ""), None);
        assert_ne!(cipher.encrypt(&entropy, "tenant a", "secret"), Some(encrypted), "no nonce is used twice");
    }
}
