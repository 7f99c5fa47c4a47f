//! Servers of MCP in `tools.json` of an agent's shared files: those of all its versions, besides the servers of each.

use super::definition::Definition;
use crate::hooks::workspace_tools::MAX_CHARS;
use crate::mcp::{MAX_SERVERS, McpServer};
use crate::ports::{AllowedHosts, Filesystem, filesystem::FileError};
use crate::types::{FieldError, FilePath, json};
use crate::workspace::layout;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Most characters of the name of a malformed server, and of the reason, that each turn lists.
const MAX_NAME: usize = 64;
const MAX_REASON: usize = 300;

/// The servers that a file adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SharedServers {
    servers: BTreeMap<String, McpServer>,
    /// The names of malformed ones, each with the reason.
    malformed: Vec<(String, String)>,
}

impl SharedServers {
    /// Reads the file of a shared layer. A file that is absent adds nothing, and a malformed one neither: the hook
    /// `workspace_tools` reports it.
    ///
    /// # Errors
    /// The store fails.
    pub async fn read(shared: &dyn Filesystem, hosts: &AllowedHosts) -> Result<Self, FileError> {
        let Ok(path) = FilePath::parse(layout::TOOLS) else { return Ok(Self::default()) };
        match shared.read(&path).await {
            Ok(file) => Ok(Self::parse(&file.bytes, hosts)),
            Err(FileError::NotFound) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn parse(bytes: &[u8], hosts: &AllowedHosts) -> Self {
        let fits = |text: &&str| text.chars().count() <= MAX_CHARS;
        let text = std::str::from_utf8(bytes).ok().filter(fits).unwrap_or_default();
        let file = serde_json::from_str::<Map<String, Value>>(text).ok();
        let listed = file.and_then(|mut file| file.remove("mcpServers"));
        let mut own = Self::default();
        let Some(Value::Object(listed)) = listed else { return own };
        for (name, server) in listed {
            match parse(&name, server, hosts) {
                Ok(server) => drop(own.servers.insert(name, server)),
                Err(fault) => own.malformed.push((start(&name, MAX_NAME), left_out_because(&fault))),
            }
        }
        own
    }

    /// Adds the servers to a definition, whose own servers have precedence. Returns the names of the others, each with the
    /// reason.
    pub fn add_to(&self, definition: &mut Definition) -> Vec<(String, String)> {
        let mut left_out = self.malformed.clone();
        for (name, server) in &self.servers {
            let why = if definition.mcp_servers.contains_key(name) {
                "the version of the agent has a server of this name".to_owned()
            } else if definition.mcp_servers.len() >= MAX_SERVERS {
                format!("an agent has at most {MAX_SERVERS} servers")
            } else {
                definition.mcp_servers.insert(name.clone(), server.clone());
                continue;
            };
            left_out.push((name.clone(), left_out_because(&why)));
        }
        // Each turn lists them.
        left_out.truncate(MAX_SERVERS);
        left_out
    }
}

fn left_out_because(why: &str) -> String {
    format!("of the shared {} is left out: {}", layout::TOOLS, start(why, MAX_REASON))
}

fn start(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).collect()
}

fn parse(name: &str, server: Value, hosts: &AllowedHosts) -> Result<McpServer, String> {
    let server: McpServer = json::from_value(server).map_err(|error| {
        // Users read the reason, and another message may quote a value.
        let names_field =
            |text: &String| text.starts_with("unknown field") || text.starts_with("missing field");
        Some(error.detail).filter(names_field).unwrap_or_else(|| "a field has another type".to_owned())
    })?;
    let servers = BTreeMap::from([(name.to_owned(), server.clone())]);
    let faults = McpServer::faults(&servers, hosts);
    match faults.is_empty() {
        true => Ok(server),
        false => Err(faults.iter().map(FieldError::to_string).collect::<Vec<_>>().join("; ")),
    }
}
