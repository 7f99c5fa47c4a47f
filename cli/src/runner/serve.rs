//! Claims calls of their source, runs them one after the other, and answers them.

use super::{
    journal::{Begun, CallKey, Journal},
    machine::{Answer, Machine, Outcome},
    source::Source,
    tools::{Tool, for_call},
};
use crate::{
    api::{Api, segment},
    backoff::insist,
    error::{Error, Result},
    waits::Wait,
    wire::Pending,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{cell::RefCell, path::Path, pin::pin, time::Duration};
use uuid::Uuid;

/// How long a claim lasts. An answer that does not arrive in this time, because the machine sleeps or has no connection, is lost.
const LEASE: Duration = Duration::from_mins(5);
/// How often the claim of a call that runs is extended.
const RENEWAL: Duration = Duration::from_mins(1);
/// How often the server gets what a command has written.
const REPORTS: Duration = Duration::from_secs(3);
/// Most of what a command has written since the last report, in bytes. Of more, the server gets the end.
const MAX_REPORT: usize = 8 << 10;
/// Time for the last answer when the user leaves.
const LEAVING: Duration = Duration::from_secs(5);
/// Size of the largest output that becomes an artifact, in bytes: that of the largest request.
const MAX_ARTIFACT: usize = 4 << 20;
/// Time to upload it.
const UPLOAD: Duration = Duration::from_secs(30);
/// Length of an error that every server accepts, in characters.
const SHORT_ERROR: usize = 1_500;
/// The answer of a call that was running when the runner was killed.
const UNKNOWN: &str = "the outcome is unknown: the runner was stopped while the call ran. It may have taken effect, wholly or \
                       in part. Check what it did before you repeat it.";

/// What the runner shows.
pub enum News<'a> {
    /// A call begins.
    Started(&'a Wait),
    /// The call has written this.
    Output(&'a [u8]),
    /// The call has this answer, which the server has got.
    Answered(&'a CallKey, &'a Answer),
    /// The server does not need the answer any more, for this reason.
    Dropped(&'a CallKey, &'a Error),
    /// The connection is lost.
    Lost(&'a Error),
}

/// An attachment that the server has stored.
#[derive(Deserialize)]
struct Stored {
    #[serde(rename = "ref")]
    artifact: String,
}

/// The server's response to an answer. The response of a proxy has no `turn_id`.
#[derive(Deserialize)]
struct Receipt {
    #[serde(rename = "turn_id")]
    _turn_id: String,
}

/// A call that this machine has claimed.
struct Claimed {
    wait: Wait,
    tool: Tool,
    args: Value,
    /// The name of the claim.
    name: String,
}

/// Runs local calls of a source.
pub struct Server<'a, S, N> {
    api: &'a Api,
    machine: &'a Machine,
    source: S,
    journal: Journal,
    /// The name as which this process claims calls. No other process has it, but the next one continues claims of it.
    name: String,
    show: N,
}

impl<'a, S: Source, N: FnMut(News<'_>)> Server<'a, S, N> {
    /// Serves the calls of a source on this machine.
    pub fn new(api: &'a Api, machine: &'a Machine, source: S, journal: Journal, show: N) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = format!("{host}-{}", Uuid::new_v4().simple());
        Self { api, machine, source, journal, name, show }
    }

    /// Runs calls until `stop` ends. A command that runs then is ended, and its call gets an answer.
    ///
    /// # Errors
    /// `Interrupted` after a stop, what the server refuses, and a journal that cannot be written.
    pub async fn serve(mut self, stop: impl Future<Output = ()>) -> Result<()> {
        let mut stop = pin!(stop);
        tokio::select! {
            result = self.report_earlier() => result?,
            () = &mut stop => return Err(Error::Interrupted),
        }
        let mut waiting = Vec::new();
        loop {
            let Some((wait, tool, args)) = first(&waiting, |key| self.name_for(key)) else {
                waiting = tokio::select! {
                    waiting = self.source.next() => waiting?,
                    () = &mut stop => return Err(Error::Interrupted),
                };
                let keys: Vec<_> = waiting.iter().map(Wait::key).collect();
                self.journal.keep_claims(|key| keys.contains(key))?;
                continue;
            };
            let key = wait.key();
            let name = self.name_for(&key).to_owned();
            self.journal.claim(&key, &name)?;
            let claimed = tokio::select! {
                claimed = claim(self.api, &key, &name, |error| (self.show)(News::Lost(error))) => claimed?,
                () = &mut stop => return Err(Error::Interrupted),
            };
            match claimed {
                Some(call) => {
                    let claimed = Claimed { wait: Wait { call, ..wait }, tool, args, name };
                    let is_stopped = self.run(&claimed, &key, &mut waiting, &mut stop).await?;
                    if is_stopped {
                        return Err(Error::Interrupted);
                    }
                }
                None => self.journal.posted(&key)?,
            }
            waiting.retain(|other| other.key() != key);
        }
    }

    /// Returns the name as which to claim a call: that of an earlier runner, if it was killed before the call began.
    fn name_for(&self, key: &CallKey) -> &str {
        self.journal.claimant(key).unwrap_or(&self.name)
    }

    /// Answers the calls that an earlier runner has begun.
    async fn report_earlier(&mut self) -> Result<()> {
        for (key, Begun { runner, answer }) in self.journal.unreported() {
            let answer = answer.unwrap_or_else(|| Answer::Error(UNKNOWN.into()));
            self.journal.end(&key, &answer)?;
            self.post(&key, &runner, &answer).await?;
        }
        Ok(())
    }

    /// Runs a call and answers it. Returns whether `stop` has ended.
    async fn run(
        &mut self,
        claimed: &Claimed,
        key: &CallKey,
        waiting: &mut Vec<Wait>,
        mut stop: impl Future<Output = ()> + Unpin,
    ) -> Result<bool> {
        let Claimed { wait, tool, args, name } = claimed;
        (self.show)(News::Started(wait));
        if !tool.is_repeatable() {
            self.journal.start(key, name)?;
        }
        let Self { api, machine, source, show, .. } = self;
        let mut is_stopped = false;
        let written = RefCell::new(Vec::new());
        let ended = async {
            tokio::select! {
                () = &mut stop => is_stopped = true,
                () = gone(source, key, waiting) => {}
                () = keep(api, key, name) => {}
                () = report(api, key, name, &written) => {}
            }
        };
        let progress = |piece: &[u8]| {
            append(&mut written.borrow_mut(), piece);
            show(News::Output(piece));
        };
        let outcome = machine.run(*tool, args.clone(), &wait.call.call_id, ended, progress).await;
        let Outcome { answer, output } = outcome;
        if !tool.is_repeatable() {
            self.journal.end(key, &answer)?;
        }
        if is_stopped {
            // The next runner sends an answer that does not arrive now.
            let _ = tokio::time::timeout(LEAVING, self.post(key, name, &answer)).await;
        } else {
            let api = self.api;
            let kept = async {
                keep(api, key, name).await;
                std::future::pending::<()>().await;
            };
            // What a tool only reads is not worth storing, and nobody waits for a call that was aborted.
            let waits = waiting.iter().any(|wait| wait.key() == *key);
            let output = output.filter(|_| waits && !tool.is_repeatable());
            let posted = async {
                let answer = match &output {
                    // The answer in the journal lacks only the note.
                    Some(output) => self.attach(key, output, answer).await,
                    None => answer,
                };
                self.post(key, name, &answer).await
            };
            tokio::select! {
                posted = posted => posted?,
                () = kept => {}
                () = &mut stop => is_stopped = true,
            }
        }
        Ok(is_stopped)
    }

    /// Stores all of a long output as an artifact of the session, and returns the answer with a note of it. If that fails,
    /// the file in the folder is all there is.
    async fn attach(&mut self, key: &CallKey, output: &Path, answer: Answer) -> Answer {
        let Some(bytes) = self.machine.read(output).filter(|bytes| bytes.len() <= MAX_ARTIFACT) else {
            return answer;
        };
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let upload = self.api.post(&format!("/v1/sessions/{}/attachments", segment(&key.session)));
        let upload = upload.query("name", &name).header("content-type", "text/plain; charset=utf-8");
        match tokio::time::timeout(UPLOAD, upload.body(bytes).json()).await {
            Ok(Ok(Stored { artifact })) => {
                answer.with(&format!("\n[all of it is also in the artifact {artifact}]"))
            }
            _ => answer,
        }
    }

    /// Sends the answer of the runner that has claimed the call, until the server has it.
    async fn post(&mut self, key: &CallKey, runner: &str, answer: &Answer) -> Result<()> {
        let path = format!("/v1/sessions/{}/answers/{}", segment(&key.session), segment(&key.call));
        let mut body = serde_json::to_value(answer).map_err(std::io::Error::from)?;
        body["runner"] = runner.into();
        if let Some(hash) = &key.args_hash {
            body["args_hash"] = hash.as_str().into();
        }
        let request = || self.api.post(&path).header("prefer", "respond-async").body_json(&body);
        let attempt = async || request().json::<Receipt>().await;
        match insist(attempt, |error| (self.show)(News::Lost(error))).await {
            Ok(_) => (self.show)(News::Answered(key, answer)),
            // It is too large, together with other answers.
            Err(error) if is_invalid(&error) && matches!(answer, Answer::Answer(_)) => {
                let failed = Answer::Error(format!("the server refuses the result: {error}"));
                return Box::pin(self.post(key, runner, &failed)).await;
            }
            // An older server accepts only short errors. The end of the output says most.
            Err(error)
                if is_invalid(&error)
                    && let Some(short) = shortened(answer) =>
            {
                return Box::pin(self.post(key, runner, &short)).await;
            }
            // The turn was aborted, the session deleted, or an earlier attempt was successful.
            Err(error) if is_settled(&error) || is_invalid(&error) => (self.show)(News::Dropped(key, &error)),
            Err(error) => return Err(error),
        }
        self.journal.posted(key)
    }
}

