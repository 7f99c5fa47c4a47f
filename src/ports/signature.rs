//! Signatures of public keys, which the platform verifies.

use async_trait::async_trait;

/// A public key (RFC 7518 §6), and with it the one algorithm that it verifies. Its numbers are in
/// base64url without padding, as a JSON Web Key holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256 {
        /// The modulus.
        n: String,
        /// The exponent.
        e: String,
    },
    /// ECDSA with P-256 and SHA-256; its signatures are `r` and `s`, 32 bytes each.
    Es256 {
        /// The point's first coordinate.
        x: String,
        /// The second.
        y: String,
    },
}

/// Verifies signatures.
#[async_trait(?Send)]
pub trait Signatures {
    /// Whether a key can be used at all: for instance, a point that is not on its curve cannot.
    ///
    /// # Errors
    /// Why it cannot.
    async fn check(&self, key: &PublicKey) -> Result<(), String>;

    /// Whether `key` signed `data`. A signature of the wrong form is none.
    ///
    /// # Errors
    /// Why the key cannot be used.
    async fn verify(&self, key: &PublicKey, data: &[u8], signature: &[u8]) -> Result<bool, String>;
}
