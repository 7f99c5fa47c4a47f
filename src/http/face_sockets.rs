//! Admits WebSockets of other protocols, and reads their frames.

use super::auth;
use super::body::check_frame;
use super::faces::socket::{FrameHead, Incoming, SocketFormat};
use super::gateway::Gateway;
use super::request::Request;
use super::request_limit;
use crate::types::{ErrorCode, Problem};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of open sockets of an isolate that have sent no valid credential.
const MAX_ANONYMOUS: usize = 100;

/// Time after which a socket is closed that has sent no valid credential.
pub const MAX_ANONYMITY: Duration = Duration::from_secs(30);

/// A socket to open.
pub struct FaceSocket {
    /// The format of its frames.
    pub format: &'static dyn SocketFormat,
    /// For a handshake without a credential: to be dropped when a frame has had one, or when the socket closes.
    pub anonymous: Option<AnonymousSocket>,
}

/// Counts the open sockets of an isolate that have sent no valid credential.
#[derive(Default)]
pub struct AnonymousSockets(Rc<()>);

/// One of [`AnonymousSockets`].
pub struct AnonymousSocket(#[allow(dead_code, reason = "is held, not read")] Rc<()>);

impl AnonymousSockets {
    /// Counts one more socket until the returned value is dropped.
    ///
    /// # Errors
    /// `unavailable` if there are too many.
    pub fn admit(&self) -> Result<AnonymousSocket, Problem> {
        if Rc::strong_count(&self.0) > MAX_ANONYMOUS {
            let detail = "too many WebSockets have sent no credential; try again, or send the credential with the handshake";
            return Err(Problem::unavailable(
                detail,
                format!("{MAX_ANONYMOUS} WebSockets without a credential"),
            ));
        }
        Ok(AnonymousSocket(Rc::clone(&self.0)))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_without_a_credential_are_bounded_until_they_close() {
        let sockets = AnonymousSockets::default();
        let mut open: Vec<_> = (0..MAX_ANONYMOUS).filter_map(|_| sockets.admit().ok()).collect();
        assert_eq!(open.len(), MAX_ANONYMOUS);
        let refused = sockets.admit().map(drop).expect_err("no room");
        assert_eq!((refused.code, refused.retry_after_s), (ErrorCode::Unavailable, Some(2)));
        open.pop();
        assert!(sockets.admit().is_ok());
    }
}
