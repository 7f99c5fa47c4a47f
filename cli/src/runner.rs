//! The runner: runs the local tools of agents on this machine, in a sandbox.
//!
//! Each call gets two processes of this program. The *supervisor* watches the limits and ends everything that the call has
//! started; its child, the *confined* process, enters the sandbox and runs a tool or a program.

mod beside;
mod check;
mod confined;
mod job;
mod journal;
mod machine;
mod options;
mod output;
mod processes;
mod root;
mod sandbox;
mod serve;
mod source;
mod supervisor;
mod tool_error;
mod tools;

pub(crate) use beside::serve_beside;
pub(crate) use journal::Journal;
pub(crate) use machine::{Answer, Machine};
pub(crate) use options::Options;
pub(crate) use serve::{News, Server};
pub(crate) use source::{AgentCalls, SessionCalls, Source};
pub(crate) use tools::{TOOLS, find, for_call};

use std::{env, process::ExitCode};

/// First argument of a supervisor.
const SUPERVISOR: &str = "runner-supervisor";
/// First argument of a confined process.
const CONFINED: &str = "runner-confined";

/// Runs the process of a call, if this is one. It must have no other thread, because namespaces need that.
pub fn process_of_call() -> Option<ExitCode> {
    match env::args().nth(1)?.as_str() {
        SUPERVISOR => Some(supervisor::main()),
        CONFINED => Some(confined::main()),
        _ => None,
    }
}
