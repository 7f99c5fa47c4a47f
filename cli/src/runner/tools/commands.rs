//! The tools that are programs: the shell, Git, and the project's own checks.

use super::{ToolError, parse};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// The shells, of which the first one is used that this machine has.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];
/// Options of Git that keep the settings of a repository from running programs and from writing.
const GIT: &[&str] = &["git", "--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false"];

/// The commands that the user has configured.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// What checks the project, in this order.
    pub verify: Vec<String>,
}

#[derive(Deserialize)]
struct Shell {
    command: String,
}

#[derive(Deserialize)]
struct Diff {
    path: Option<String>,
    #[serde(default)]
    staged: bool,
}

impl Commands {
    pub(super) fn shell(&self, args: Value) -> Result<Vec<String>, ToolError> {
        let Shell { command } = parse(args)?;
        Ok(shell(&command))
    }

    /// Runs the checks one after the other; the first that fails ends them. Without checks there is nothing that the agent
    /// could repair, so the call does not fail.
    pub(super) fn verify(&self, _: Value) -> Result<Vec<String>, ToolError> {
        if self.verify.is_empty() {
            return Ok(shell("echo 'Nothing was checked: the runner was started without --verify COMMAND.'"));
        }
        let checks = self
            .verify
            .iter()
            .map(|command| format!("echo {}\n({command}\n)", quoted(&format!("$ {command}"))));
        Ok(shell(&format!("set -e\n{}", checks.collect::<Vec<_>>().join("\n"))))
    }

    pub(super) fn git_status(&self, _: Value) -> Result<Vec<String>, ToolError> {
        Ok(git(&["status", "--short", "--branch"]))
    }

    pub(super) fn git_diff(&self, args: Value) -> Result<Vec<String>, ToolError> {
        let Diff { path, staged } = parse(args)?;
        let mut command = git(&["diff", "--no-ext-diff", "--no-textconv", "--no-color"]);
        command.extend(staged.then(|| "--staged".to_owned()));
        command.push("--".to_owned());
        command.extend(path);
        Ok(command)
    }
}

fn shell(script: &str) -> Vec<String> {
    let [preferred, always] = SHELLS;
    let program = if Path::new(preferred).exists() { preferred } else { always };
    [program, "-c", script].map(str::to_owned).to_vec()
}

fn git(args: &[&str]) -> Vec<String> {
    GIT.iter().chain(args).map(|arg| (*arg).to_owned()).collect()
}

/// Quotes a text for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::process::Command;

    fn run(command: &[String]) -> (Option<i32>, String) {
        let output = Command::new(&command[0]).args(&command[1..]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn the_first_check_that_fails_ends_them() {
        let verify = ["echo 'it works'", "exit 3", "echo never"].map(str::to_owned).to_vec();
        let command = Commands { verify }.verify(json!({})).unwrap();
        assert_eq!(run(&command), (Some(3), "$ echo 'it works'\nit works\n$ exit 3\n".into()));
        let (code, output) = run(&Commands::default().verify(json!({})).unwrap());
        assert_eq!(code, Some(0));
        assert!(output.starts_with("Nothing was checked"), "{output}");
    }

    #[test]
    fn a_path_is_never_an_option_of_git() {
        let command = Commands::default().git_diff(json!({"path": "--output=x", "staged": true})).unwrap();
        assert_eq!(command[command.len() - 3..], ["--staged", "--", "--output=x"]);
    }
}
