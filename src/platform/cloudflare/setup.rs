//! From bindings, variables and secrets to the parts of the Worker.

use super::{
    crypto::WebCrypto,
    d1::{D1Directory, D1Files, Shards},
    fetch::{WorkerAi, WorkerHttp},
    r2::R2Blobs,
    runtime::{ConsoleLog, WorkerClock, WorkerEntropy},
};
use crate::agent::{BuildError, HarnessAgent, HarnessBuilder};
use crate::memory::Memories;
use crate::model::{ModelRegistry, ask::Aside};
use crate::platform::sql::{SqlMemory, SqlSpaces};
use crate::ports::{Ai, BlobStore, Clock, Directory, Entropy, Http, MemoryIndex, MemorySpaces, Signatures};
use crate::standard::{Standard, builder, context_settings, external_tools, memory_settings, settings};
use crate::workspace::{Bundle, Stores, Workspaces};
use std::{cell::OnceCell, rc::Rc};
use worker::{Env, Result};

thread_local! {
    // One isolate serves many objects.
    static AGENT: OnceCell<Rc<HarnessAgent>> = const { OnceCell::new() };
    // What it knows of tenants is worth keeping.
    static SHARDS: OnceCell<Rc<Shards>> = const { OnceCell::new() };
}

/// A variable or secret; `None` when it is absent or empty.
pub fn var(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string()).filter(|value| !value.is_empty())
}

/// The models that this deployment offers.
pub fn models(env: &Env) -> ModelRegistry {
    let binding = js_sys::Reflect::get(env.as_ref(), &"AI".into()).ok().filter(|ai| ai.is_object());
    let ai = binding.map(|ai| Rc::new(WorkerAi(ai)) as Rc<dyn Ai>);
    ModelRegistry::new(&|name| var(env, name), http(), ai, clock())
}

/// The agent of this isolate, built once.
pub fn agent(env: &Env) -> Result<Rc<HarnessAgent>> {
    let faulty = |error: BuildError| worker::Error::RustError(error.to_string());
    AGENT.with(|cell| {
        if let Some(agent) = cell.get() {
            return Ok(Rc::clone(agent));
        }
        let models = models(env);
        memory_settings(&|name| var(env, name)).map_err(faulty)?;
        if let Err(why) = models.check() {
            return Err(faulty(BuildError::Variable { name: "MODEL_PRICES", why: why.to_owned() }));
        }
        let standard = Standard {
            models: Rc::new(models),
            clock: clock(),
            entropy: entropy(),
            http: http(),
            log: Rc::new(ConsoleLog),
            files: workspaces(env)?,
            memories: memories(env)?,
            directory: directory(env)?,
            web_fetch_allow: var(env, "WEB_FETCH_ALLOW").unwrap_or_default(),
            instructions: var(env, "INSTRUCTIONS"),
            settings: settings(&|name| var(env, name)).map_err(faulty)?,
            context: context_settings(&|name| var(env, name)).map_err(faulty)?,
        };
        let external = external_tools(&|name| var(env, name)).map_err(faulty)?;
        let own = |builder: HarnessBuilder, tool| builder.dyn_tool(Rc::new(tool));
        let agent = external.into_iter().fold(builder(standard), own).build().map_err(faulty)?;
        let agent = Rc::new(agent);
        Ok(Rc::clone(cell.get_or_init(|| agent)))
    })
}

/// The databases of this isolate, found once.
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

/// Tenants, keys and the list of sessions.
pub fn directory(env: &Env) -> Result<Rc<dyn Directory>> {
    Ok(Rc::new(D1Directory::new(shards(env)?)))
}

/// Large things.
pub fn blobs(env: &Env) -> Result<Rc<dyn BlobStore>> {
    Ok(Rc::new(R2Blobs(env.bucket("BLOBS")?)))
}

/// The files of all agents.
pub fn workspaces(env: &Env) -> Result<Rc<Workspaces>> {
    let table = Rc::new(D1Files::new(shards(env)?));
    let stores = Stores { table, blobs: blobs(env)?, clock: clock(), entropy: entropy() };
    let (index, _) = memory(env)?;
    let layer = Memories::layer(index, clock(), Rc::new(ConsoleLog));
    Ok(Rc::new(Workspaces::new(stores, Bundle::default()).with_layer(layer)))
}

/// What all agents remember. A variable that is wrong is told by the [`agent`]; what needs none works.
pub fn memories(env: &Env) -> Result<Rc<Memories>> {
    let (index, spaces) = memory(env)?;
    let aside = Aside { models: Rc::new(models(env)), clock: clock(), entropy: entropy() };
    let settings = memory_settings(&|name| var(env, name)).unwrap_or_default();
    let log = Rc::new(ConsoleLog);
    Ok(Rc::new(Memories::new(index, spaces, workspaces(env)?, aside, settings, log)))
}

/// Where memory is kept.
pub fn memory(env: &Env) -> Result<(Rc<dyn MemoryIndex>, Rc<dyn MemorySpaces>)> {
    let shards = shards(env)?;
    Ok((Rc::new(SqlMemory::new(Rc::clone(&shards))), Rc::new(SqlSpaces::new(shards))))
}

/// The clock.
pub fn clock() -> Rc<dyn Clock> {
    Rc::new(WorkerClock)
}

/// Chance.
pub fn entropy() -> Rc<dyn Entropy> {
    Rc::new(WorkerEntropy)
}

/// Outbound HTTP.
pub fn http() -> Rc<dyn Http> {
    Rc::new(WorkerHttp)
}

/// Signatures of public keys.
pub fn signatures() -> Rc<dyn Signatures> {
    Rc::new(WebCrypto)
}
