//! The sandbox of a call. `confine` applies it to the process that then runs the call; `probe` tries whether it holds.

mod files;
mod namespaces;
mod probe;
mod system_calls;

pub use namespaces::separate;
pub use probe::{Holes, probe};

use super::job::{Job, Limits};
use rustix::{
    process::{Resource, Rlimit, setrlimit},
    thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities},
};
use std::io;

/// Size of the largest file that a call can write, in bytes.
const MAX_FILE: u64 = 4 << 30;

/// Number of processes by which the kernel's limit is above that of the supervisor, which says why a call was ended.
const SPARE_PROCESSES: u32 = 256;

/// Why the sandbox could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The namespaces.
    #[error("the namespaces of the sandbox: {0}")]
    Namespaces(io::Error),
    /// Landlock.
    #[error("Landlock: {0}")]
    Files(#[from] landlock::RulesetError),
    /// Seccomp.
    #[error("seccomp: {0}")]
    SystemCalls(#[from] seccompiler::Error),
    /// Limits and capabilities.
    #[error("the limits of the sandbox: {0}")]
    Limits(rustix::io::Errno),
}

/// Confines this process and all that it starts. Nothing undoes it.
///
/// # Errors
/// Anything that could not be set up: the call must not run then.
pub fn confine(job: &Job) -> Result<(), SandboxError> {
    limit(&job.limits, job.sandbox.is_some_and(|sandbox| sandbox.namespaces))?;
    let Some(sandbox) = job.sandbox else { return Ok(()) };
    if sandbox.namespaces {
        namespaces::view(job).map_err(SandboxError::Namespaces)?;
    }
    give_up_capabilities().map_err(SandboxError::Limits)?;
    files::confine(job, sandbox.namespaces)?;
    system_calls::confine(job.reach.network, sandbox.namespaces)?;
    Ok(())
}

fn limit(limits: &Limits, namespaces: bool) -> Result<(), SandboxError> {
    let set = |resource, value: u64| {
        let limit = Rlimit { current: Some(value), maximum: Some(value) };
        setrlimit(resource, limit).map_err(SandboxError::Limits)
    };
    set(Resource::Core, 0)?;
    set(Resource::Fsize, MAX_FILE)?;
    set(Resource::Data, limits.memory)?;
    if namespaces {
        // In a user namespace, only its own processes count. Elsewhere all of the user's would.
        set(Resource::Nproc, limits.processes.saturating_add(SPARE_PROCESSES).into())?;
    }
    Ok(())
}

/// Drops all capabilities, for a runner that root started and for those of a new user namespace.
fn give_up_capabilities() -> rustix::io::Result<()> {
    let none = CapabilitySet::empty();
    clear_ambient_capability_set()?;
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}
