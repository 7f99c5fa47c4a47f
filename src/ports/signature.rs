//! Verification of public-key signatures by the platform.

use async_trait::async_trait;
use thiserror::Error;

/// A public key (RFC 7518 §6) and the one algorithm it is used with. Numbers are base64url without padding,
/// as in a JSON Web Key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256 {
        /// The modulus.
        n: String,
        /// The exponent.
        e: String,
    },
    /// ECDSA with P-256 and SHA-256. A signature is `r` followed by `s`, 32 bytes each.
    Es256 {
        /// The x coordinate of the point.
        x: String,
        /// The y coordinate of the point.
        y: String,
    },
}

/// The platform cannot use a key, for the reason in the message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct UnusableKey(pub String);

/// A verifier of signatures.
///
/// ```
/// # use edge_harness::ports::{PublicKey, Signatures, UnusableKey};
/// async fn is_signed(signatures: &dyn Signatures, key: &PublicKey, data: &[u8], by: &[u8]) -> Result<bool, UnusableKey> {
///     signatures.check(key).await?;
///     signatures.verify(key, data, by).await
/// }
/// ```
#[async_trait(?Send)]
pub trait Signatures {
    /// Checks whether a key is usable, for example whether its point is on the curve.
    ///
    /// # Errors
    /// When the platform cannot use the key.
    async fn check(&self, key: &PublicKey) -> Result<(), UnusableKey>;

    /// Returns whether `key` signed `data`. A malformed signature is not valid.
    ///
    /// # Errors
    /// When the platform cannot use the key.
    async fn verify(&self, key: &PublicKey, data: &[u8], signature: &[u8]) -> Result<bool, UnusableKey>;
}
