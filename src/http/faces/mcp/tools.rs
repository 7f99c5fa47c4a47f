//! The tools: one to ask each agent, and the search of memory.

use super::fault::Fault;
use super::message::Asked;
use super::rpc::{Failure, cached};
use crate::http::gateway::TenantCall;
use crate::http::memory::{self, Search};
use crate::http::owner::session_id;
use crate::http::request::RequestExt;
use crate::standard::DEFAULT_AGENT;
use crate::types::{AgentId, AgentRef, Problem, SessionId, json::from_value};
use serde::Deserialize;
use serde_json::{Value, json};

/// The tool that asks the default agent. The tools of the others begin with it.
const ASK: &str = "ask_agent";
const SEARCH: &str = "search_memory";
/// How long a client may cache the list, in milliseconds: it changes with the deployment.
const LIST_TTL_MS: u64 = 300_000;

/// A tool that a client calls.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tool {
    /// Posts a message to a session of this agent.
    Ask(AgentId),
    SearchMemory,
}

/// The arguments of [`Tool::Ask`].
#[derive(Deserialize)]
pub(super) struct AskArgs {
    pub message: String,
    session: Option<String>,
}

impl AskArgs {
    /// Reads the arguments of a call.
    ///
    /// # Errors
    /// `validation_failed`.
    pub fn read(asked: &Asked) -> Result<(Self, Option<SessionId>), Problem> {
        #[cfg(feature = "fixtures")]
        if let Some(message) = super::fixtures::message(asked) {
            return Ok((Self { message, session: None }, None));
        }
        let args: Self = read(asked)?;
        let session = args.session.as_deref().map(|id| session_id(id, "/session")).transpose()?;
        Ok((args, session))
    }
}

fn read<T: serde::de::DeserializeOwned>(asked: &Asked) -> Result<T, Problem> {
    let args = asked.params.get("arguments").cloned().unwrap_or_else(|| json!({}));
    from_value(args).map_err(|error| Problem::fields(vec![error]))
}

/// Returns the name of the tool that asks an agent. MCP allows letters, digits, `_`, `-` and `.` in the names of tools, so any
/// other character of an agent's id is escaped: `a:b` is `ask_agent-a-3ab`.
pub(super) fn asks(agent: &AgentId) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if &**agent == DEFAULT_AGENT {
        ASK.to_owned()
    } else if agent.chars().all(|c| is_plain(c) || matches!(c, '-' | '.')) {
        format!("{ASK}_{}", &**agent)
    } else {
        agent.chars().fold(format!("{ASK}-"), |name, c| match is_plain(c) {
            true => name + c.encode_utf8(&mut [0; 4]),
            false => format!("{name}-{:02x}", u32::from(c)),
        })
    }
}

/// Reads an id that [`asks`] has escaped.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('-');
    let first = parts.next()?.to_owned();
    parts.try_fold(first, |id, part| {
        let (code, rest) = part.split_at_checked(2)?;
        Some(id + u8::from_str_radix(code, 16).ok().map(char::from)?.encode_utf8(&mut [0; 4]) + rest)
    })
}

/// Returns the tool that a call names.
///
/// # Errors
/// For an unknown tool.
pub(super) fn find(asked: &Asked) -> Result<Tool, Fault> {
    let name =
        asked.text("name").ok_or_else(|| Fault::invalid_params("`name` must be the name of a tool"))?;
    if name == SEARCH {
        return Ok(Tool::SearchMemory);
    }
    #[cfg(feature = "fixtures")]
    if super::fixtures::message(asked).is_some() {
        return Ok(Tool::Ask(DEFAULT_AGENT.into()));
    }
    let agent = match name.strip_prefix(ASK) {
        Some("") => Some(DEFAULT_AGENT.into()),
        Some(rest) => match rest.strip_prefix('-') {
            Some(escaped) => unescaped(escaped).as_deref().and_then(AgentId::parse),
            None => rest.strip_prefix('_').and_then(AgentId::parse),
        },
        None => None,
    };
    agent.map(Tool::Ask).ok_or_else(|| unknown(name))
}

/// Returns the error for a tool that does not exist.
pub(super) fn unknown(name: &str) -> Fault {
    Fault::invalid_params(&format!("unknown tool {name:?}"))
}

/// `tools/list`.
pub(super) async fn list(call: &TenantCall<'_>, asked: &Asked) -> Result<Value, Failure> {
    let agents = call.gateway.agents.list(&call.caller.tenant).await?;
    let mut tools: Vec<_> = agents.iter().map(|agent| ask_tool(&agent.id)).collect();
    tools.push(search_tool(&agents));
    Ok(cached(asked, LIST_TTL_MS, json!({ "tools": tools })))
}

