//! The process that watches over a call: it ends everything that the call has started, however the call ends, and also when
//! the runner itself is killed.

use super::{
    job::{End, Job, Limit, Limits},
    processes::{Tree, Usage},
    sandbox,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, WaitOptions, WaitStatus, getpid, pidfd_open, set_child_subreaper, setsid, waitpid,
    },
};
use std::{
    io::{self, BufRead as _, Write as _},
    os::fd::OwnedFd,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// Time between two measurements of the processes.
const MEASURING: Duration = Duration::from_millis(50);

/// Runs the job that standard input describes. Standard input stays open for as long as the runner wants the result.
pub fn main() -> ExitCode {
    let end = read_job().and_then(|(line, job)| supervise(&line, &job));
    match end {
        Ok(None) => {}
        Ok(Some(end)) => report(&end),
        Err(error) => report(&End::Failed(format!("the call could not be started: {error}"))),
    }
    ExitCode::SUCCESS
}

/// Reports how the call ended to the runner.
pub fn report(end: &End) {
    if let Ok(line) = serde_json::to_string(end) {
        // The runner may be gone.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

fn read_job() -> io::Result<(String, Job)> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let job = serde_json::from_str(&line)?;
    Ok((line, job))
}

/// Runs the call and returns how it ended, unless the call has reported that itself.
fn supervise(line: &str, job: &Job) -> io::Result<Option<End>> {
    let start = Instant::now();
    // Files that this program has inherited are not for the call.
    close_fds::set_fds_cloexec(3, &[]);
    // A session of its own has no terminal, and processes that lose their parent become children of this one.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    if job.sandbox.is_some_and(|sandbox| sandbox.namespaces) {
        sandbox::separate(job.reach.network)?;
    }
    let mut child = Command::new("/proc/self/exe").arg(super::CONFINED).stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(line.as_bytes())?;
    }
    let Some(id) = Pid::from_raw(child.id().cast_signed()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let end = watch(id, &job.limits, start);
    kill_all();
    end
}

/// Waits until the process ends, reaches a limit, or is no longer wanted.
fn watch(id: Pid, limits: &Limits, start: Instant) -> io::Result<Option<End>> {
    let ended: OwnedFd = pidfd_open(id, PidfdFlags::empty())?;
    let mut measured = start;
    loop {
        let Some(left) = limits.time.checked_sub(start.elapsed()) else {
            return Ok(Some(End::Limit(Limit::Time)));
        };
        if measured.elapsed() >= MEASURING {
            measured = Instant::now();
            if let Some(limit) = exceeded(Tree::of_this_process().usage(), limits) {
                return Ok(Some(End::Limit(limit)));
            }
        }
        let stdin = io::stdin();
        let mut files =
            [PollFd::new(&ended, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN | PollFlags::HUP)];
        let time = left.min(MEASURING);
        poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() }))?;
        if !files[1].revents().is_empty() {
            return Ok(Some(End::Stopped));
        }
        while let Some((process, status)) = waitpid(None, WaitOptions::NOHANG)? {
            if process == id {
                return Ok(unreported(status));
            }
        }
    }
}

fn exceeded(usage: Usage, limits: &Limits) -> Option<Limit> {
    if usage.processes > limits.processes {
        Some(Limit::Processes)
    } else if usage.memory > limits.memory {
        Some(Limit::Memory)
    } else {
        None
    }
}

/// Returns the end of a process that could not report it.
fn unreported(status: WaitStatus) -> Option<End> {
    status.terminating_signal().map(End::Signal)
}

/// Kills all processes of the call, until none is left that could have started another one.
fn kill_all() {
    loop {
        Tree::of_this_process().kill();
        match waitpid(None, WaitOptions::empty()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