/// Returns the answer with the end of its error, if that is long.
fn shortened(answer: &Answer) -> Option<Answer> {
    let Answer::Error(text) = answer else { return None };
    let left_out = text.chars().count().checked_sub(SHORT_ERROR).filter(|more| *more > 0)?;
    Some(Answer::Error(text.chars().skip(left_out).collect()))
}

/// Claims a call, or extends the claim. Returns the call; `None` if another runner has it, or it no longer waits.
async fn claim(api: &Api, key: &CallKey, name: &str, on_lost: impl FnMut(&Error)) -> Result<Option<Pending>> {
    let path = format!("/v1/pending/{}/claim", segment(&key.call));
    let body = json!({"runner": name, "lease_s": LEASE.as_secs()});
    let request = || api.post(&path).query("session", &key.session).body_json(&body);
    match insist(async || request().json::<Pending>().await, on_lost).await {
        Ok(call) => {
            // A session that was deleted and created again may have another call with this id.
            Ok(Some(call).filter(|call| CallKey::of(&key.session, call) == *key))
        }
        Err(error) if is_settled(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Extends the claim of a call until it is lost.
async fn keep(api: &Api, key: &CallKey, name: &str) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        if let Ok(None) = claim(api, key, name, |_| ()).await {
            return;
        }
    }
}

/// Appends what a command has written, and keeps the end.
fn append(written: &mut Vec<u8>, piece: &[u8]) {
    written.extend(piece);
    written.drain(..written.len().saturating_sub(MAX_REPORT));
}

/// Sends the server what a command has written, again and again. What does not arrive is not sent again: the answer has it.
async fn report(api: &Api, key: &CallKey, name: &str, written: &RefCell<Vec<u8>>) {
    let path = format!("/v1/pending/{}/progress", segment(&key.call));
    loop {
        tokio::time::sleep(REPORTS).await;
        let output = written.take();
        if !output.is_empty() {
            let body = json!({"runner": name, "output": String::from_utf8_lossy(&output)});
            let _ = api.post(&path).query("session", &key.session).body_json(&body).once().await;
        }
    }
}

/// Returns whether the server does not take an answer of this form.
fn is_invalid(error: &Error) -> bool {
    matches!(error, Error::Refused(problem) if matches!(problem.status, 413 | 422))
}

/// Returns whether no answer can change anything about the call any more.
fn is_settled(error: &Error) -> bool {
    matches!(error, Error::Refused(problem) if matches!(problem.status, 404 | 409 | 410))
}

/// Returns the first call for a runner that no other runner has claimed, with its tool and arguments. `name` is the name as
/// which this one claims a call.
fn first<'a>(waiting: &[Wait], name: impl Fn(&CallKey) -> &'a str) -> Option<(Wait, Tool, Value)> {
    let is_free =
        |wait: &&Wait| wait.call.claim.as_ref().is_none_or(|claim| claim.runner == name(&wait.key()));
    waiting.iter().filter(is_free).find_map(|wait| {
        let (tool, args) = for_call(&wait.call)?;
        Some((wait.clone(), tool, args.clone()))
    })
}

