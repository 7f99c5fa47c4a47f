//! What the runner has claimed or begun and not yet reported, on disk, so that a runner that is killed neither repeats a
//! command nor loses an answer.

use super::machine::Answer;
use crate::{
    error::{Error, InFile as _, Result},
    wire::Pending,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
};

/// A call in a session. The hash of its arguments tells it from one of a deleted session with the same id.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct CallKey {
    /// The session.
    pub session: String,
    /// The call.
    pub call: String,
    /// The hash of its arguments.
    pub args_hash: Option<String>,
}

impl CallKey {
    /// Returns the key of a call that waits.
    pub fn of(session: &str, call: &Pending) -> Self {
        Self { session: session.to_owned(), call: call.call_id.clone(), args_hash: call.args_hash.clone() }
    }
}

/// A call that was begun and not yet reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// The name as which a runner has claimed the call.
    pub runner: String,
    /// The answer, if the call has ended.
    pub answer: Option<Answer>,
}

/// A line of the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// The runner of this name claims the call.
    Claimed(CallKey, String),
    /// The call begins now, claimed by the runner of this name.
    Started(CallKey, String),
    /// The call has this answer.
    Ended(CallKey, Answer),
    /// The server has the answer, or needs none.
    Posted(CallKey),
}

/// The calls that are not yet reported.
#[derive(Debug, Default, PartialEq)]
struct Calls {
    /// The calls that are claimed and have not begun, as far as the journal shows, with the names of the claims. The start of a
    /// call that only reads is not in the journal.
    claims: BTreeMap<CallKey, String>,
    begun: BTreeMap<CallKey, Begun>,
}

/// The journal of one runner.
pub struct Journal {
    path: PathBuf,
    file: File,
    calls: Calls,
}

impl Journal {
    /// Opens the journal, and with it the right to be the only runner that uses it.
    ///
    /// # Errors
    /// Another runner uses it, or it cannot be read or written.
    pub fn open(path: &Path) -> Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).in_file(parent)?;
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).read(true).append(true).open(path).in_file(path)?;
        if file.try_lock().is_err() {
            let why = "another runner serves the same calls in this folder";
            return Err(Error::Usage(format!("{why} (it holds {})", path.display())));
        }
        let calls = read(&file).in_file(path)?;
        let mut journal = Self { path: path.to_owned(), file, calls };
        journal.shorten()?;
        Ok(journal)
    }

    /// Returns the calls that an earlier runner has begun; those without an answer may or may not have had an effect.
    pub fn unreported(&self) -> Vec<(CallKey, Begun)> {
        self.calls.begun.iter().map(|(key, begun)| (key.clone(), begun.clone())).collect()
    }

    /// Returns the name as which a runner has claimed a call that did not begin. The claim of a runner that was killed lasts,
    /// so the next one continues it.
    pub fn claimant(&self, key: &CallKey) -> Option<&str> {
        self.calls.claims.get(key).map(String::as_str)
    }

    /// Notes that a runner is about to claim a call.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn claim(&mut self, key: &CallKey, runner: &str) -> Result<()> {
        self.write(Entry::Claimed(key.clone(), runner.to_owned()))
    }

    /// Forgets the claims of calls that no longer wait.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn keep_claims(&mut self, waits: impl Fn(&CallKey) -> bool) -> Result<()> {
        let over: Vec<CallKey> = self.calls.claims.keys().filter(|key| !waits(key)).cloned().collect();
        over.iter().try_for_each(|key| self.posted(key))
    }

    /// Notes that a call begins. It must not begin before this returns.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn start(&mut self, key: &CallKey, runner: &str) -> Result<()> {
        self.write(Entry::Started(key.clone(), runner.to_owned()))
    }

    /// Notes the answer of a call, before it is sent.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn end(&mut self, key: &CallKey, answer: &Answer) -> Result<()> {
        self.write(Entry::Ended(key.clone(), answer.clone()))
    }

    /// Notes that the server needs no answer of the call any more.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn posted(&mut self, key: &CallKey) -> Result<()> {
        if !self.calls.begun.contains_key(key) && !self.calls.claims.contains_key(key) {
            return Ok(());
        }
        self.write(Entry::Posted(key.clone()))?;
        self.shorten()
    }

    fn write(&mut self, entry: Entry) -> Result<()> {
        self.append(&entry)?;
        self.calls.apply(entry);
        Ok(())
    }

    fn append(&mut self, entry: &Entry) -> Result<()> {
        // The last line may have been cut off.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, entry).map_err(std::io::Error::from)?;
        self.file.write_all(&line).in_file(&self.path)?;
        self.file.sync_data().in_file(&self.path)
    }

    /// Empties the file if nothing is left to report. The lock belongs to the file, which therefore stays the same.
    fn shorten(&mut self) -> Result<()> {
        if self.calls == Calls::default() {
            self.file.set_len(0).and_then(|()| self.file.sync_data()).in_file(&self.path)?;
        }
        Ok(())
    }
}

