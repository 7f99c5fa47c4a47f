//! Runs calls on this machine.

use super::{
    job::{End, Job, Limit, Limits, Reach, Sandbox, Work},
    output::Output,
    root::Root,
    tool_error::ToolError,
    tools::{Commands, Tool},
};
use crate::{api::Api, error::Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    env, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
};

/// Variables of the environment that commands get.
const VARIABLES: &[&str] = &["HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TZ", "USER"];
/// Variables with which programs ask no questions, and do not page or color their output.
const FIXED: &[(&str, &str)] = &[
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("TERM", "dumb"),
];
/// Time of a tool that starts no program of the project.
const TOOL_TIME: Duration = Duration::from_secs(60);
/// Length of what the process of a call reports, in bytes.
const MAX_REPORT: u64 = 64 << 10;

/// What the user lets commands do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder, without links.
    pub root: PathBuf,
    /// The commands of the project.
    pub commands: Commands,
    /// Folders that commands may read, too.
    pub read: Vec<PathBuf>,
    /// Folders that commands may change, too.
    pub write: Vec<PathBuf>,
    /// Whether commands may use the network.
    pub network: bool,
    /// More variables of the environment.
    pub env: Vec<(String, String)>,
    /// The limits of a command.
    pub limits: Limits,
}

/// This machine, as calls use it.
pub struct Machine {
    settings: Settings,
    root: Root,
    sandbox: Option<Sandbox>,
}

/// What the server gets for a call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The result.
    Answer(String),
    /// Why there is none.
    Error(String),
}

impl Answer {
    /// Returns the answer with a note at its end.
    pub fn with(self, note: &str) -> Self {
        match self {
            Self::Answer(text) => Self::Answer(text + note),
            Self::Error(text) => Self::Error(text + note),
        }
    }
}

/// The result of running a call.
#[derive(Debug)]
pub struct Outcome {
    /// What the server gets.
    pub answer: Answer,
    /// The file in the folder that has all of the output, if the answer lacks a part of it.
    pub output: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Time {
    timeout_s: Option<u64>,
}

impl Machine {
    /// Opens the folder. Without a sandbox, commands can do whatever the user can.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn new(settings: Settings, sandbox: Option<Sandbox>) -> Result<Self, ToolError> {
        let root = Root::open(&settings.root)?;
        Ok(Self { settings, root, sandbox })
    }

    /// Runs a call until it ends, or until `stop` does. `progress` gets the output while it is written.
    pub async fn run(
        &self,
        tool: Tool,
        args: Value,
        call: &str,
        stop: impl Future<Output = ()>,
        progress: impl FnMut(&[u8]),
    ) -> Outcome {
        let mut output = Output::new(&self.root, call);
        if let Some(length) = tool.whole_output() {
            output.keep(length);
        }
        let end = match self.job(tool, args) {
            Ok((job, temporary)) => {
                let end = execute(&job, self.env(&temporary), &mut output, stop, progress).await;
                // Files without permissions may stay; they are in the folder of the system for such files.
                drop(temporary);
                end
            }
            Err(error) => Err(error),
        };
        let file = output.file().map(Path::to_owned);
        let answer = match end {
            Ok(end) => answer(end, output.finish(), &self.settings.limits, tool.is_check()),
            Err(error) => Answer::Error(error.to_string()),
        };
        Outcome { answer, output: file }
    }

    /// Reads a file of the folder; `None` if it cannot be read, or is too long for a tool.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.root.bytes(path).ok().flatten()
    }

    /// Returns where the journal of the calls of a source in this folder is.
    ///
    /// # Errors
    /// The user has no home.
    pub fn journal(&self, api: &Api, source: &str) -> crate::error::Result<PathBuf> {
        let state = dirs::state_dir().ok_or_else(|| Error::Usage("HOME is not set".into()))?;
        let of = json!([api.url().as_str(), self.settings.root, source]).to_string();
        let name: String = Sha256::digest(of).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        Ok(state.join("agentctl/runner").join(name))
    }

    fn job(&self, tool: Tool, args: Value) -> Result<(Job, tempfile::TempDir), ToolError> {
        let time = Time::deserialize(&args).ok().and_then(|time| time.timeout_s);
        let (work, reach) = tool.work(&self.settings.commands, args)?;
        let temporary = tempfile::tempdir()?;
        let Settings { root, read, write, network, limits, .. } = self.settings.clone();
        let is_command = matches!(work, Work::Command(_));
        let mut reach = Reach { read, write: Vec::new(), network: network && reach.writes, ..reach };
        if reach.writes && is_command {
            reach.write = write;
        }
        reach.write.push(temporary.path().to_owned());
        let own = if reach.writes && is_command { limits.time } else { TOOL_TIME.min(limits.time) };
        let limits = Limits { time: time.map_or(own, Duration::from_secs).min(own), ..limits };
        Ok((Job { root, reach, sandbox: self.sandbox, limits, work }, temporary))
    }

    fn env(&self, temporary: &tempfile::TempDir) -> Vec<(String, String)> {
        let mut variables: Vec<_> =
            VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?))).collect();
        variables.extend(FIXED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        variables.push(("TMPDIR".to_owned(), temporary.path().display().to_string()));
        variables.extend(self.settings.env.clone());
        variables
    }
}

