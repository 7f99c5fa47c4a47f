//! The limit of failed credentials by address, so that guessed keys and made-up tokens cannot cause a query each.
//!
//! Each isolate counts by itself. Credentials that it has cached as valid are accepted before the limit applies, so they
//! keep working at an address that several clients share. Requests without an address are not limited: Cloudflare
//! reports one for each request from the internet. Neither are clients on the same machine, which are those of a
//! developer.

use super::address;
use super::request::Request;
use crate::types::expiring::Expiring;
use crate::types::{ErrorCode, Problem, Timestamp};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The failures in a minute after which an address gets no more queries.
const MAX_FAILURES: u32 = 30;
/// How long failures are counted, from the first one.
const WINDOW: Duration = Duration::from_mins(1);
/// Maximum number of addresses that are counted.
const MAX_ADDRESSES: usize = 1_000;

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    ends_at: Timestamp,
}

/// The failed credentials of the last minute, by address.
pub(super) struct FailureLimit(Expiring<Failures>);

impl Default for FailureLimit {
    fn default() -> Self {
        Self(Expiring::new(MAX_ADDRESSES))
    }
}

impl FailureLimit {
    /// Runs a check of a credential that may cause queries, and counts it if the credential is not valid. A failed
    /// query does not count.
    ///
    /// # Errors
    /// `rate_limited`, without running the check, if the address has reached the limit; otherwise those of the check.
    pub async fn limited<T>(
        &self,
        request: &Request,
        now: Timestamp,
        check: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let Some(client) = client(request) else { return check.await };
        if let Some(failures) = self.0.get(&client, now).filter(|failures| failures.count >= MAX_FAILURES) {
            let detail = "too many invalid credentials from this address; try again later";
            return Err(Problem::rate_limited(detail, failures.ends_at, now));
        }
        let found = check.await;
        if found.as_ref().is_err_and(|problem| problem.code == ErrorCode::Unauthenticated) {
            let Failures { count, ends_at } =
                self.0.get(&client, now).unwrap_or(Failures { count: 0, ends_at: now + WINDOW });
            self.0.put(client, Failures { count: count + 1, ends_at }, ends_at, now);
        }
        found
    }
}

/// Returns the name under which a client is counted: its IPv4 address, or the first 64 bits of its IPv6 address, of
/// which a client usually has all.
fn client(request: &Request) -> Option<String> {
    let address = address::of(request)?.to_canonical();
    match address {
        _ if address.is_loopback() => None,
        IpAddr::V4(address) => Some(address.to_string()),
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            Some(Ipv6Addr::from_bits(network).to_string())
        }
    }
}
