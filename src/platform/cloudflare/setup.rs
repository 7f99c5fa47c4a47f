//! Builds the parts of the Worker from bindings, variables and secrets.

use super::{
    body::use_engine_microtasks,
    crypto::WebCrypto,
    d1::{D1Directory, D1Files, Shards},
    fetch::{WorkerAi, WorkerHttp},
    inbox::InboxObjects,
    ledger::LedgerObjects,
    r2::R2Blobs,
    runtime::{ConsoleLog, WorkerClock, WorkerEntropy, log_panic},
};
use crate::agent::{HarnessAgent, HarnessBuilder};
use crate::http::{
    AuthCache, DirectoryCredentials, MalformedSetting, TenantSecrets,
    crypto::AdminSealer,
    placement::{SHARD_TTL, user_shard},
};
use crate::mcp::{self, Listings, McpServers};
use crate::memory::{Memories, terms::index_terms};
use crate::model::{ModelRegistry, one_shot::OneShotModel};
use crate::platform::sql::{SqlAgents, SqlConsents, SqlMemory, SqlMoves, SqlSecrets, SqlSpaces};
use crate::ports::{
    Ai, BlobStore, Clock, Credentials, Directory, Entropy, Http, Inbox, Ledger, MemoryIndex, MemorySpaces,
    Moves, Signatures,
};
use crate::remote::{RemoteModel, RemotePorts};
use crate::standard::{
    Config, Standard, add_servers,
    agents::{AgentParts, Agents, BuiltAgent},
    builder,
    definition::{AgentConfig, Definition},
    settings::SettingError,
    unusable,
};
use crate::tools::http_tool::{HttpTool, HttpToolPorts};
use crate::types::{ErrorCode, Problem, RemoteAgent, SubagentKind};
use crate::workspace::{Bundle, Stores, Workspaces};
use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
    thread::LocalKey,
    time::Duration,
};
use worker::{Env, Result};

/// Adds a deployment's own tools and hooks to the standard agent.
pub type Customize = fn(HarnessBuilder) -> HarnessBuilder;

thread_local! {
    static CUSTOMIZE: Cell<Customize> = const { Cell::new(|builder| builder) };
    // Shared by the gateway and all objects of an isolate, whose bindings never change.
    static CONFIG: Once<Loaded> = const { OnceCell::new() };
    static AGENT: Once<BuiltAgent> = const { OnceCell::new() };
    static AGENTS: Once<Agents> = const { OnceCell::new() };
    static SECRETS: Once<TenantSecrets> = const { OnceCell::new() };
    static MODELS: Once<ModelRegistry> = const { OnceCell::new() };
    static MEMORIES: Once<Memories> = const { OnceCell::new() };
    // Counts the changes made through this isolate.
    static WORKSPACES: Once<Workspaces> = const { OnceCell::new() };
    static AUTH_CACHE: Rc<AuthCache> = Rc::default();
    // Caches the tenants' placement.
    static SHARDS: Once<Shards> = const { OnceCell::new() };
}

/// A part of the Worker that is built once per isolate.
type Once<T> = OnceCell<Rc<T>>;

/// Returns a part, and builds it first if this is the first call that succeeds.
fn once<T>(part: &'static LocalKey<Once<T>>, build: impl FnOnce() -> Result<T>) -> Result<Rc<T>> {
    part.with(|cell| match cell.get() {
        Some(built) => Ok(Rc::clone(built)),
        None => {
            let built = Rc::new(build()?);
            Ok(Rc::clone(cell.get_or_init(|| built)))
        }
    })
}

/// Prepares the isolate. [`worker!`](crate::worker) calls it before any handler runs.
pub fn start(customize: Customize) {
    std::panic::set_hook(Box::new(log_panic));
    use_engine_microtasks();
    CUSTOMIZE.set(customize);
}

/// Returns a variable or secret; `None` if it is absent or empty.
fn var(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string()).filter(|value| !value.is_empty())
}

