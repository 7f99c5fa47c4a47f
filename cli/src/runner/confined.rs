//! The process of a call: it enters the sandbox, and then runs a tool or a program.

use super::{
    job::{End, Job, Work},
    root::Root,
    sandbox,
    supervisor::report,
    tool_error::ToolError,
    tools,
};
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, waitpid};
use std::{
    env,
    io::{self, Write as _},
    os::fd::AsFd as _,
    process::{Command, ExitCode, Stdio},
};

/// Runs the job that standard input describes, and reports its end on standard error.
pub fn main() -> ExitCode {
    report(&match run() {
        Ok(end) => end,
        Err(error) => End::Failed(error.to_string()),
    });
    ExitCode::SUCCESS
}

fn run() -> Result<End, ToolError> {
    // The supervisor may be killed, too.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    let job: Job = serde_json::from_reader(io::stdin()).map_err(io::Error::from)?;
    env::set_current_dir(&job.root)?;
    sandbox::confine(&job).map_err(|error| ToolError::Other(error.to_string()))?;
    let output = match &job.work {
        Work::Command(command) => return execute(command),
        Work::Tool { name, args } => tools::compute(name, args, &Root::open(&job.root)?)?,
        Work::Probe { readable, hidden, process } => {
            let holes = sandbox::probe(readable, hidden, *process);
            serde_json::to_string(&holes).map_err(io::Error::from)?
        }
    };
    io::stdout().write_all(output.as_bytes())?;
    Ok(End::Exit(0))
}

/// Runs a program. Its errors and its output are one stream, in the order in which it writes them.
fn execute(command: &[String]) -> Result<End, ToolError> {
    let [program, args @ ..] = command else { return Err(ToolError::Other("there is no command".into())) };
    let output = || io::stdout().as_fd().try_clone_to_owned().map(Stdio::from);
    let spawned =
        Command::new(program).args(args).stdin(Stdio::null()).stdout(output()?).stderr(output()?).spawn();
    let child = spawned.map_err(|error| ToolError::Other(format!("{program} cannot be started: {error}")))?;
    let id = Pid::from_raw(child.id().cast_signed());
    // As the first process of a namespace, this one is the parent of all that lose theirs.
    loop {
        match waitpid(None, WaitOptions::empty()) {
            Ok(Some((process, status))) if Some(process) == id => {
                let code = status.exit_status().map(End::Exit);
                return Ok(code.or(status.terminating_signal().map(End::Signal)).unwrap_or(End::Exit(-1)));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}
