//! A server as a definition of an agent names it.

use super::oauth_client::OAuthClient;
use crate::ports::{
    AllowedHosts,
    outbound::{Endpoint, UrlTemplate},
};
use crate::types::{FieldError, json::escaped};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of servers of an agent.
pub const MAX_SERVERS: usize = 16;
/// Maximum length of a server's name.
const MAX_NAME: usize = 32;
/// Maximum time of a call, in seconds.
const MAX_TIMEOUT_S: u32 = 3_600;

/// A server of MCP whose tools the agent has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// The address of its Streamable HTTP endpoint. After the host, each request has a secret in place of `${secret:NAME}`.
    pub url: String,
    /// Headers of each request. In their values, each request has a secret in place of `${secret:NAME}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How requests are authenticated, besides the headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// The client of OAuth that is registered with the server's authorization server. Without one, the deployment
    /// introduces itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth_client: Option<OAuthClient>,
    /// The only tools, by the names that the server gives them; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Tools that the agent does not have, by the names that the server gives them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Maximum time of a call, in seconds, if it is less than that of all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// Whether what the server says about the effects of its tools is believed. Otherwise each call counts as one that may
    /// destroy data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
}

/// How requests to a server are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// Each user gives consent at the server.
    Oauth,
}

/// Returns the start of the names of a server's tools.
pub fn tool_prefix(server: &str) -> String {
    format!("{server}__")
}

impl McpServer {
    /// Returns whether the agent has the tool to which the server gives this name.
    pub fn keeps(&self, tool: &str) -> bool {
        let names = |list: &[String]| list.iter().any(|name| name == tool);
        !names(&self.deny) && (self.allow.is_empty() || names(&self.allow))
    }

    /// Returns whether each user gives consent at the server.
    pub fn asks_for_consent(&self) -> bool {
        self.auth == Some(Auth::Oauth)
    }

    /// Returns the faults of the servers of a definition, which may name only these hosts.
    pub fn faults(servers: &BTreeMap<String, Self>, hosts: &AllowedHosts) -> Vec<FieldError> {
        let mut faults = Vec::new();
        if servers.len() > MAX_SERVERS {
            faults.push(fault("", format!("expected at most {MAX_SERVERS} servers")));
        }
        for (name, server) in servers {
            let at = format!("/{}", escaped(name));
            if !is_name(name) {
                let detail = format!("expected a name of 1 to {MAX_NAME} of a-z 0-9 -");
                faults.push(fault("", detail).below(&at));
            }
            faults.extend(server.own_faults(hosts).into_iter().map(|fault| fault.below(&at)));
        }
        faults
    }

    fn own_faults(&self, hosts: &AllowedHosts) -> Vec<FieldError> {
        let is_of_protocol = |name: &str| name.starts_with("mcp-");
        let mut faults = Endpoint::faults(&self.url, &self.headers, is_of_protocol, hosts);
        if self.asks_for_consent() {
            let has_secret = |url: UrlTemplate| url.templates().any(|part| part.secrets().next().is_some());
            if Endpoint::url(&self.url).is_ok_and(has_secret) {
                // It identifies the server to others.
                faults.push(fault("/url", "with `auth`, the URL cannot have a secret"));
            }
            if self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
                faults.push(fault("/headers", "with `auth`, the client sets the header `authorization`"));
            }
        }
        match &self.oauth_client {
            Some(_) if !self.asks_for_consent() => faults.push(fault("/oauth_client", "requires `auth`")),
            client => faults.extend(client.iter().flat_map(OAuthClient::faults)),
        }
        if self.timeout_s.is_some_and(|seconds| !(1..=MAX_TIMEOUT_S).contains(&seconds)) {
            faults.push(fault("/timeout_s", format!("expected 1 to {MAX_TIMEOUT_S}")));
        }
        faults
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits)
}

fn fault(pointer: &str, detail: impl Into<String>) -> FieldError {
    FieldError { pointer: pointer.to_owned(), detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::{Value, json};

    fn faults(servers: Value) -> Vec<String> {
        let servers = serde_json::from_value(servers).expect("servers");
        let found = McpServer::faults(&servers, &AllowedHosts::parse("*,127.0.0.1:4000"));
        found.into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn each_fault_has_its_place() {
        let good = json!({
            "crm": {"url": "https://crm.example.com/mcp?key=${secret:A}&to=${secret:B}", "headers": {"X-Key": "${secret:C}"}},
            "local-1": {"url": "http://127.0.0.1:4000/mcp", "timeout_s": 30, "trusted": true},
        });
        assert_eq!(faults(good), [""; 0]);
        let bad = json!({
            "A": {"url": "https://example.com/"},
            "b/c": {"url": "https://example.com/"},
            "d": {"url": "http://example.com/"},
            "e": {"url": "https://10.0.0.1/"},
            "f": {"url": "https://${secret:HOST}/"},
            "g": {"url": "https://a.${secret:HOST}"},
            "h": {"url": "https://example.com/", "timeout_s": 0, "headers": {
                "a b": "", "Host": "", "mcp-name": "", "x": "a\nb", "y": "${secret:A-B}", "z": "{{a}}", "Z": "",
            }},
            "i": {"url": "127.0.0.1:4000"},
            "j": {"url": "https:///${secret:HOST}/mcp"},
            "k": {"url": "https://example.com/${secret:A-B}"},
            "l": {"url": "https://example.com/{{a}}"},
        });
        let expected = [
            "/A",
            "/b~1c",
            "/d/url",
            "/e/url",
            "/f/url",
            "/g/url",
            "/h/headers/Host",
            "/h/headers/a b",
            "/h/headers/mcp-name",
            "/h/headers/x",
            "/h/headers/y",
            "/h/headers/z",
            "/h/timeout_s",
            "/i/url",
            "/j/url",
            "/k/url",
            "/l/url",
        ];
        assert_eq!(faults(bad), expected);
        let many: serde_json::Map<_, _> =
            (0..17).map(|n| (format!("s{n}"), json!({"url": "https://example.com/"}))).collect();
        assert_eq!(faults(Value::Object(many)), [""]);
    }

    #[test]
    fn a_denial_precedes_a_permission() {
        let server = |allow: &[&str], deny: &[&str]| McpServer {
            allow: allow.iter().map(|name| (*name).to_owned()).collect(),
            deny: deny.iter().map(|name| (*name).to_owned()).collect(),
            ..McpServer::default()
        };
        let kept = |server: McpServer| ["a", "b", "c"].map(|tool| server.keeps(tool));
        assert_eq!(kept(server(&[], &[])), [true; 3]);
        assert_eq!(kept(server(&["a", "b"], &["b"])), [true, false, false]);
        assert_eq!(kept(server(&[], &["c"])), [true, true, false]);
    }
}