/// Runs a job in its own process.
pub(super) async fn execute(
    job: &Job,
    env: Vec<(String, String)>,
    output: &mut Output<'_>,
    stop: impl Future<Output = ()>,
    mut progress: impl FnMut(&[u8]),
) -> Result<End, ToolError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(super::SUPERVISOR).env_clear().envs(env).current_dir(&job.root);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (input, stdout) = (child.stdin.take(), child.stdout.take());
    // The process ends everything as soon as this end of the pipe is closed.
    let (Some(input), Some(mut stdout)) = (input, stdout) else {
        return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
    };
    let mut input = Some(input);
    if let Some(input) = &mut input {
        let mut line = serde_json::to_vec(job)?;
        line.push(b'\n');
        input.write_all(&line).await?;
    }
    let mut stop = std::pin::pin!(stop);
    let (mut is_stopped, mut piece, mut failed) = (false, vec![0; 64 << 10], None);
    loop {
        tokio::select! {
            read = stdout.read(&mut piece) => match read? {
                0 => break,
                _ if failed.is_some() || output.is_full() => input = None,
                length => {
                    progress(&piece[..length]);
                    if let Err(error) = output.push(&piece[..length]) {
                        (failed, input) = (Some(error), None);
                    }
                }
            },
            () = &mut stop, if !is_stopped => (is_stopped, input) = (true, None),
        }
    }
    drop(input);
    let end = report(&mut child).await?;
    match failed {
        Some(error) => Err(error),
        None if output.is_full() => Ok(End::Limit(Limit::Output)),
        None => Ok(end),
    }
}

/// Reads how the job ended. A limit that the supervisor has enforced counts more than what the process itself reports.
async fn report(child: &mut Child) -> Result<End, ToolError> {
    let mut text = Vec::new();
    if let Some(errors) = child.stderr.take() {
        errors.take(MAX_REPORT).read_to_end(&mut text).await?;
    }
    child.wait().await?;
    let text = String::from_utf8_lossy(&text);
    let ends: Vec<End> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let enforced = ends.iter().find(|end| matches!(end, End::Limit(_) | End::Stopped));
    enforced
        .or(ends.first())
        .cloned()
        .ok_or_else(|| ToolError::Other("the process of the call was lost".into()))
}

/// Returns the answer to a call whose program was not successful.
fn ended(is_check: bool, text: String) -> Answer {
    if is_check { Answer::Error(text) } else { Answer::Answer(text) }
}

/// Returns the answer to a call that has ended. The call of a check fails if its program does.
fn answer(end: End, mut output: String, limits: &Limits, is_check: bool) -> Answer {
    if !output.is_empty() && !output.ends_with('\n') && end != End::Exit(0) {
        output.push('\n');
    }
    let limit = match end {
        End::Exit(0) if output.is_empty() => return Answer::Answer("[no output]".into()),
        End::Exit(0) => return Answer::Answer(output),
        End::Exit(code) => return ended(is_check, format!("{output}[exit code {code}]")),
        End::Signal(signal) => return ended(is_check, format!("{output}[ended by signal {signal}]")),
        End::Failed(error) => return Answer::Error(error),
        End::Stopped => "it was stopped".to_owned(),
        End::Limit(Limit::Time) => "it ran out of time".to_owned(),
        End::Limit(Limit::Memory) => format!("it used more than {} MiB of memory", limits.memory >> 20),
        End::Limit(Limit::Processes) => format!("it used more than {} processes", limits.processes),
        End::Limit(Limit::Output) => "it wrote too much output".to_owned(),
    };
    Answer::Error(format!(
        "{output}[the command was ended because {limit}; it may have taken effect in part]"
    ))
}
