//! The hosts that an operator allows for outbound requests whose URLs come from users or models.

use super::PublicUrl;
use crate::types::Invalid;
use url::Url;

/// A list of hosts: `example.com`, `*.example.org` for all hosts below it, `*` for every public host. An entry with a port,
/// such as `127.0.0.1:4000`, names a host that need not be public; see [`AllowedHosts::receiver`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    /// Reads a list separated by commas.
    pub fn parse(list: &str) -> Self {
        let hosts = list.split(',').map(|host| host.trim().to_ascii_lowercase());
        Self(hosts.filter(|host| !host.is_empty()).collect())
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that the list has the host of a public URL.
    ///
    /// # Errors
    /// Which host is not allowed.
    pub fn check(&self, url: PublicUrl) -> Result<PublicUrl, Invalid> {
        let host = url.host().to_ascii_lowercase();
        let fits = |pattern: &String| match pattern.strip_prefix("*.") {
            Some(parent) => host.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')),
            None => pattern == "*" || *pattern == host,
        };
        match self.0.iter().any(fits) {
            true => Ok(url),
            false => Err(Invalid(format!("the host {host} is not allowed by the operator"))),
        }
    }

    /// Checks the URL of a receiver of data: https on an allowed host, or any URL of a host and port in the list, which may
    /// be on this machine or in a private network. Returns the URL in WHATWG form.
    ///
    /// # Errors
    /// Why the URL is refused.
    pub fn receiver(&self, url: &str) -> Result<String, Invalid> {
        let parsed = Url::parse(url).map_err(|error| format!("not an absolute URL: {error}"))?;
        let has_user = !parsed.username().is_empty() || parsed.password().is_some();
        if let (Some(host), Some(port), false) = (parsed.host_str(), parsed.port_or_known_default(), has_user)
            && matches!(parsed.scheme(), "http" | "https")
            && self.0.contains(&format!("{host}:{port}"))
        {
            return Ok(parsed.into());
        }
        let public = self.check(PublicUrl::parse(url)?)?;
        match (parsed.scheme(), parsed.port()) {
            ("https", None) => Ok(public.as_str().to_owned()),
            _ => Err("expected an https URL with the standard port".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn receivers_are_public_or_named_with_their_port() {
        let hosts = AllowedHosts::parse(" Hooks.example.com, *.example.org,127.0.0.1:4000");
        for url in [
            "https://hooks.example.com/a?b=c",
            "https://HOOKS.example.com/",
            "https://a.b.example.org/",
            "http://127.0.0.1:4000/a",
            "https://127.0.0.1:4000/",
        ] {
            assert!(hosts.receiver(url).is_ok(), "{url}");
        }
        for url in [
            "http://hooks.example.com/",
            "https://hooks.example.com:8443/",
            "https://hooks.example.com:80/",
            "https://example.org/",
            "https://badexample.org/",
            "http://127.0.0.1:4001/",
            "http://127.0.0.1/",
            "http://user:pw@127.0.0.1:4000/",
            "http://localhost:4000/",
            "file:///etc/passwd",
            "ftp://127.0.0.1:4000/",
            "hooks.example.com",
        ] {
            assert!(hosts.receiver(url).is_err(), "{url}");
        }
        let any = AllowedHosts::parse("*");
        assert_eq!(any.receiver("https://example.net"), Ok("https://example.net/".to_owned()));
        assert!(any.receiver("https://127.0.0.1/").is_err() && any.receiver("https://db.internal/").is_err());
        assert!(AllowedHosts::default().receiver("https://example.net").is_err());
    }
}