/// The settings, and the errors of those that are malformed and have their defaults.
struct Loaded {
    config: Config,
    errors: Vec<SettingError>,
}

/// Returns the settings of this isolate.
fn loaded(env: &Env) -> Rc<Loaded> {
    CONFIG.with(|cell| {
        let load = || {
            let (config, errors) = Config::read(&|name| var(env, name));
            Rc::new(Loaded { config, errors })
        };
        Rc::clone(cell.get_or_init(load))
    })
}

/// Calls `read` with the settings.
pub fn with_config<T>(env: &Env, read: impl FnOnce(&Config) -> T) -> T {
    read(&loaded(env).config)
}

/// Returns the malformed settings, without their values.
pub fn malformed(env: &Env) -> Vec<MalformedSetting> {
    let errors = &loaded(env).errors;
    errors.iter().map(|error| MalformedSetting { name: error.name, expects: error.expects }).collect()
}

/// Returns the models that this deployment offers.
pub fn models(env: &Env) -> Result<Rc<ModelRegistry>> {
    once(&MODELS, || {
        let binding = js_sys::Reflect::get(env.as_ref(), &"AI".into()).ok().filter(|ai| ai.is_object());
        let ai = binding.map(|ai| Rc::new(WorkerAi(ai)) as Rc<dyn Ai>);
        Ok(ModelRegistry::new(loaded(env).config.models.clone(), http(), ai, clock()))
    })
}

/// Returns the agent with the settings of the deployment.
///
/// # Errors
/// All malformed settings, or why the agent does not build.
pub fn agent(env: &Env) -> Result<Rc<HarnessAgent>> {
    base(env).map(|base| Rc::clone(&base.agent))
}

fn base(env: &Env) -> Result<Rc<BuiltAgent>> {
    once(&AGENT, || {
        let loaded = loaded(env);
        // Sessions do not need the operator's key.
        let errors = loaded.errors.iter().filter(|error| error.name != "ADMIN_KEY");
        let errors: Vec<_> = errors.map(ToString::to_string).collect();
        if !errors.is_empty() {
            return Err(worker::Error::RustError(errors.join("\n")));
        }
        build(env, &loaded.config, AgentConfig::of_deployment(&loaded.config), |builder| builder)
    })
}

/// Builds an agent, to which `add` adds more.
fn build(
    env: &Env,
    config: &Config,
    own: AgentConfig,
    add: impl FnOnce(HarnessBuilder) -> HarnessBuilder,
) -> Result<BuiltAgent> {
    let shared = workspaces(env)?;
    let remotes: Vec<_> = own.settings.subagents.iter().flatten().filter_map(remote_of).collect();
    let files = match own.files.is_empty() {
        true => shared,
        false => Rc::new(shared.with_files(&own.files)),
    };
    let standard = Standard {
        models: models(env)?,
        clock: clock(),
        entropy: entropy(),
        http: http(),
        log: Rc::new(ConsoleLog),
        files: Rc::clone(&files),
        memories: memories(env)?,
        directory: directory(env)?,
        web_fetch_allow: config.web_fetch_allow.clone(),
        instructions: own.instructions,
        settings: own.settings,
        context: own.context,
    };
    let external = own.external_tools.into_iter();
    let builder = external.fold(builder(standard), |builder, tool| builder.dyn_tool(Rc::new(tool)));
    let allow = config.http_tools_allow.clone();
    let ports = HttpToolPorts { http: http(), secrets: secrets(env)?, allow };
    let builder = own
        .http_tools
        .into_iter()
        .fold(builder, |builder, tool| builder.dyn_tool(Rc::new(HttpTool::new(tool, ports.clone()))));
    let builder = with_remote_agents(builder, env, config, &remotes)?;
    let agent = add(CUSTOMIZE.get()(builder.only_tools(own.tools))).build();
    let agent = agent.map_err(|error| worker::Error::RustError(error.to_string()))?;
    Ok(BuiltAgent { agent: Rc::new(agent), files })
}

