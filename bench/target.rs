//! The measured targets: the model server itself, the floor, and the Worker.

use crate::support::{DEV_API_KEY, Launch, ModelServer, Script, Server, http};
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Number of tokens of a response, one server-sent event each.
const TOKENS: usize = 50;
/// Time between two tokens of a paced response, about that of a fast model.
const PACE: Duration = Duration::from_millis(12);
/// User message that makes the model respond at [`PACE`].
pub const PACED: &str = "hello at the pace of a model";
/// User message that makes the model call a tool first.
pub const USE_A_TOOL: &str = "use a tool";
/// User message that makes the model call [`MANY`] tools in one step.
pub const USE_MANY_TOOLS: &str = "use many tools";
/// Number of tool calls for [`USE_MANY_TOOLS`].
pub const MANY: usize = 24;
/// User message that makes the model respond with one token, to fill sessions quickly.
pub const BRIEFLY: &str = "briefly";

/// Starts a model server that responds without delays, except to [`PACED`].
pub fn model_server() -> ModelServer {
    let model = ModelServer::start();
    model.choose(|request| {
        let last = request["messages"].as_array()?.last()?;
        let asked = if last["role"] == "user" { last["content"].to_string() } else { String::new() };
        if asked.contains(BRIEFLY) {
            return Some(Script::text(["token "]));
        }
        if asked.contains(PACED) {
            let tokens = std::iter::repeat_n("token ", TOKENS);
            return Some(tokens.fold(Script::new(), |script, token| script.say(token).pause(PACE)));
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
    /// The least work per turn.
    Floor(Server),
    /// The floor that does our storage.
    Stores(Server),
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
        Self::Floor(Self::plain(model, "bench/floor/wrangler.toml", "worker.js"))
    }

    /// Starts the floor that does our storage.
    pub fn stores(model: &ModelServer) -> Self {
        Self::Stores(Self::plain(model, "bench/floor/stores.toml", "stores.js"))
    }

    /// Starts a Worker that refuses every request.
    pub fn refusing(model: &ModelServer) -> Self {
        Self::Floor(Self::plain(model, "bench/floor/refusing.toml", "refusing.js"))
    }

    fn plain(model: &ModelServer, config: &str, main: &'static str) -> Server {
        let bindings = json!({ "OPENAI_BASE_URL": model.base_url() });
        let config = config.into();
        Server::launch(Launch { config, main, bindings, databases: None, inspected: false, page: false })
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
        Self::Ours(Self::worker(model, more, "wrangler.toml".into(), "build/index.js", false))
    }

    /// Starts the Worker with additional settings, and also that of the other version if there is one.
    pub fn versions(model: &ModelServer, more: &Value) -> Vec<Self> {
        // The folder of another version's clone, in which `make build` has run.
        let other = std::env::var_os("OTHER").map(|folder| {
            let config = Path::new(&folder).join("wrangler.toml");
            Self::Other(Self::worker(model, more, config, "build/index.js", false))
        });
        [Self::with(model, more)].into_iter().chain(other).collect()
    }

    /// Starts the release Worker with meters (`bench/meter`) and V8's inspector, in a folder with a copy of both.
    ///
    /// # Errors
    /// When the files cannot be copied.
    pub fn metered(model: &ModelServer) -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("target/metered");
        fs::create_dir_all(&folder)?;
        for file in
            ["build/index.js", "build/index_bg.wasm", "bench/meter/worker.js", "bench/meter/counts.js"]
        {
            let from = root.join(file);
            fs::copy(&from, folder.join(from.file_name().unwrap_or_default()))?;
        }
        Ok(Self::Ours(Self::worker(
            model,
            &json!({}),
            "wrangler.toml".into(),
            "target/metered/worker.js",
            true,
        )))
    }

    fn worker(
        model: &ModelServer,
        more: &Value,
        config: PathBuf,
        main: &'static str,
        inspected: bool,
    ) -> Server {
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
        Server::launch(Launch { config, main, bindings, databases: None, inspected, page: false })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct(_) => "direct",
            Self::Floor(_) => "floor",
            Self::Stores(_) => "stores",
            Self::Ours(_) => "ours",
            Self::Other(_) => "other",
        }
    }

    /// Returns the name of a figure of this target.
    pub fn label(&self, figure: &str) -> String {
        match self {
            Self::Ours(_) => figure.to_owned(),
            _ => format!("{}: {figure}", self.name()),
        }
    }

    /// Returns the Worker's process, to be restarted.
    pub fn server_mut(&mut self) -> Option<&mut Server> {
        match self {
            Self::Direct(_) => None,
            Self::Floor(server) | Self::Stores(server) | Self::Ours(server) | Self::Other(server) => {
                Some(server)
            }
        }
    }

    /// Returns the Worker's process; `None` for the model server, which runs in this process.
    pub fn server(&self) -> Option<&Server> {
        match self {
            Self::Direct(_) => None,
            Self::Floor(server) | Self::Stores(server) | Self::Ours(server) | Self::Other(server) => {
                Some(server)
            }
        }
    }

    /// Runs one turn and reads its stream to the end.
    pub fn turn(&self, session: &str, text: &str) -> io::Result<Timing> {
        self.turn_with(DEV_API_KEY, session, text)
    }

    /// Runs one turn with a key of a tenant.
    pub fn turn_with(&self, key: &str, session: &str, text: &str) -> io::Result<Timing> {
        let address = match (self, self.server()) {
            (Self::Direct(address), _) => *address,
            (_, Some(server)) => server.address(),
            (_, None) => return Err(io::Error::other("the target does not run")),
        };
        let (path, body, first, last) = match self {
            Self::Direct(_) => {
                let messages = json!([{"role": "user", "content": text}]);
                let body = json!({"model": "bench", "stream": true, "messages": messages});
                ("/v1/chat/completions".into(), body, r#""content":"token"#, "data: [DONE]")
            }
            Self::Floor(_) | Self::Stores(_) => {
                let body = json!({ "content": text });
                (format!("/turn/{session}"), body, r#""content":"token"#, "data: [DONE]")
            }
            Self::Ours(_) | Self::Other(_) => {
                let path = format!("/v1/sessions/{session}/messages");
                (path, json!({ "content": text }), "event: message.delta", "event: turn.completed")
            }
        };
        exchange(address, key, &Exchange { path, body, headers: Vec::new(), first, last })
    }
}

/// A request whose response is a stream.
pub struct Exchange {
    pub path: String,
    pub body: Value,
    /// Headers besides those of each request.
    pub headers: Vec<(&'static str, String)>,
    /// What the first token contains.
    pub first: &'static str,
    /// What a complete stream contains.
    pub last: &'static str,
}

/// Sends a request and reads its stream to the end.
pub fn exchange(address: SocketAddr, key: &str, asked: &Exchange) -> io::Result<Timing> {
    let Exchange { path, body, headers, first, last } = asked;
    let all = [
        ("authorization", format!("Bearer {key}")),
        ("content-type", "application/json".into()),
        ("accept", "application/json, text/event-stream".into()),
    ];
    let all = all.into_iter().chain(headers.iter().cloned()).map(|(name, value)| (name.to_owned(), value));
    let headers: Vec<_> = all.collect();
    let start = Instant::now();
    let mut answer = http::send(address, "POST", path, &headers, body.to_string().as_bytes())?;
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
            Err(io::Error::other(format!("{} {}", answer.status, said.chars().take(400).collect::<String>())))
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
