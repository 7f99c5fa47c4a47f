//! One part of an export: a zip archive with a bounded number of calls and bytes, and its manifest.

use super::Position;
use super::output::Output;
use super::zip::Zip;
use crate::http::page;
use crate::ports::{Clock, Log};
use crate::types::{MoveId, TenantId, Timestamp, UserId};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Display;
use std::rc::Rc;
use std::time::Duration;

/// Number of calls of databases and objects after which a part ends: the platform allows 1,000 in one invocation.
const CALLS: usize = 600;
/// Number of bytes after which a part ends. The log of a session is never divided, so a part can be larger.
const BYTES: usize = 32 << 20;
/// Number of entries after which a part ends: the format allows 65,535.
const ENTRIES: usize = 10_000;
/// Time after which a part ends, because the request for a part checks the credential.
const TIME: Duration = Duration::from_mins(1);
/// Maximum size of lines that are collected before they are sent.
const LINES: usize = 64 << 10;

/// The subject of an export: a tenant, or one of its users.
#[derive(Clone)]
pub struct Subject {
    /// The tenant.
    pub tenant: TenantId,
    /// The user, if not the whole tenant.
    pub user: Option<UserId>,
    /// The tenant's last move.
    pub moved: Option<MoveId>,
}

/// How much a part contains.
#[derive(Default, Serialize)]
pub struct Counts {
    /// Number of session logs.
    pub sessions: u64,
    /// Number of artifacts and attachments.
    pub artifacts: u64,
    /// Number of lines with facts.
    pub facts: u64,
    /// Number of lines with turns.
    pub turns: u64,
    /// Number of files.
    pub files: u64,
}

/// A part that is being written.
pub struct Part {
    output: Output,
    zip: Zip,
    subject: Subject,
    /// When the part was started.
    now: Timestamp,
    clock: Rc<dyn Clock>,
    log: Rc<dyn Log>,
    calls: usize,
    bytes: usize,
    entries: usize,
    failed: Vec<Value>,
    /// Lines of the current entry that were not sent yet.
    lines: Vec<u8>,
    /// What the part contains.
    pub counts: Counts,
    /// The lines of `sessions.ndjson`: entries of an archive cannot be written side by side.
    pub sessions: Vec<u8>,
}

impl Part {
    /// Starts a part.
    pub fn new(output: Output, subject: Subject, clock: Rc<dyn Clock>, log: Rc<dyn Log>) -> Self {
        Self {
            output,
            zip: Zip::default(),
            subject,
            now: clock.now(),
            clock,
            log,
            calls: 0,
            bytes: 0,
            entries: 0,
            failed: Vec::new(),
            lines: Vec::new(),
            counts: Counts::default(),
            sessions: Vec::new(),
        }
    }

    /// Counts calls of databases and objects.
    pub fn spend(&mut self, calls: usize) {
        self.calls += calls;
    }

    /// Returns whether the rest belongs into the next part.
    pub fn is_full(&self) -> bool {
        let is_late = self.clock.now() >= self.now + TIME;
        is_late || self.calls >= CALLS || self.bytes >= BYTES || self.entries >= ENTRIES
    }

    /// Begins an entry.
    pub async fn begin(&mut self, name: &str) {
        self.entries += 1;
        let header = self.zip.begin(name, self.now);
        self.output.send(header).await;
    }

    /// Adds content of any size to the entry that was begun. Returns `false` if the archive has no room for it.
    pub async fn content(&mut self, bytes: Bytes) -> bool {
        if !self.zip.has_room(bytes.len()) {
            return false;
        }
        self.add(bytes).await;
        true
    }

    /// Adds content for which an archive always has room.
    async fn add(&mut self, bytes: Bytes) {
        self.bytes += bytes.len();
        self.zip.content(&bytes);
        self.output.send(bytes).await;
    }

    /// Adds a line of JSON to the entry that was begun.
    pub async fn line(&mut self, line: &impl Serialize) {
        push_line(&mut self.lines, line);
        if self.lines.len() >= LINES {
            self.flush().await;
        }
    }

    async fn flush(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        self.add(lines.into()).await;
    }

    /// Ends the entry that was begun.
    pub async fn end(&mut self) {
        self.flush().await;
        let descriptor = self.zip.end();
        self.output.send(descriptor).await;
    }

    /// Adds a whole entry, which is not large.
    pub async fn entry(&mut self, name: &str, content: impl Into<Bytes>) {
        self.begin(name).await;
        self.add(content.into()).await;
        self.end().await;
    }

    /// Reports an entry that is missing or incomplete in the manifest, and logs the cause.
    pub fn fail(&mut self, name: &str, reason: &str, cause: &dyn Display) {
        self.failed.push(json!({ "name": name, "reason": reason }));
        self.log.error(&json!({
            "event": "export.failed", "tenant": self.subject.tenant, "reason": reason, "cause": cause.to_string(),
        }));
    }

    /// Ends the part. `next` is where the next one starts.
    pub async fn finish(mut self, next: Option<Position>) {
        if !self.sessions.is_empty() {
            let lines = std::mem::take(&mut self.sessions);
            self.entry("sessions.ndjson", lines).await;
        }
        let next = next.and_then(|next| page::encode(&(&self.subject.moved, next)).ok());
        let manifest = json!({
            "tenant": self.subject.tenant, "user": self.subject.user, "created_at": self.now,
            "complete": next.is_none(), "next": next, "counts": self.counts, "failed": self.failed,
        });
        self.entry("manifest.json", manifest.to_string()).await;
        let Self { zip, mut output, .. } = self;
        output.send(zip.finish()).await;
    }
}

/// Appends a line of JSON.
pub fn push_line(lines: &mut Vec<u8>, line: &impl Serialize) {
    // Writing plain data to memory cannot fail.
    let _ = serde_json::to_writer(&mut *lines, line);
    lines.push(b'\n');
}