/// Returns the remote agent of a kind of subagents, with the id of the kind.
fn remote_of(kind: &SubagentKind) -> Option<(String, RemoteAgent)> {
    Some((kind.id.clone(), kind.remote.clone()?))
}

fn with_remote_agents(
    builder: HarnessBuilder,
    env: &Env,
    config: &Config,
    remotes: &[(String, RemoteAgent)],
) -> Result<HarnessBuilder> {
    let ports = Rc::new(RemotePorts {
        http: http(),
        secrets: secrets(env)?,
        clock: clock(),
        hosts: config.remote_agents_allow.clone(),
        spawn: Box::new(wasm_bindgen_futures::spawn_local),
    });
    let add = |builder: HarnessBuilder, (kind, agent): &(String, RemoteAgent)| {
        builder.remote_agent(kind, Rc::new(RemoteModel::new(agent, Rc::clone(&ports))))
    };
    Ok(remotes.iter().fold(builder, add))
}

/// Returns the agents of the deployment and its tenants.
pub fn agents(env: &Env) -> Result<Rc<Agents>> {
    once(&AGENTS, || {
        let loaded = loaded(env);
        let (config, env) = (Rc::clone(&loaded), env.clone());
        let settings = Box::new(move || Definition::of_deployment(&config.config));
        let (config, own) = (Rc::clone(&loaded), env.clone());
        let build_definition = Box::new(move |definition, listings: &Listings| match definition {
            None => base(&own).map(|base| BuiltAgent::clone(&base)).map_err(unbuilt),
            Some(definition) => {
                let settings = AgentConfig::of(&config.config, definition).map_err(|why| unbuilt(why.0))?;
                let servers = settings.mcp_servers.clone();
                let add = |builder| add_servers(builder, &servers, listings);
                build(&own, &config.config, settings, add).map_err(unbuilt)
            }
        });
        let own = env.clone();
        let unusable = Box::new(move |why| {
            let agent =
                unusable(models(&own).map_err(unbuilt)?, (clock(), entropy()), Rc::new(ConsoleLog), why);
            let files = workspaces(&own).map_err(unbuilt)?;
            Ok(BuiltAgent { agent: Rc::new(agent.map_err(unbuilt)?), files })
        });
        Ok(Agents::new(AgentParts {
            store: Rc::new(SqlAgents(shards(&env)?.root().clone())),
            clock: clock(),
            of_deployment: loaded.config.agents.clone(),
            http_tools_allow: loaded.config.http_tools_allow.clone(),
            remote_agents_allow: loaded.config.remote_agents_allow.clone(),
            settings,
            mcp: McpServers::new(
                mcp::Ports {
                    http: http(),
                    secrets: secrets(&env)?,
                    clock: clock(),
                    hosts: loaded.config.mcp_allow.clone(),
                    consents: Rc::new(SqlConsents(shards(&env)?.root().clone())),
                    sealer: Rc::new(AdminSealer::new(loaded.config.admin_key.as_deref(), entropy())),
                    spawn: Box::new(wasm_bindgen_futures::spawn_local),
                    entropy: entropy(),
                    public_url: loaded.config.public_url.clone(),
                },
                Rc::new(ConsoleLog),
            ),
            build: build_definition,
            unusable,
        }))
    })
}

/// The problem of an agent that does not build.
fn unbuilt(why: impl ToString) -> Problem {
    Problem::new(ErrorCode::NotConfigured, why.to_string())
}

/// Returns the secrets of the tenants.
pub fn secrets(env: &Env) -> Result<Rc<TenantSecrets>> {
    once(&SECRETS, || {
        let store = Rc::new(SqlSecrets(shards(env)?.root().clone()));
        let admin_key = loaded(env).config.admin_key.clone();
        Ok(TenantSecrets::new(store, clock(), entropy(), Rc::new(ConsoleLog), admin_key))
    })
}

