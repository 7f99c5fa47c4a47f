//! Runs the program.

use crate::support::{ADMIN_KEY, DEV_API_KEY, Server};
use serde_json::Value;
use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

/// The program, with a folder for its configuration and its working directory.
pub struct Agentctl {
    home: tempfile::TempDir,
    url: String,
    key: Option<&'static str>,
}

/// What a command printed, and its exit code.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Agentctl {
    /// The program with the key of a tenant.
    pub fn new(server: &Server) -> Self {
        Self::with(server, Some(DEV_API_KEY))
    }

    /// The program with the operator's key.
    pub fn operator(server: &Server) -> Self {
        Self::with(server, Some(ADMIN_KEY))
    }

    /// The program without a key in its environment.
    pub fn without_key(server: &Server) -> Self {
        Self::with(server, None)
    }

    fn with(server: &Server, key: Option<&'static str>) -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { home, url: format!("http://{}", server.address()), key }
    }

    /// The folder in which commands run.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// Runs a command.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    /// Runs a command with this standard input.
    pub fn run_with(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // A command that does not read its input closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns a command that is not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentctl"));
        command.args(args).current_dir(self.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear().envs(self.variables());
        command
    }

    /// The environment of the program.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            // Cargo, which `new` runs, needs the real home.
            ("HOME", std::env::var("HOME").unwrap()),
            ("PATH", std::env::var("PATH").unwrap()),
            ("XDG_CONFIG_HOME", self.home.path().join("config").display().to_string()),
            ("XDG_STATE_HOME", self.home.path().join("state").display().to_string()),
            ("TERM", "xterm-256color".to_owned()),
            ("EDGE_HARNESS_URL", self.url.clone()),
        ];
        variables.extend(self.key.map(|key| ("EDGE_HARNESS_KEY", key.to_owned())));
        variables
    }
}

impl Ran {
    /// Asserts the exit code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Returns the only line of the output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }

    /// Returns each line of the output as JSON.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
