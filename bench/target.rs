//! The measured targets: the model server itself, the floor, and the Worker.

use crate::support::{DEV_API_KEY, Launch, ModelServer, Script, Server, http};
use serde_json::{Value, json};
use std::{
    io::{self, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Number of tokens of a response, one server-sent event each.
const TOKENS: usize = 50;
/// User message that makes the model call a tool first.
pub const USE_A_TOOL: &str = "use a tool";
/// User message that makes the model call [`MANY`] tools in one step.
pub const USE_MANY_TOOLS: &str = "use many tools";
/// Number of tool calls for [`USE_MANY_TOOLS`].
pub const MANY: usize = 24;
/// User message that makes the model respond with one token, to fill sessions quickly.
pub const BRIEFLY: &str = "briefly";

/// Starts a model server without delays.
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

/// Returns a tool without required arguments, or else the first tool.
fn easiest_tool(tools: &Value) -> Option<&str> {
    let tools = tools.as_array()?;
    let free =
        |tool: &&Value| tool["function"]["parameters"]["required"].as_array().is_none_or(Vec::is_empty);
    tools.iter().find(free).or(tools.first())?["function"]["name"].as_str()
}

/// A measured target.
pub enum Target {
    Direct(SocketAddr),
    Floor(Server),
    Ours(Server),
    /// Another version of the Worker.
    Other(Server),
}

/// The duration of a turn.
#[derive(Clone, Copy)]
pub struct Timing {
    /// Time until the first token.
    pub first: Duration,
    /// Time until the end of the stream.
    pub total: Duration,
}

impl Target {
    /// Starts the floor in its own processes.
    pub fn floor(model: &ModelServer) -> Self {
        let bindings = json!({ "OPENAI_BASE_URL": model.base_url() });
        Self::Floor(Server::launch(Launch {
            config: "bench/floor/wrangler.toml".into(),
            main: "worker.js",
            bindings,
            databases: None,
        }))
    }

    /// Starts the release Worker in its own processes. Like the floor, it calls the model only for the turn itself.
    pub fn ours(model: &ModelServer) -> Self {
        Self::with(model, &json!({}))
    }

    /// Starts the Worker with fact extraction after each turn.
    pub fn remembering(model: &ModelServer) -> Self {
        Self::with(model, &json!({ "MEMORY_FLUSH": "always" }))
    }

    /// Starts the Worker with additional settings.
    pub fn with(model: &ModelServer, more: &Value) -> Self {
        Self::Ours(Self::worker(model, more, "wrangler.toml".into()))
    }

    /// Starts the release Worker that was built in this folder from another version.
    pub fn other(model: &ModelServer, folder: &Path) -> Self {
        Self::Other(Self::worker(model, &json!({}), folder.join("wrangler.toml")))
    }

    fn worker(model: &ModelServer, more: &Value, config: PathBuf) -> Server {
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
        Server::launch(Launch { config, main: "build/index.js", bindings, databases: None })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct(_) => "direct",
            Self::Floor(_) => "floor",
            Self::Ours(_) => "ours",
            Self::Other(_) => "other",
        }
    }

    /// Returns the Worker's process; `None` for the model server, which runs in this process.
    pub fn server(&self) -> Option<&Server> {
        match self {
            Self::Direct(_) => None,
            Self::Floor(server) | Self::Ours(server) | Self::Other(server) => Some(server),
        }
    }

    /// Runs one turn and reads its stream to the end.
    pub fn turn(&self, session: &str, text: &str) -> io::Result<Timing> {
        let address = match self {
            Self::Direct(address) => *address,
            Self::Floor(server) | Self::Ours(server) | Self::Other(server) => server.address(),
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
            Self::Ours(_) | Self::Other(_) => {
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
            // A marker may be split between two reads.
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