/// Returns the databases of this isolate.
pub fn shards(env: &Env) -> Result<Rc<Shards>> {
    once(&SHARDS, || {
        #[cfg(feature = "fixtures")]
        super::runtime::shift_clock(var(env, "CLOCK_OFFSET_MS"));
        Shards::new(env)
    })
}

/// Returns the directory of tenants, keys and sessions.
pub fn directory(env: &Env) -> Result<Rc<dyn Directory>> {
    Ok(Rc::new(D1Directory::new(shards(env)?)))
}

/// Returns the moves of tenants between shards.
pub fn moves(env: &Env) -> Result<Rc<dyn Moves>> {
    // The clocks of isolates may differ.
    let cached = SHARD_TTL + Duration::from_mins(1);
    Ok(Rc::new(SqlMoves::new(shards(env)?, index_terms, user_shard, cached)))
}

/// Returns the isolate's cache of credentials.
pub fn auth_cache() -> Rc<AuthCache> {
    AUTH_CACHE.with(Rc::clone)
}

/// Returns the check of credentials.
pub fn credentials(env: &Env) -> Result<Rc<dyn Credentials>> {
    let (directory, clock) = (directory(env)?, clock());
    Ok(Rc::new(DirectoryCredentials { directory, clock, cache: auth_cache() }))
}

/// Returns the ledgers of the tenants.
pub fn ledger(env: &Env) -> Result<Rc<dyn Ledger>> {
    Ok(Rc::new(LedgerObjects(env.durable_object("TENANT")?)))
}

/// Returns the inboxes of the tenants.
pub fn inbox(env: &Env) -> Result<Rc<dyn Inbox>> {
    let inbox = InboxObjects(env.durable_object("TENANT")?);
    #[cfg(feature = "containers")]
    let inbox = super::container::WakingInbox { inbox, env: env.clone() };
    Ok(Rc::new(inbox))
}

/// Returns the blob store.
pub fn blobs(env: &Env) -> Result<Rc<dyn BlobStore>> {
    Ok(Rc::new(R2Blobs(env.bucket("BLOBS")?)))
}

/// Returns the workspaces of this isolate.
pub fn workspaces(env: &Env) -> Result<Rc<Workspaces>> {
    once(&WORKSPACES, || {
        let table = Rc::new(D1Files::new(shards(env)?, loaded(env).config.storage));
        let stores = Stores::new(table, blobs(env)?, clock(), entropy());
        let (index, _) = memory(env)?;
        let layer = Memories::layer(index, clock(), Rc::new(ConsoleLog));
        Ok(Workspaces::new(stores, Bundle::default()).with_layer(layer))
    })
}

/// Returns the memories of all agents.
pub fn memories(env: &Env) -> Result<Rc<Memories>> {
    once(&MEMORIES, || {
        let (index, spaces) = memory(env)?;
        let model = OneShotModel { models: models(env)?, clock: clock(), entropy: entropy() };
        let settings = loaded(env).config.memory.clone();
        let memories = Memories::new(index, spaces, workspaces(env)?, model, settings, Rc::new(ConsoleLog));
        Ok(memories.with_ledger(ledger(env)?))
    })
}

/// Returns the memory index and the memory spaces.
pub fn memory(env: &Env) -> Result<(Rc<dyn MemoryIndex>, Rc<dyn MemorySpaces>)> {
    let (shards, limits) = (shards(env)?, loaded(env).config.storage);
    Ok((Rc::new(SqlMemory::new(Rc::clone(&shards), limits)), Rc::new(SqlSpaces::new(shards))))
}

/// Returns the clock.
pub fn clock() -> Rc<dyn Clock> {
    Rc::new(WorkerClock)
}

/// Returns the source of randomness.
pub fn entropy() -> Rc<dyn Entropy> {
    Rc::new(WorkerEntropy)
}

/// Outbound HTTP.
pub fn http() -> Rc<dyn Http> {
    Rc::new(WorkerHttp)
}

/// Returns the verifier of signatures.
pub fn signatures() -> Rc<dyn Signatures> {
    Rc::new(WebCrypto)
}