impl Calls {
    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Claimed(key, runner) => drop(self.claims.insert(key, runner)),
            Entry::Started(key, runner) => {
                self.claims.remove(&key);
                self.begun.insert(key, Begun { runner, answer: None });
            }
            Entry::Ended(key, answer) => {
                if let Some(begun) = self.begun.get_mut(&key) {
                    begun.answer = Some(answer);
                }
            }
            Entry::Posted(key) => {
                self.claims.remove(&key);
                self.begun.remove(&key);
            }
        }
    }
}

/// Reads the calls without a report. A line that was cut off by a crash never took effect.
fn read(file: &File) -> std::io::Result<Calls> {
    let mut calls = Calls::default();
    for line in BufReader::new(file).split(b'\n') {
        if let Ok(entry) = serde_json::from_slice(&line?) {
            calls.apply(entry);
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        thread,
        time::{Duration, Instant},
    };

    fn key(call: &str) -> CallKey {
        CallKey { session: "s".into(), call: call.into(), args_hash: Some("h".into()) }
    }

    /// Opens a journal that was closed. A process that another test starts holds the lock, too, until it runs its program.
    fn reopened(path: &Path) -> Journal {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match Journal::open(path) {
                Err(Error::Usage(_)) if Instant::now() < deadline => thread::yield_now(),
                journal => return journal.unwrap(),
            }
        }
    }

    #[test]
    fn what_is_not_reported_is_there_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/journal");
        let answer = Answer::Answer("done".into());
        let mut journal = Journal::open(&path).unwrap();
        for call in ["begun", "ended", "posted"] {
            journal.start(&key(call), "a").unwrap();
        }
        journal.end(&key("ended"), &answer).unwrap();
        journal.end(&key("posted"), &answer).unwrap();
        journal.posted(&key("posted")).unwrap();
        drop(journal);
        // The crash cut a line off.
        let text = fs::read_to_string(&path).unwrap() + "\n{\"started\":{\"sess";
        fs::write(&path, text).unwrap();

        let mut journal = reopened(&path);
        let begun = |answer| Begun { runner: "a".into(), answer };
        assert_eq!(journal.unreported(), [(key("begun"), begun(None)), (key("ended"), begun(Some(answer)))]);
        journal.start(&key("later"), "b").unwrap();
        drop(journal);
        let mut journal = reopened(&path);
        assert_eq!(journal.unreported().len(), 3);
        for call in ["begun", "ended", "later"] {
            journal.posted(&key(call)).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn a_claim_is_there_after_a_crash_until_its_call_begins_or_no_longer_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path).unwrap();
        for call in ["begun", "waits", "over"] {
            journal.claim(&key(call), "a").unwrap();
        }
        journal.start(&key("begun"), "a").unwrap();
        drop(journal);
        let mut journal = reopened(&path);
        let claimants =
            |journal: &Journal| ["begun", "waits", "over"].map(|call| journal.claimant(&key(call)).is_some());
        assert_eq!(claimants(&journal), [false, true, true]);
        journal.keep_claims(|of| *of == key("waits")).unwrap();
        assert_eq!(claimants(&journal), [false, true, false]);
        assert_eq!(journal.unreported().len(), 1);
        journal.posted(&key("begun")).unwrap();
        journal.posted(&key("waits")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn only_one_runner_uses_a_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let first = Journal::open(&path).unwrap();
        assert!(matches!(Journal::open(&path), Err(Error::Usage(_))));
        drop(first);
        reopened(&path);
    }
}
