//! An identity provider's keys. The integration tests sign with them as well.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use edge_harness::http::crypto::hmac;
use p256::ecdsa::signature::Signer as _;
use rsa::signature::SignatureEncoding as _;
use serde_json::{Value, json};

const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

// A key for these tests only.
pub const RSA_N: &str = "lVcj1tAv9kIgudeIEeNpUFbMBFI60ovrVkJi2ZxOpukQdxDwlnkWaZNKP3m8qdd-Z80HUqFgiGJwwyV0TVJHk_Rm7fBzR_9KHHMfTEexdZQXcO_WLKJRBLqyUIW4pkKDCf_DDHgW_QaShjs9DG8v9BvCSm9SAGCqB7a4SsHVeV62j8bxKj-oZpOUMjK6qmoYi7fqvoP4Dj_hEYsnLSO66pog_urKMVGS_V41iwpPKJaDr9O4N4Ou_V9bcvVx69G1lLH921ixudwVsg1aprr65sF4p1Zmv9cCKq_M0aRj2Fl-jMHJxQm0iVWaIcCwsMVZ5wWEmyGsk9p0TOqpgtezGQ";
const RSA_D: &str = "HViy378odaV4Bd0PTaiZJOLxk3XPPlmlhN1lzGp1YEJTbHplNMSVvWhmwkN7agrBOcemBTxWGmbxzr9Y8-rTywTPhzllhgPqPd33jAdYnYjc9GIE_d9luV6wtLcaWn2ef4QFgblFlzJH793LONrOmxMrYnIutIlKUFq9K1-cwg0oTS9oSgW_qbbSW5QcfkL-w9ojBuyzZoyqnoAMpMSQOz92udXpAsTM6QXQwsuiWr1nDw7fZF2tRjpNrrgAHOfDrr0TxD4qfwknhsC71s993wgzKNWy4eEPGDB32eB6T2ORPTCPRwaUuy2qQmKAc6bhneyN3OlnJW0goCfFBI5hyQ";
const RSA_P: &str = "w9CO7Xh_3Agd7eBBLRR7i43yQdfX3eIJXTqv9KF_3OL5OnSwEIvDV4nsAPbxKkahenaHT2q6TCF_GZceRblJI0SL-t0-g4FVpeUfW9iXfSvf5-S-SgqASKisJFyYtecdff6JQOvC2Jpo4XjWJqCe478C-jvyqRt-H1YNVONa0a0";
const RSA_Q: &str = "wz3O62KDruuasOrG4iE1Og2RNDIQuoY4OJ4FfDehlNKR7ETShHB-qgQ0Lhsh1ndQ6BkHGvt_sf7XC6kjR33sb_QoTrjE0bvlfhWyvKZqZxGJyjodMQ_dYR1wmV9xCLz3phheHWBKppXVSUq1baTw6iECamDykCkmpmtK6j-1DJ0";

/// A provider's key.
#[derive(Clone, Copy)]
pub enum Signer {
    Secret,
    Rsa,
    /// Creates one of many keys from its scalar.
    Curve(u8),
}

impl Signer {
    pub fn alg(self) -> &'static str {
        match self {
            Self::Secret => "HS256",
            Self::Rsa => "RS256",
            Self::Curve(_) => "ES256",
        }
    }

    fn curve(scalar: u8) -> p256::ecdsa::SigningKey {
        p256::ecdsa::SigningKey::from_slice(&[scalar; 32]).unwrap()
    }

    fn rsa() -> rsa::RsaPrivateKey {
        let [n, d, p, q] =
            [RSA_N, RSA_D, RSA_P, RSA_Q].map(|part| rsa::BigUint::from_bytes_be(&B64.decode(part).unwrap()));
        rsa::RsaPrivateKey::from_components(n, 65_537u32.into(), d, vec![p, q]).unwrap()
    }

    pub fn jwk(self, kid: &str) -> Value {
        match self {
            Self::Secret => json!({ "kty": "oct", "kid": kid, "k": B64.encode(SECRET) }),
            Self::Rsa => json!({ "kty": "RSA", "kid": kid, "n": RSA_N, "e": "AQAB", "d": "private" }),
            Self::Curve(scalar) => {
                let point = Self::curve(scalar).verifying_key().to_encoded_point(false);
                let [x, y] = [point.x().unwrap(), point.y().unwrap()].map(|part| B64.encode(part));
                json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y })
            }
        }
    }

    pub fn sign(self, header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", B64.encode(header.to_string()), B64.encode(claims.to_string()));
        let bytes = text.as_bytes();
        let signature = match self {
            Self::Secret => hmac(SECRET, bytes).to_vec(),
            Self::Rsa => {
                rsa::pkcs1v15::SigningKey::<rsa::sha2::Sha256>::new(Self::rsa()).sign(bytes).to_vec()
            }
            Self::Curve(scalar) => {
                let signature: p256::ecdsa::Signature = Self::curve(scalar).sign(bytes);
                signature.to_vec()
            }
        };
        format!("{text}.{}", B64.encode(signature))
    }

    pub fn token(self, kid: &str, claims: &Value) -> String {
        self.sign(&json!({ "alg": self.alg(), "typ": "JWT", "kid": kid }), claims)
    }
}
