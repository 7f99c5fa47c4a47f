//! Settings of permissions.

use super::{Kind, Setting, Topic, ValueError, value};
use crate::ports::AllowedHosts;
use crate::types::Rules;
use std::time::Duration;

pub const TOPIC: Topic = Topic {
    title: "Permissions",
    about: "Permissions of the agent's tools, see [permissions.md](permissions.md).",
    settings: &[
        Setting {
            name: "PERMISSIONS",
            kind: Kind::Variable(|config, text| {
                let rules: Rules = value::json(text)?;
                rules.check().map_err(|field| ValueError::entry(field.pointer, field.detail))?;
                let default = rules.default.or(config.agent.permissions.default);
                config.agent.permissions = Rules { default, ..rules };
                Ok(())
            }),
            default: r#"{"default": "allow"}"#,
            expects: r#"JSON {"default"?, "categories"?, "tools"?, "patterns"?}"#,
            doc: "Permission rules of all sessions. Without a `default` in it, the default is `allow`.",
            example: r#"{"categories": {"edit": "ask", "execute": "deny"}, "tools": {"web_fetch": "ask"},
 "patterns": [{"tool": "write_file", "pattern": "drafts/**", "policy": "allow"}]}"#,
        },
        Setting {
            name: "APPROVAL_TTL_S",
            kind: Kind::Variable(|config, text| {
                config.agent.approval_ttl = Duration::from_secs(value::number::<u32>(text, 1)?.into());
                Ok(())
            }),
            default: "604800",
            expects: "a whole number of seconds from 1",
            doc: "How long a call waits for a decision or an answer before it expires. The default is a week.",
            example: "",
        },
        Setting {
            name: "WEB_FETCH_ALLOW",
            kind: Kind::Variable(|config, text| {
                config.web_fetch_allow = text.to_owned();
                Ok(())
            }),
            default: "",
            expects: "hosts separated by commas",
            doc: "Hosts that the tool `web_fetch` may read: `example.com`, `*.example.org` for all hosts below it, or \
                  `*` for every public host. Not set: the agent has no `web_fetch`. See \
                  [operations.md](operations.md#outbound-requests-of-agents) before you use `*` outside of Cloudflare.",
            example: "",
        },
        Setting {
            name: "HTTP_TOOLS_ALLOW",
            kind: Kind::Variable(|config, text| {
                config.http_tools_allow = AllowedHosts::parse(text);
                Ok(())
            }),
            default: "*",
            expects: "hosts separated by commas",
            doc: "Hosts that the [HTTP tools](http-tools.md) of agents may send requests to, by https: `example.com`, \
                  `*.example.org` for all hosts below it, or `*` for every public host, which is the default. `none` allows \
                  no host. A host with its port, such as `127.0.0.1:4000`, may also be on this machine or in a private \
                  network, and may use http. See [operations.md](operations.md#outbound-requests-of-agents).",
            example: "",
        },
        Setting {
            name: "PUSH_ALLOW",
            kind: Kind::Variable(|config, text| {
                config.push_allow = AllowedHosts::parse(text);
                Ok(())
            }),
            default: "",
            expects: "hosts separated by commas",
            doc: "Hosts that may receive the push notifications of A2A, by https: `example.com`, `*.example.org` for all \
                  hosts below it, or `*` for every public host. A host with its port, such as `127.0.0.1:4000`, may also be \
                  on this machine or in a private network, and may use http. Not set: the server sends no push \
                  notifications.",
            example: "",
        },
        Setting {
            name: "PUBLIC_URL",
            kind: Kind::Variable(|config, text| {
                config.public_url = match text {
                    "" => None,
                    text => Some(value::origin(text)?),
                };
                Ok(())
            }),
            default: "",
            expects: "an http or https URL without a path",
            doc: "The address of the deployment, such as `https://agents.example.com`. Authorization servers send users back \
                  to it after they have given [consent](mcp-servers.md#consent-of-users). Not set: servers of MCP that need \
                  consent cannot be connected.",
            example: "",
        },
        Setting {
            name: "MCP_ALLOW",
            kind: Kind::Variable(|config, text| {
                config.mcp_allow = AllowedHosts::parse(text);
                Ok(())
            }),
            default: "*",
            expects: "hosts separated by commas",
            doc: "Hosts on which definitions of agents may name [servers of MCP](mcp-servers.md), by https: `example.com`, \
                  `*.example.org` for all hosts below it, or `*` for every public host. A host with its port, such as \
                  `127.0.0.1:4000`, may also be on this machine or in a private network, and may use http. `none` allows no \
                  host.",
            example: "",
        },
        Setting {
            name: "REMOTE_AGENTS_ALLOW",
            kind: Kind::Variable(|config, text| {
                config.remote_agents_allow = AllowedHosts::parse(text);
                Ok(())
            }),
            default: "*",
            expects: "hosts separated by commas",
            doc: "Hosts on which kinds of subagents may name [remote agents](agents.md#remote-agents), in the form of \
                  `MCP_ALLOW`.",
            example: "",
        },
    ],
};