/// Waits until the call no longer waits, because its turn was aborted or another client has answered it.
async fn gone(source: &mut impl Source, key: &CallKey, waiting: &mut Vec<Wait>) {
    loop {
        match source.next().await {
            Ok(now) => *waiting = now,
            // The command ends even if the session can no longer be read; the answer then gets the error.
            Err(_) => return std::future::pending().await,
        }
        if !waiting.iter().any(|wait| wait.key() == *key) {
            return;
        }
    }
}

impl Wait {
    fn key(&self) -> CallKey {
        CallKey::of(&self.session, &self.call)
    }
}

impl News<'_> {
    /// Returns what `--json` prints, if it prints anything.
    pub fn to_json(&self) -> Option<Value> {
        let about = |status: &str, key: &CallKey, name: &str, value: &str| json!({"status": status, "session": key.session, "call_id": key.call, name: value});
        Some(match self {
            Self::Started(wait) => about("started", &wait.key(), "tool", &wait.call.name),
            Self::Answered(key, Answer::Answer(text)) => about("answered", key, "answer", text),
            Self::Answered(key, Answer::Error(error)) => about("answered", key, "error", error),
            Self::Dropped(key, error) => about("dropped", key, "reason", &error.to_string()),
            Self::Output(_) | Self::Lost(_) => return None,
        })
    }
}
