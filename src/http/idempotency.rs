//! Idempotency-Key: the same request again gets the first answer again.
//!
//! The front keeps the answers of its own POSTs in the directory, sealed, since they may hold a
//! fresh key. A session keeps its own; [`key`] and [`body_hash`] serve both. Only answers of
//! success are kept: whoever was refused may correct the request under the same key.

use super::failure::Failure;
use super::front::Front;
use super::seal::sha256_hex;
use super::{ApiBody, ApiRequest, ApiResponse};
use crate::ports::directory::Claim;
use crate::types::{ErrorCode, Problem};
use futures::future::LocalBoxFuture;

const MAX_KEY: usize = 255;

/// The request's Idempotency-Key, where it has one.
///
/// # Errors
/// 400 unless it is 1–255 visible ASCII characters.
pub fn key(request: &ApiRequest) -> Result<Option<&str>, Problem> {
    let Some(key) = request.header("idempotency-key") else { return Ok(None) };
    if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let detail = format!("Idempotency-Key must be 1 to {MAX_KEY} visible ASCII characters");
        return Err(Problem::new(ErrorCode::InvalidRequest, detail));
    }
    Ok(Some(key))
}

/// What tells one body from another.
pub fn body_hash(body: &[u8]) -> String {
    sha256_hex(body)
}

/// The answer while the first request still runs.
pub fn in_progress() -> Problem {
    let mut problem =
        Problem::new(ErrorCode::IdempotencyInProgress, "the first request still runs; try again");
    problem.retry_after_s = Some(1);
    problem
}

/// The answer to another body under the same key.
pub fn reused() -> Problem {
    Problem::new(ErrorCode::IdempotencyKeyReused, "this Idempotency-Key was used with another body")
}

/// An Idempotency-Key that is tied to a body.
pub struct Knot {
    scope: String,
    key: String,
}

impl Front {
    /// Ties the Idempotency-Key of a new session to its body. The session's object remembers the
    /// answer, but another body may lead to another object. Returns the knot, if it is a new one.
    pub(super) async fn tie_key(&self, request: &ApiRequest, owner: &str) -> Result<Option<Knot>, Failure> {
        let Some(key) = key(request)? else { return Ok(None) };
        let scope = format!("{} {} {owner}", request.method, request.path);
        match self.directory.claim(&scope, key, &body_hash(&request.body), self.clock.now()).await? {
            Claim::Fresh => Ok(Some(Knot { scope, key: key.to_owned() })),
            Claim::Reused => Err(reused().into()),
            Claim::Running | Claim::Done(..) => Ok(None),
        }
    }

    /// Keeps the key of a session that was made; frees one whose session was refused, so that the
    /// caller may correct the request.
    pub async fn settle_key(&self, knot: &Knot, status: u16) {
        let answer = (status < 300).then_some((status, ""));
        if let Err(error) = self.directory.settle(&knot.scope, &knot.key, answer).await {
            (self.log)(&format!("the key of a new session could not be settled: {error}"));
        }
    }

    /// Runs a POST once per Idempotency-Key. `owner` is whose key it is: answers never cross it.
    pub(super) async fn once(
        &self,
        request: &ApiRequest,
        owner: &str,
        work: LocalBoxFuture<'_, Result<ApiResponse, Failure>>,
    ) -> Result<ApiResponse, Failure> {
        let (Some(key), Some(seal)) = (key(request)?, self.seal()) else { return work.await };
        let scope = format!("{} {} {owner}", request.method, request.path);
        let context = format!("answer {scope} {key}");
        match self.directory.claim(&scope, key, &body_hash(&request.body), self.clock.now()).await? {
            Claim::Fresh => {}
            Claim::Running => return Err(in_progress().into()),
            Claim::Reused => return Err(reused().into()),
            Claim::Done(status, sealed) => {
                let body = seal
                    .open(&context, &sealed)
                    .ok_or_else(|| Problem::internal("a kept answer cannot be opened"))?;
                return Ok(
                    ApiResponse::bytes(status, "application/json", body).with("idempotent-replayed", "true")
                );
            }
        }
        let outcome = work.await;
        let kept = match &outcome {
            Ok(ApiResponse { status: status @ 200..300, body: ApiBody::Bytes(body), .. }) => {
                let text = std::str::from_utf8(body).ok();
                text.and_then(|text| seal.seal(&*self.entropy, &context, text))
                    .map(|sealed| (*status, sealed))
            }
            _ => None,
        };
        let answer = kept.as_ref().map(|(status, sealed)| (*status, sealed.as_str()));
        if let Err(error) = self.directory.settle(&scope, key, answer).await {
            // The work is done and the caller shall know it; the claim ends by itself.
            (self.log)(&format!("request {}: the answer could not be kept: {error}", request.id));
        }
        outcome
    }
}
