//! Takes calls from their source, runs them one after the other, and answers them.

use super::{
    journal::{CallKey, Journal},
    machine::{Answer, Machine},
    source::Source,
    tools::{Tool, find},
};
use crate::{
    api::{Api, segment},
    backoff::back_off,
    error::{Error, Result},
    waits::Wait,
};
use serde_json::{Value, json};
use std::{pin::pin, time::Duration};

/// Time for the last answer when the user leaves.
const LEAVING: Duration = Duration::from_secs(5);
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

/// Runs local calls of a source.
pub struct Server<'a, S, N> {
    api: &'a Api,
    machine: &'a Machine,
    source: S,
    journal: Journal,
    show: N,
}

impl<'a, S: Source, N: FnMut(News<'_>)> Server<'a, S, N> {
    /// Serves the calls of a source on this machine.
    pub fn new(api: &'a Api, machine: &'a Machine, source: S, journal: Journal, show: N) -> Self {
        Self { api, machine, source, journal, show }
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
            let Some((wait, tool)) = first(&waiting) else {
                waiting = tokio::select! {
                    waiting = self.source.next() => waiting?,
                    () = &mut stop => return Err(Error::Interrupted),
                };
                continue;
            };
            let key = CallKey::of(&wait.session, &wait.call);
            let is_stopped = self.run(&wait, tool, &key, &mut waiting, &mut stop).await?;
            if is_stopped {
                return Err(Error::Interrupted);
            }
            waiting.retain(|other| CallKey::of(&other.session, &other.call) != key);
        }
    }

    /// Answers the calls that an earlier runner has begun.
    async fn report_earlier(&mut self) -> Result<()> {
        for (key, answer) in self.journal.unreported() {
            let answer = answer.unwrap_or_else(|| Answer::Error(UNKNOWN.into()));
            self.journal.end(&key, &answer)?;
            self.post(&key, &answer).await?;
        }
        Ok(())
    }

    /// Runs a call and answers it. Returns whether `stop` has ended.
    async fn run(
        &mut self,
        wait: &Wait,
        tool: &Tool,
        key: &CallKey,
        waiting: &mut Vec<Wait>,
        mut stop: impl Future<Output = ()> + Unpin,
    ) -> Result<bool> {
        (self.show)(News::Started(wait));
        if !tool.is_repeatable() {
            self.journal.start(key)?;
        }
        let args = if wait.call.payload.is_null() { &wait.call.args } else { &wait.call.payload };
        let Self { machine, source, show, .. } = self;
        let mut is_stopped = false;
        let ended = async {
            tokio::select! {
                () = &mut stop => is_stopped = true,
                () = gone(source, key, waiting) => {}
            }
        };
        let progress = |piece: &[u8]| show(News::Output(piece));
        let answer = machine.run(tool, args.clone(), &wait.call.call_id, ended, progress).await;
        if !tool.is_repeatable() {
            self.journal.end(key, &answer)?;
        }
        if is_stopped {
            // The next runner sends an answer that does not arrive now.
            let _ = tokio::time::timeout(LEAVING, self.post(key, &answer)).await;
        } else {
            tokio::select! {
                posted = self.post(key, &answer) => posted?,
                () = &mut stop => is_stopped = true,
            }
        }
        Ok(is_stopped)
    }

    /// Sends an answer until the server has it.
    async fn post(&mut self, key: &CallKey, answer: &Answer) -> Result<()> {
        let path = format!("/v1/sessions/{}/answers/{}", segment(&key.session), segment(&key.call));
        let mut body = serde_json::to_value(answer).map_err(std::io::Error::from)?;
        if let Some(hash) = &key.args_hash {
            body["args_hash"] = hash.as_str().into();
        }
        let mut failures = 0;
        loop {
            let post = self.api.post(&path).header("prefer", "respond-async").body_json(&body);
            match post.json::<Value>().await {
                Ok(_) => (self.show)(News::Answered(key, answer)),
                // The turn was aborted, the session deleted, or an earlier attempt was successful.
                Err(error) if is_settled(&error) => (self.show)(News::Dropped(key, &error)),
                Err(error) if error.is_transient() || error.is_failure_of_server() => {
                    (self.show)(News::Lost(&error));
                    failures += 1;
                    back_off(failures, &error).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            return self.journal.posted(key);
        }
    }
}

/// Returns whether no answer can change anything about the call any more.
fn is_settled(error: &Error) -> bool {
    matches!(error, Error::Refused(problem) if matches!(problem.status, 404 | 409 | 410))
}

/// Returns the first call of a local tool.
fn first(waiting: &[Wait]) -> Option<(Wait, &'static Tool)> {
    let external = waiting.iter().filter(|wait| wait.call.kind == "external");
    external.filter_map(|wait| Some((wait.clone(), find(&wait.call.name)?))).next()
}

/// Waits until the call no longer waits, because its turn was aborted or another client has answered it.
async fn gone(source: &mut impl Source, key: &CallKey, waiting: &mut Vec<Wait>) {
    loop {
        match source.next().await {
            Ok(now) => *waiting = now,
            // The command ends even if the session can no longer be read; the answer then gets the error.
            Err(_) => return std::future::pending().await,
        }
        if !waiting.iter().any(|wait| CallKey::of(&wait.session, &wait.call) == *key) {
            return;
        }
    }
}

impl News<'_> {
    /// Returns what `--json` prints, if it prints anything.
    pub fn to_json(&self) -> Option<Value> {
        let about = |status: &str, key: &CallKey, name: &str, value: &str| json!({"status": status, "session": key.session, "call_id": key.call, name: value});
        Some(match self {
            Self::Started(wait) => {
                about("started", &CallKey::of(&wait.session, &wait.call), "tool", &wait.call.name)
            }
            Self::Answered(key, Answer::Answer(text)) => about("answered", key, "answer", text),
            Self::Answered(key, Answer::Error(error)) => about("answered", key, "error", error),
            Self::Dropped(key, error) => about("dropped", key, "reason", &error.to_string()),
            Self::Output(_) | Self::Lost(_) => return None,
        })
    }
}
