//! Guard against server-side request forgery: URLs from users and models must point to the public internet.

use crate::types::Invalid;
use std::net::{Ipv4Addr, Ipv6Addr};
use url::{Host, Url};

/// An absolute `http(s)` URL of a public host on a standard port, in WHATWG form. The platform's `fetch`
/// parses URLs in the same way, so both see the same host.
///
/// Host names are not resolved: a name of a stranger may have a private address. Cloudflare reaches the public internet
/// only; elsewhere, a firewall must refuse private addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(Url);

impl PublicUrl {
    /// Parses and checks a URL.
    ///
    /// # Errors
    /// Why the URL is refused.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::check(Url::parse(text).map_err(|error| format!("not an absolute URL: {error}"))?)
    }

    /// Resolves and checks the target of a redirect.
    ///
    /// # Errors
    /// Why the target is refused.
    pub fn join(&self, location: &str) -> Result<Self, Invalid> {
        let joined = self.0.join(location);
        Self::check(joined.map_err(|error| format!("the redirect target is not a valid URL: {error}"))?)
    }

    /// Returns the URL as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the host's name or address.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    fn check(url: Url) -> Result<Self, Invalid> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Invalid(format!("the scheme {:?} is not allowed; use https", url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL with a user name or password is not allowed".into());
        }
        if url.port().is_some_and(|port| port != 80 && port != 443) {
            return Err("only ports 80 and 443 are allowed".into());
        }
        match url.host() {
            Some(Host::Domain(name)) if is_public_name(name) => Ok(Self(url)),
            Some(Host::Ipv4(ip)) if is_public_v4(ip) => Ok(Self(url)),
            Some(Host::Ipv6(ip)) if is_public_v6(ip) => Ok(Self(url)),
            _ => Err("the host is not on the public internet".into()),
        }
    }
}

/// Ends of names that are private by convention or by a standard.
const PRIVATE: &[&str] = &[
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "private",
    "home.arpa",
    "onion",
    "test",
    "invalid",
];

/// Domains of public services whose names resolve to any address that the name contains, or to the loopback address.
const WILDCARD_DNS: &[&str] = &[
    "nip.io",
    "sslip.io",
    "xip.io",
    "traefik.me",
    "backname.io",
    "local-ip.co",
    "local-ip.sh",
    "localtest.me",
    "lvh.me",
    "vcap.me",
    "lacolhost.com",
    "localho.st",
    "localhost.direct",
    "rbndr.us",
    "1u.ms",
];

fn is_public_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let ends =
        |suffix: &&str| name.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    name.contains('.') && !PRIVATE.iter().chain(WILDCARD_DNS).any(ends)
}

/// Returns whether the address is outside IANA's special-purpose registry for IPv4.
fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !(ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_broadcast()
        || ip.is_documentation()
        || ip.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19)))
}

/// Returns whether the address is in IANA's global unicast space, and neither embeds nor tunnels other
/// addresses.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    let tunnel = segments[0] == 0x2002 || (segments[0] == 0x2001 && segments[1] < 0x200);
    let documentation = (segments[0] == 0x2001 && segments[1] == 0xdb8) || segments[0] == 0x3fff;
    segments[0] & 0xe000 == 0x2000 && !tunnel && !documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_outside_the_public_internet_are_refused() {
        for bad in [
            "file:///etc/passwd",
            "ftp://example.com/",
            "//example.com/",
            "http://localhost/",
            "http://LOCALHOST./",
            "http://a.localhost/",
            "http://printer/",
            "http://db.internal/",
            "http://a.b.internal./",
            "http://printer.local/",
            "http://nas.home.arpa/",
            "http://localhost.localdomain/",
            "http://nip.io/",
            "http://127.0.0.1.nip.io/",
            "http://7f000001.NIP.io./",
            "http://app.10-0-0-1.sslip.io/",
            "http://localtest.me/",
            "http://a.localtest.me/",
            "http://lvh.me/",
            "http://a.lvh.me../",
            "http://7f000001.c0a80001.rbndr.us/",
            "http://metadata.google.internal/",
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://0x7f000001/",
            "http://0X7F.1/",
            "http://127.0.1/",
            "http://127.0.0.1./",
            "http://%31%32%37.0.0.1/",
            "http://3232235777/",
            "http://0/",
            "http://10.1.2.3/",
            "http://172.16.0.1/",
            "http://192.168.1.1/",
            "http://169.254.169.254/latest/meta-data/",
            "http://100.64.0.1/",
            "http://198.18.0.1/",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[64:ff9b::10.0.0.1]/",
            "http://[64:ff9b:1::7f00:1]/",
            "http://[::ffff:0:127.0.0.1]/",
            "http://[2002:a00:1::1]/",
            "http://[2002:7f00:1::]/",
            "http://[2001:0:7f00:1::]/",
            "http://[fd00::1]/",
            "http://[fe80::1]/",
            "http://[ff02::1]/",
            "https://user@example.com/",
            "https://user:pw@example.com/",
            "https://example.com:22/",
            "http://127。0。0。1/",
            "http://①②⑦.0.0.1/",
            "http://loc\u{ad}alhost/",
            "http://xn--/",
        ] {
            assert!(PublicUrl::parse(bad).is_err(), "{bad}");
        }
        for good in [
            "https://example.com/a?b#c",
            "http://example.com:80/",
            "https://example.com./",
            "https://8.8.8.8/",
            "https://0x08080808/",
            "https://notlocalhost.com/",
            "https://snip.io/",
            "https://nip.io.example.com/",
            "https://internal.example.com/",
            "https://münchen.de/ä",
            "https://[2606:4700::1111]/",
        ] {
            assert!(PublicUrl::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn redirects_lead_only_to_public_hosts() {
        let url = PublicUrl::parse("https://example.com/a/b").expect("public");
        assert_eq!(url.join("../c").map(|url| url.as_str().to_owned()), Ok("https://example.com/c".into()));
        assert!(url.join("//127.0.0.1/").is_err());
        assert!(url.join("http://[::1]/").is_err());
    }
}
