//! What the runner tells the process of a call to do, and what that process reports.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{path::PathBuf, time::Duration};

/// One call, in the process that runs it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Job {
    /// The folder of the runner.
    pub root: PathBuf,
    /// What the process may reach.
    pub reach: Reach,
    /// The sandbox; `None` if the user has switched it off.
    pub sandbox: Option<Sandbox>,
    /// The limits.
    pub limits: Limits,
    /// What to do.
    pub work: Work,
}

/// What a process may reach, apart from reading the folder.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Reach {
    /// Whether it may change the folder.
    pub writes: bool,
    /// Whether it may read the system's files and start programs.
    pub system: bool,
    /// Folders of the user that it may read, too.
    pub read: Vec<PathBuf>,
    /// Folders of the user that it may change, too.
    pub write: Vec<PathBuf>,
    /// Whether it may use the network.
    pub network: bool,
}

/// Which protections this machine has.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sandbox {
    /// Whether each call gets namespaces of its own.
    pub namespaces: bool,
}

/// What a call may use up.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Limits {
    /// Time from start to end.
    pub time: Duration,
    /// Memory of all its processes together, in bytes.
    pub memory: u64,
    /// Number of processes and threads at a time.
    pub processes: u32,
}

/// The work of a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Work {
    /// Runs a tool in this process, and prints its result.
    Tool {
        /// Its name.
        name: String,
        /// Its arguments.
        args: Value,
    },
    /// Runs a program.
    Command(Vec<String>),
    /// Tries what the sandbox must prevent, and prints a [`Holes`](super::sandbox::Holes) as JSON.
    Probe {
        /// A file that the process may read.
        readable: PathBuf,
        /// A file that the process may not read.
        hidden: PathBuf,
        /// A process outside.
        process: u32,
    },
}

/// How a process ended: a line of JSON on its standard error.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum End {
    /// The tool printed its result, or the program ended with this code.
    Exit(i32),
    /// A signal ended the program.
    Signal(i32),
    /// The tool failed, or the process could not be set up.
    Failed(String),
    /// It was ended because it reached a limit.
    Limit(Limit),
    /// The runner stopped it.
    Stopped,
}

/// A limit that a call reached.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Limit {
    /// [`Limits::time`]
    Time,
    /// [`Limits::memory`]
    Memory,
    /// [`Limits::processes`]
    Processes,
    /// The size of the output.
    Output,
}
