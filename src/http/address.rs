//! The address of a client.

use super::request::{Request, RequestExt};
use std::net::IpAddr;

/// Returns the address of the client. Cloudflare sets the header and replaces one that a client sends. A local runtime
/// sets it too, but there a client may choose it.
pub(super) fn of(request: &Request) -> Option<IpAddr> {
    request.header("cf-connecting-ip")?.parse().ok()
}