fn ask_tool(agent: &AgentId) -> Value {
    let description = format!(
        "Sends a message to the agent {:?} and returns its reply. The agent works with its own tools, files and \
         memory. Within a session, it remembers the earlier messages.",
        &**agent
    );
    json!({
        "name": asks(agent),
        "title": format!("Ask the agent {}", &**agent),
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "message": {"type": "string", "description": "What to tell the agent."},
                "session": {
                    "type": "string",
                    "description": "The session to continue: `session` of an earlier result, or an id of your own.",
                },
            },
            "required": ["message"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "session": {"type": "string", "description": "The session of the turn."},
                "turn": {"type": "string", "description": "The turn that the message has started."},
                "status": {"type": "string", "description": "completed, failed, canceled or waiting"},
                "stop_reason": {"type": "string", "description": "Why the turn ended."},
                "pending": {
                    "type": "array",
                    "description": "The calls that wait for a decision or an answer.",
                    "items": {"type": "object"},
                },
            },
            "required": ["session", "turn", "status"],
        },
        "annotations": {"readOnlyHint": false, "openWorldHint": true},
    })
}

fn search_tool(agents: &[AgentRef]) -> Value {
    let agents: Vec<_> = agents.iter().map(|agent| &agent.id).collect();
    json!({
        "name": SEARCH,
        "title": "Search memory",
        "description": "Searches what an agent remembers about its user across sessions.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "The text to search for."},
                "scope": {
                    "type": "string",
                    "enum": ["facts", "sessions"],
                    "description": "`facts` (default): remembered facts. `sessions`: past messages.",
                },
                "limit": {"type": "integer", "minimum": 1, "maximum": 200, "description": "Maximum number of hits."},
                "agent": {"type": "string", "enum": agents, "description": "The agent; `default` unless given."},
            },
            "required": ["query"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {"hits": {"type": "array", "items": {"type": "object"}}},
            "required": ["hits"],
        },
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

#[derive(Deserialize)]
struct SearchArgs {
    query: String,
    scope: Option<String>,
    limit: Option<usize>,
    agent: Option<String>,
}

/// Searches memory.
///
/// # Errors
/// A problem that is not about the arguments.
pub(super) async fn search(call: &TenantCall<'_>, asked: &Asked) -> Result<Value, Failure> {
    let found = async {
        let SearchArgs { query, scope, limit, agent } = read(asked)?;
        let user = call.request.query("user");
        let search = Search { q: query, user, agent, limit, scope };
        memory::find(call, search, "/").await
    };
    let hits = match found.await {
        Ok(hits) => hits,
        Err(problem) => return Ok(failed(problem)?),
    };
    let line = |hit: &Value| {
        let day = hit["ts"].as_str().and_then(|at| at.get(..10)).unwrap_or_default();
        format!("{day}: {}", hit["text"].as_str().unwrap_or_default())
    };
    let lines: Vec<_> = hits.iter().map(line).collect();
    let text = if lines.is_empty() { "Nothing found.".to_owned() } else { lines.join("\n") };
    Ok(json!({"content": [{"type": "text", "text": text}], "structuredContent": {"hits": hits}}))
}

/// Returns the result of a call that a problem has ended, so that a model can read it.
///
/// # Errors
/// A problem that the client has to handle: of its credentials, of a limit, or of the server.
pub(super) fn failed(problem: Problem) -> Result<Value, Problem> {
    match problem.code.status() {
        401 | 403 | 429 | 500.. => Err(problem),
        _ if problem.errors.is_empty() => Ok(error(&problem.detail)),
        _ => Ok(error(&problem.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
    }
}

/// Returns the result of a failed call.
pub(super) fn error(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": true})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tools_are_unique_and_have_characters_that_mcp_allows() {
        let mut names = std::collections::BTreeSet::new();
        for id in ["a", "a-b", "a.b", "a_b", "a:b", "a@b", "a~b", "a-3ab", "a:-b", "-a:", "x:y.z"] {
            let agent = AgentId::parse(id).expect(id);
            let name = asks(&agent);
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)), "{name}");
            let rest = name.strip_prefix(ASK).expect("the prefix");
            let read = rest.strip_prefix('-').map_or(rest.strip_prefix('_').map(str::to_owned), unescaped);
            assert_eq!(read.as_deref(), Some(id), "{name}");
            assert!(names.insert(name), "{id}");
        }
        for broken in ["-", "a-", "a-z", "a-zz", "a-\u{e9}"] {
            assert_eq!(unescaped(broken), None, "{broken}");
        }
    }
}
