//! Recognizes hosts that are the machine itself.

use std::net::Ipv4Addr;

/// Returns whether a host, with or without a port, is this machine: `localhost`, `127.0.0.0/8` or `[::1]`.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost")
        || name == "[::1]"
        || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "LocalHost:8787", "127.0.0.1", "127.9.8.7:1", "[::1]", "[::1]:8787"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com",
            "localhost@example.com",
            "127.0.0.1.example.com",
            "128.0.0.1",
            "0.0.0.0",
            "[::2]:1",
            "::1",
            "example.com:localhost",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
