//! The limit of WebSockets of other protocols that have sent no valid credential.

use crate::types::Problem;
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of open sockets of an isolate that have sent no valid credential.
const MAX_ANONYMOUS: usize = 100;

/// Time after which a socket is closed that has sent no valid credential.
pub const MAX_ANONYMITY: Duration = Duration::from_secs(30);

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ErrorCode;

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
