//! What is measured: the model server itself, the floor, and the Worker, each asked for one turn.

use crate::support::{DEV_API_KEY, Launch, ModelServer, Script, Server, http};
use serde_json::{Value, json};
use std::{
    io::{self, Read},
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Tokens of an answer, one server-sent event each.
const TOKENS: usize = 50;
/// Makes the model call a tool first.
pub const USE_A_TOOL: &str = "use a tool";
/// Makes the model call [`MANY`] tools in one step.
pub const USE_MANY_TOOLS: &str = "use many tools";
/// See [`USE_MANY_TOOLS`].
pub const MANY: usize = 24;
/// Makes the model answer in one token, to fill sessions.
pub const BRIEFLY: &str = "briefly";

/// A model server without any delay.
pub fn model_server() -> ModelServer {
    let model = ModelServer::start();
    model.choose(|request| {
        let last = request["messages"].as_array()?.last()?;
        let asked = if last["role"] == "user" { last["content"].to_string() } else { String::new() };
        if asked.contains(BRIEFLY) {
            return Some(Script::text(["token "]));
        }
        if asked.contains(USE_A_TOOL)
            && let Some(name) = easiest_tool(&request["tools"])
        {
            return Some(Script::new().tool("call_1", name, json!({})));
        }
        if asked.contains(USE_MANY_TOOLS) {
            let ids: Vec<String> = (0..MANY).map(|n| format!("call_{n}")).collect();
            return Some(
                Script::new().tools(ids.iter().map(|id| (id.as_str(), "echo", json!({"text": id})))),
            );
        }
        Some(Script::text(std::iter::repeat_n("token ", TOKENS)))
    });
    model
}

/// A tool that needs no arguments, else the first.
fn easiest_tool(tools: &Value) -> Option<&str> {
    let tools = tools.as_array()?;
    let free =
        |tool: &&Value| tool["function"]["parameters"]["required"].as_array().is_none_or(Vec::is_empty);
    tools.iter().find(free).or(tools.first())?["function"]["name"].as_str()
}

/// One of the three.
pub enum Target {
    Direct(SocketAddr),
    Floor(Server),
    Ours(Server),
}

/// How long a turn took.
#[derive(Clone, Copy)]
pub struct Timing {
    /// Until the first token.
    pub first: Duration,
    /// Until the stream ended.
    pub total: Duration,
}

impl Target {
    /// The floor, in processes of its own.
    pub fn floor(model: &ModelServer) -> Self {
        let bindings = json!({ "OPENAI_BASE_URL": model.base_url() });
        Self::Floor(Server::launch(Launch {
            config: "bench/floor/wrangler.toml",
            main: "worker.js",
            bindings,
            databases: None,
        }))
    }

    /// The release Worker, in processes of its own. Nothing is asked of the model but the turn, as of the
    /// floor.
    pub fn ours(model: &ModelServer) -> Self {
        Self::with(model, &json!({}))
    }

    /// The same, which also draws facts from each turn.
    pub fn remembering(model: &ModelServer) -> Self {
        Self::with(model, &json!({ "MEMORY_FLUSH": "always" }))
    }

    /// The same, with these variables over those that it has.
    pub fn with(model: &ModelServer, more: &Value) -> Self {
        let mut bindings = json!({
            "MEMORY_FLUSH": "never",
            "OPENAI_BASE_URL": model.base_url(),
            "OPENAI_API_KEY": "none",
            "DEFAULT_MODEL": "openai/bench",
            "DEV_API_KEY": DEV_API_KEY,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            bindings[name] = value.clone();
        }
        Self::Ours(Server::launch(Launch {
            config: "wrangler.toml",
            main: "build/index.js",
            bindings,
            databases: None,
        }))
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct(_) => "direct",
            Self::Floor(_) => "floor",
            Self::Ours(_) => "ours",
        }
    }

    /// The Worker's process; the model server has none of its own.
    pub fn server(&self) -> Option<&Server> {
        match self {
            Self::Direct(_) => None,
            Self::Floor(server) | Self::Ours(server) => Some(server),
        }
    }

    /// One turn, read to its end.
    pub fn turn(&self, session: &str, text: &str) -> io::Result<Timing> {
        let address = match self {
            Self::Direct(address) => *address,
            Self::Floor(server) | Self::Ours(server) => server.address(),
        };
        let (path, body, first, last) = match self {
            Self::Direct(_) => {
                let messages = json!([{"role": "user", "content": text}]);
                let body = json!({"model": "bench", "stream": true, "messages": messages});
                ("/v1/chat/completions".into(), body, r#""content":"token"#, "data: [DONE]")
            }
            Self::Floor(_) => {
                let body = json!({ "content": text });
                (format!("/turn/{session}"), body, r#""content":"token"#, "data: [DONE]")
            }
            Self::Ours(_) => {
                let path = format!("/v1/sessions/{session}/messages");
                (path, json!({ "content": text }), "event: message.delta", "event: turn.completed")
            }
        };
        let headers = [
            ("authorization", format!("Bearer {DEV_API_KEY}")),
            ("content-type", "application/json".into()),
            ("accept", "text/event-stream".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value));

        let start = Instant::now();
        let mut answer = http::send(address, "POST", &path, &headers, body.to_string().as_bytes())?;
        let (mut stream, mut first_at) = (Vec::new(), None);
        loop {
            let mut piece = [0; 16 * 1024];
            let count = answer.read(&mut piece)?;
            if count == 0 {
                break;
            }
            // A marker may be torn between two reads.
            let from = stream.len().saturating_sub(first.len());
            stream.extend_from_slice(&piece[..count]);
            if first_at.is_none() && contains(&stream[from..], first) {
                first_at = Some(start.elapsed());
            }
        }
        let total = start.elapsed();
        match first_at {
            Some(first) if answer.status == 200 && contains(&stream, last) => Ok(Timing { first, total }),
            _ => {
                let said = String::from_utf8_lossy(&stream);
                Err(io::Error::other(format!(
                    "{} {}",
                    answer.status,
                    said.chars().take(400).collect::<String>()
                )))
            }
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
