//! The native implementation of signature verification.

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use edge_harness::ports::{PublicKey, Signatures, UnusableKey};
use p256::ecdsa::signature::Verifier;

pub struct RustCrypto;

enum Key {
    Rs256(rsa::pkcs1v15::VerifyingKey<rsa::sha2::Sha256>),
    Es256(p256::ecdsa::VerifyingKey),
}

fn import(key: &PublicKey) -> Result<Key, String> {
    match key {
        PublicKey::Rs256 { n, e } => {
            let [n, e] = [n, e].map(|part| rsa::BigUint::from_bytes_be(&B64.decode(part).unwrap()));
            let key = rsa::RsaPublicKey::new(n, e).map_err(|error| error.to_string())?;
            Ok(Key::Rs256(rsa::pkcs1v15::VerifyingKey::new(key)))
        }
        PublicKey::Es256 { x, y } => {
            // SEC1, uncompressed.
            let point = [vec![4], B64.decode(x).unwrap(), B64.decode(y).unwrap()].concat();
            let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(&point);
            Ok(Key::Es256(key.map_err(|_| "no point of P-256")?))
        }
    }
}

#[async_trait(?Send)]
impl Signatures for RustCrypto {
    async fn check(&self, key: &PublicKey) -> Result<(), UnusableKey> {
        import(key).map(|_| ()).map_err(UnusableKey)
    }

    async fn verify(&self, key: &PublicKey, data: &[u8], signature: &[u8]) -> Result<bool, UnusableKey> {
        Ok(match import(key).map_err(UnusableKey)? {
            Key::Rs256(key) => rsa::pkcs1v15::Signature::try_from(signature)
                .is_ok_and(|signature| key.verify(data, &signature).is_ok()),
            Key::Es256(key) => p256::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify(data, &signature).is_ok()),
        })
    }
}
