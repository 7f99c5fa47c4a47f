//! Builds the parts of the Worker from bindings, variables and secrets.

use super::{
    body::use_engine_microtasks,
    crypto::WebCrypto,
    d1::{D1Directory, D1Files, Shards},
    fetch::{WorkerAi, WorkerHttp},
    r2::R2Blobs,
    runtime::{ConsoleLog, WorkerClock, WorkerEntropy, log_panic},
};
use crate::agent::{HarnessAgent, HarnessBuilder};
use crate::http::MalformedSetting;
use crate::memory::Memories;
use crate::model::{ModelRegistry, one_shot::OneShotModel};
use crate::platform::sql::{SqlMemory, SqlSpaces};
use crate::ports::{Ai, BlobStore, Clock, Directory, Entropy, Http, MemoryIndex, MemorySpaces, Signatures};
use crate::standard::{Config, Standard, builder, settings::SettingError};
use crate::tools::ExternalTool;
use crate::workspace::{Bundle, Stores, Workspaces};
use std::{
    cell::{Cell, OnceCell},
    rc::Rc,
};
use worker::{Env, Result};

/// Adds a deployment's own tools and hooks to the standard agent.
pub type Customize = fn(HarnessBuilder) -> HarnessBuilder;

thread_local! {
    static CUSTOMIZE: Cell<Customize> = const { Cell::new(|builder| builder) };
    // Parsed once; an isolate's bindings never change.
    static CONFIG: OnceCell<Rc<Loaded>> = const { OnceCell::new() };
    // Shared by all objects of an isolate.
    static AGENT: OnceCell<Rc<HarnessAgent>> = const { OnceCell::new() };
    // Shared, because it counts the changes made through this isolate.
    static WORKSPACES: OnceCell<Rc<Workspaces>> = const { OnceCell::new() };
    // Shared, because it caches the tenants' placement.
    static SHARDS: OnceCell<Rc<Shards>> = const { OnceCell::new() };
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
pub fn models(env: &Env) -> ModelRegistry {
    let binding = js_sys::Reflect::get(env.as_ref(), &"AI".into()).ok().filter(|ai| ai.is_object());
    let ai = binding.map(|ai| Rc::new(WorkerAi(ai)) as Rc<dyn Ai>);
    ModelRegistry::new(loaded(env).config.models.clone(), http(), ai, clock())
}

/// Returns the agent of this isolate, built once.
///
/// # Errors
/// All malformed settings, or why the agent does not build.
pub fn agent(env: &Env) -> Result<Rc<HarnessAgent>> {
    AGENT.with(|cell| {
        if let Some(agent) = cell.get() {
            return Ok(Rc::clone(agent));
        }
        let loaded = loaded(env);
        if !loaded.errors.is_empty() {
            let errors: Vec<_> = loaded.errors.iter().map(ToString::to_string).collect();
            return Err(worker::Error::RustError(errors.join("\n")));
        }
        let config = &loaded.config;
        let standard = Standard {
            models: Rc::new(models(env)),
            clock: clock(),
            entropy: entropy(),
            http: http(),
            log: Rc::new(ConsoleLog),
            files: workspaces(env)?,
            memories: memories(env)?,
            directory: directory(env)?,
            web_fetch_allow: config.web_fetch_allow.clone(),
            instructions: config.instructions.clone(),
            settings: config.agent.clone(),
            context: config.context(),
        };
        let add = |builder: HarnessBuilder, tool: &ExternalTool| builder.dyn_tool(Rc::new(tool.clone()));
        let builder = CUSTOMIZE.get()(config.external_tools.iter().fold(builder(standard), add));
        let agent = builder.build().map_err(|error| worker::Error::RustError(error.to_string()))?;
        Ok(Rc::clone(cell.get_or_init(|| Rc::new(agent))))
    })
}

/// Returns the databases of this isolate, looked up once.
pub fn shards(env: &Env) -> Result<Rc<Shards>> {
    SHARDS.with(|cell| match cell.get() {
        Some(shards) => Ok(Rc::clone(shards)),
        None => {
            #[cfg(feature = "fixtures")]
            super::runtime::shift_clock(var(env, "CLOCK_OFFSET_MS"));
            let shards = Rc::new(Shards::new(env)?);
            Ok(Rc::clone(cell.get_or_init(|| shards)))
        }
    })
}

/// Returns the directory of tenants, keys and sessions.
pub fn directory(env: &Env) -> Result<Rc<dyn Directory>> {
    Ok(Rc::new(D1Directory::new(shards(env)?)))
}

/// Returns the blob store.
pub fn blobs(env: &Env) -> Result<Rc<dyn BlobStore>> {
    Ok(Rc::new(R2Blobs(env.bucket("BLOBS")?)))
}

/// Returns the workspaces of this isolate, built once.
pub fn workspaces(env: &Env) -> Result<Rc<Workspaces>> {
    WORKSPACES.with(|cell| {
        if let Some(workspaces) = cell.get() {
            return Ok(Rc::clone(workspaces));
        }
        let table = Rc::new(D1Files::new(shards(env)?));
        let stores = Stores::new(table, blobs(env)?, clock(), entropy());
        let (index, _) = memory(env)?;
        let layer = Memories::layer(index, clock(), Rc::new(ConsoleLog));
        let workspaces = Rc::new(Workspaces::new(stores, Bundle::default()).with_layer(layer));
        Ok(Rc::clone(cell.get_or_init(|| workspaces)))
    })
}

/// Returns the memories of all agents.
pub fn memories(env: &Env) -> Result<Rc<Memories>> {
    let (index, spaces) = memory(env)?;
    let model = OneShotModel { models: Rc::new(models(env)), clock: clock(), entropy: entropy() };
    let settings = loaded(env).config.memory.clone();
    let log = Rc::new(ConsoleLog);
    Ok(Rc::new(Memories::new(index, spaces, workspaces(env)?, model, settings, log)))
}

/// Returns the memory index and the memory spaces.
pub fn memory(env: &Env) -> Result<(Rc<dyn MemoryIndex>, Rc<dyn MemorySpaces>)> {
    let shards = shards(env)?;
    Ok((Rc::new(SqlMemory::new(Rc::clone(&shards))), Rc::new(SqlSpaces::new(shards))))
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
