//! Admits WebSockets of other protocols, and reads their frames.

use super::anonymous_sockets::AnonymousSocket;
use super::auth;
use super::body::check_frame;
use super::faces::socket::{FrameHead, Incoming, SocketFormat};
use super::gateway::Gateway;
use super::request::Request;
use super::request_limit;
use crate::types::{ErrorCode, Problem};
use http::HeaderValue;
use http::header::AUTHORIZATION;

/// A socket to open.
pub struct FaceSocket {
    /// The format of its frames.
    pub format: &'static dyn SocketFormat,
    /// For a handshake without a credential: to be dropped when a frame has had one, or when the socket closes.
    pub anonymous: Option<AnonymousSocket>,
}

/// Reads a frame. Its caller is authenticated before more than the head is parsed.
///
/// # Errors
/// `payload_too_large`, as for [`auth::caller`], and as for [`SocketFormat::read`].
pub async fn read(
    gateway: &Gateway,
    handshake: &Request,
    format: &dyn SocketFormat,
    head: &FrameHead,
    text: &str,
) -> Result<Incoming, Problem> {
    check_frame(text)?;
    if let FrameHead { id: Some(id), is_stop: true, .. } = head {
        return Ok(Incoming::Stop(id.clone()));
    }
    let caller = match &head.authorization {
        None => auth::caller(gateway, handshake).await?,
        Some(credential) => {
            let mut request = handshake.clone();
            let value = HeaderValue::from_str(credential)
                .map_err(|_| Problem::new(ErrorCode::Unauthenticated, "the credential is not valid"))?;
            request.headers_mut().insert(AUTHORIZATION, value);
            auth::caller(gateway, &request).await?
        }
    };
    match format.read(text) {
        Ok(request) => Ok(Incoming::Request(request)),
        // A request that can be read is counted when it is handled.
        Err(problem) => {
            request_limit::count(gateway, &caller).await?;
            Err(problem)
        }
    }
}
