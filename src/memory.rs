//! What agents remember about their users across sessions.
//!
//! ```text
//! turn ─▶ turns of the session ─▶ index (turns)
//!      └▶ flush: facts ─▶ the day's log = index (facts) ─▶ consolidation ─▶ MEMORY.md ─▶ prompt, index
//! ```
//!
//! A daily log consists of rows of the index, shown as a file. `MEMORY.md` is a file whose lines are indexed.
//! The memory of each user with each agent is a separate collection, so the contents of one never affect the
//! results or the ranking in another.

pub mod chunks;
pub mod consolidation;
pub mod daily;
pub mod entries;
pub mod facts;
pub mod flush;
pub mod normalize;
pub mod ranking;
pub mod search;
pub mod stem;
pub mod stop_words;
pub mod terms;

use crate::model::one_shot::{OneShotModel, Spent, for_log};
use crate::ports::{
    FileError, Ledger, Log, MemoryIndex, MemorySpaces,
    filesystem::{FileResult, Precondition},
    memory::{Collection, CollectionKind, Entry, Listing, MemoryResult, NewEntry, Removal, Source},
};
use crate::types::{BoxError, EventKind, FilePath, Owner, Record, SessionId, TenantId, Timestamp, UserId};
use crate::workspace::{Guard, Workspaces, WrapTree, layout::MEMORY};
use consolidation::MAX_MEMORY;
use daily::MemoryFiles;
use entries::{Origin, entry};
use facts::NewFact;
pub use search::{Hit, search};
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;

/// Timeout of the model call that extracts facts.
const EXTRACT_TIMEOUT: Duration = Duration::from_secs(90);

/// How often a save is attempted while other writers change the file.
const MAX_SAVE_ATTEMPTS: usize = 5;

/// Settings of the memory.
#[derive(Clone, Debug, Default)]
pub struct MemorySettings {
    /// Model that extracts and consolidates facts; the session's model, or the default, when absent.
    pub model: Option<String>,
    /// When facts are extracted from messages.
    pub flush: Flush,
}

/// When facts are extracted from messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Never.
    Never,
    /// At most once per interval for each user; zero for after every turn. Messages that arrive in between
    /// are processed together at the next opportunity.
    Every(Duration),
}

impl Default for Flush {
    fn default() -> Self {
        Self::Every(Duration::ZERO)
    }
}

/// A turn of a conversation to index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTurn {
    /// Id, unique within the session. An id is stored once.
    pub id: String,
    /// Name of the speaker. `None` if the text names the speakers.
    pub speaker: Option<String>,
    /// When it was said.
    pub at: Timestamp,
    /// What was said.
    pub text: String,
}

/// Separates session and id in the key of a turn. Neither can contain it.
const SEPARATOR: char = '\u{1f}';

/// Removes the session from the key of a turn, which leaves the id that the caller stored.
fn show_id(entry: &mut Entry) {
    if let Some((_, id)) = entry.key.split_once(SEPARATOR) {
        entry.key = id.to_owned();
    }
}

impl NewTurn {
    fn entry(self, session: &SessionId) -> NewEntry {
        let origin = Origin {
            key: format!("{session}{SEPARATOR}{}", self.id),
            source: Source::Session,
            group: session.to_string(),
            session: Some(session.clone()),
            at: self.at,
            speaker: self.speaker,
        };
        entry(origin, &self.text)
    }
}

/// The memories of all tenants.
pub struct Memories {
    index: Rc<dyn MemoryIndex>,
    spaces: Rc<dyn MemorySpaces>,
    files: Rc<Workspaces>,
    one_shot: OneShotModel,
    settings: MemorySettings,
    log: Rc<dyn Log>,
    ledger: Option<Rc<dyn Ledger>>,
}

impl Memories {
    /// Creates memories over these stores. `files` must include [`Memories::layer`].
    pub fn new(
        index: Rc<dyn MemoryIndex>,
        spaces: Rc<dyn MemorySpaces>,
        files: Rc<Workspaces>,
        one_shot: OneShotModel,
        settings: MemorySettings,
        log: Rc<dyn Log>,
    ) -> Self {
        Self { index, spaces, files, one_shot, settings, log, ledger: None }
    }

    /// Counts the usage of consolidations, which belong to no session, in the ledgers of their tenants.
    #[must_use]
    pub fn with_ledger(self, ledger: Rc<dyn Ledger>) -> Self {
        Self { ledger: Some(ledger), ..self }
    }

    /// Returns whether facts are extracted from messages.
    pub fn is_learning(&self) -> bool {
        self.settings.flush != Flush::Never
    }

    /// Returns the workspace layer that shows daily logs as files and keeps `MEMORY.md` indexed.
    pub fn layer(
        index: Rc<dyn MemoryIndex>,
        clock: Rc<dyn crate::ports::Clock>,
        log: Rc<dyn Log>,
    ) -> WrapTree {
        Rc::new(move |owner: &Owner, own| {
            let Owner { tenant, agent, user } = owner.clone();
            Rc::new(MemoryFiles {
                own,
                index: Rc::clone(&index),
                facts: Collection { tenant, agent, user, kind: CollectionKind::Facts },
                clock: Rc::clone(&clock),
                log: Rc::clone(&log),
            })
        })
    }

    fn collection(owner: &Owner, kind: CollectionKind) -> Collection {
        let Owner { tenant, agent, user } = owner.clone();
        Collection { tenant, agent, user, kind }
    }

    /// Returns when facts are extracted.
    pub fn flush_setting(&self) -> Flush {
        self.settings.flush
    }

    /// Stores facts and returns how many are new. Facts that exist already stay unchanged.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn learn(&self, owner: &Owner, facts: Vec<NewFact>) -> MemoryResult<usize> {
        let entries: Vec<_> = facts.into_iter().map(NewFact::entry).collect();
        self.index.add(&Self::collection(owner, CollectionKind::Facts), &entries).await
    }

    /// Stores a fact that the user asked to remember: in the log, and immediately in `MEMORY.md` if it has
    /// room. `guard` is called before each write.
    ///
    /// # Errors
    /// Returns an error when a store is unavailable, or [`FileError::Closed`] when `guard` refuses.
    pub async fn save(&self, owner: &Owner, fact: NewFact, guard: Guard) -> FileResult<()> {
        self.index.locate(&owner.tenant).await?;
        if !guard() {
            return Err(FileError::Closed);
        }
        let line = format!("- {} ({})\n", fact.text, fact.at.date());
        self.learn(owner, vec![fact]).await?;
        let files = self.files.open(&owner.tenant, &owner.agent, &owner.user, Some(guard));
        let path = memory_path()?;
        for _ in 0..MAX_SAVE_ATTEMPTS {
            let (old, condition) = match files.read(&path).await {
                Ok((file, _)) => (file.bytes, Precondition::IfMatch(file.entry.etag)),
                Err(FileError::NotFound) => ("# Memory\n\n".into(), Precondition::CreateOnly),
                Err(error) => return Err(error),
            };
            let text = String::from_utf8_lossy(&old);
            if text.contains(line.trim_end()) || text.len() + line.len() > MAX_MEMORY {
                return Ok(());
            }
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            match files.write(&path, format!("{text}{gap}{line}").into(), &condition).await {
                Ok(_) => return Ok(()),
                Err(FileError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        // The fact is in the log, so the next consolidation adds it.
        Ok(())
    }

    /// Reads `MEMORY.md` or a daily log.
    ///
    /// # Errors
    /// Returns an error when there is no such file or a store is unavailable.
    pub async fn read(&self, owner: &Owner, path: &FilePath) -> FileResult<String> {
        let files = self.files.open(&owner.tenant, &owner.agent, &owner.user, None);
        let (file, _) = files.read(path).await?;
        Ok(String::from_utf8_lossy(&file.bytes).into_owned())
    }

    /// Returns the last messages of a session, oldest first. A long message is represented by its first part.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn history(&self, owner: &Owner, session: &SessionId, last: usize) -> MemoryResult<Vec<Entry>> {
        let group = Some(session.to_string());
        let listing = Listing { group, first_parts: true, limit: last, ..Listing::default() };
        let mut said = self.index.list(&Self::collection(owner, CollectionKind::Turns), &listing).await?;
        said.reverse();
        Ok(said)
    }

    /// Indexes the turns of a conversation in this order and returns how many are new. Turns that exist
    /// already stay unchanged.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn import(
        &self,
        owner: &Owner,
        session: &SessionId,
        turns: Vec<NewTurn>,
    ) -> MemoryResult<usize> {
        let entries: Vec<_> = turns.into_iter().map(|turn| turn.entry(session)).collect();
        if entries.is_empty() {
            return Ok(0);
        }
        self.index.add(&Self::collection(owner, CollectionKind::Turns), &entries).await
    }

    /// Removes the indexed messages of a session and the facts extracted from them. What consolidation has
    /// written to `MEMORY.md` stays, because that file belongs to the user. Returns whether there was
    /// anything to remove.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn forget_session(&self, owner: &Owner, session: &SessionId) -> MemoryResult<bool> {
        let mut any = false;
        for kind in [CollectionKind::Turns, CollectionKind::Facts] {
            let (collection, what) = (Self::collection(owner, kind), Removal::Session(session.clone()));
            let listing = Listing { session: Some(session.clone()), limit: 1, ..Listing::default() };
            any |= !self.index.list(&collection, &listing).await?.is_empty();
            while self.index.remove(&collection, &what).await? {}
        }
        Ok(any)
    }

    /// Searches a collection; the best hits come first.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn search(
        &self,
        owner: &Owner,
        kind: CollectionKind,
        query: &str,
        limit: usize,
    ) -> MemoryResult<Vec<Hit>> {
        let mut hits = search(self.index.as_ref(), &Self::collection(owner, kind), query, limit).await?;
        hits.iter_mut().for_each(|hit| show_id(&mut hit.entry));
        Ok(hits)
    }

    /// Lists up to `limit` collections of a tenant, or of one of its users, after `after`, sorted by user, agent and
    /// kind.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn collections(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        after: Option<&Collection>,
        limit: usize,
    ) -> MemoryResult<Vec<Collection>> {
        self.index.collections(tenant, user, after, limit).await
    }

    /// Lists up to `limit` parts of entries with serial numbers higher than `after`, oldest first.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn entries(
        &self,
        collection: &Collection,
        after: u64,
        limit: usize,
    ) -> MemoryResult<Vec<Entry>> {
        let listing = Listing { after: Some(after), oldest_first: true, limit, ..Listing::default() };
        let mut page = self.index.list(collection, &listing).await?;
        page.iter_mut().for_each(show_id);
        Ok(page)
    }

    /// Removes the memory of a user, or of an entire tenant, and returns whether nothing is left. Removes a
    /// limited amount per call.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn erase(&self, tenant: &TenantId, user: Option<&UserId>) -> MemoryResult<bool> {
        Ok(!self.index.erase(tenant, user).await?)
    }

    /// Removes some of the terms that the index still has of erased entries. Returns whether another call has to
    /// follow.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn drop_erased_terms(&self) -> MemoryResult<bool> {
        self.index.drop_erased_terms(self.one_shot.clock.now()).await
    }

    /// Claims the extraction of facts, which is granted once per `gap` for each user. Returns `None` when
    /// granted, otherwise the time at which it can be claimed again.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn claim_flush(&self, owner: &Owner, gap: Duration) -> Result<Option<Timestamp>, BoxError> {
        if gap.is_zero() {
            return Ok(None);
        }
        let claimed = self.spaces.claim_flush(owner, self.one_shot.clock.now(), gap).await;
        claimed.map_err(|error| self.log_failure("memory.not_flushed", owner, &error).into())
    }

    /// Requests consolidation, which gives the space priority. Returns the time of the last consolidation.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn request_consolidation(&self, owner: &Owner) -> MemoryResult<Option<Timestamp>> {
        self.spaces.request(owner, self.one_shot.clock.now()).await
    }

    /// Returns the log of a day as Markdown, or `None` when it has no facts.
    ///
    /// # Errors
    /// Returns an error when the index is unavailable.
    pub async fn day(&self, owner: &Owner, day: &str) -> MemoryResult<Option<String>> {
        daily::day(self.index.as_ref(), &Self::collection(owner, CollectionKind::Facts), day).await
    }

    /// Extracts facts about the user from part of a session's log. Does not store them. Also returns the records of the
    /// usage.
    ///
    /// # Errors
    /// Returns an error when the model or a store is unavailable.
    pub async fn extract(
        &self,
        owner: &Owner,
        session: &SessionId,
        model: Option<&str>,
        records: &[Record],
    ) -> Result<(Vec<NewFact>, Vec<EventKind>), BoxError> {
        let said = flush::transcript(records);
        let now = self.one_shot.clock.now();
        let failed = |why: &dyn ToString| self.log_failure("memory.not_flushed", owner, why);
        let today = self.day(owner, &now.date()).await.map_err(|error| failed(&error))?;
        let memory = match self.read(owner, &memory_path().map_err(|error| failed(&error))?).await {
            Err(FileError::NotFound) => String::new(),
            read => read.map_err(|error| failed(&error))?,
        };
        let Some(request) = flush::extraction_request(&said, &memory, &today.unwrap_or_default(), now) else {
            return Ok((Vec::new(), Vec::new()));
        };
        let default = || self.one_shot.models.default_model();
        let model = self.settings.model.as_deref().or(model).map_or_else(default, str::to_owned);
        let spent = Spent::default();
        let response = self
            .one_shot
            .complete(&model, request, EXTRACT_TIMEOUT, &spent)
            .await
            .map_err(|error| failed(&for_log(&error)))?;
        let from = records.first().map_or(0, |record| record.seq).to_string();
        let fact = |text: String| NewFact {
            id: facts::id_of(&[session, &from], &text),
            text,
            at: now,
            session: Some(session.clone()),
            speaker: None,
        };
        let spent = spent.take().into_iter().map(|call| call.event("memory_flush")).collect();
        Ok((flush::parse_facts(&response).into_iter().map(fact).collect(), spent))
    }

    /// Logs the cause of a failure and returns a message without details, for the session.
    pub fn log_failure(&self, event: &str, owner: &Owner, why: &dyn ToString) -> String {
        self.log_error(event, owner, &why.to_string());
        "temporarily unavailable; it will be retried".to_owned()
    }

    fn log_error(&self, event: &str, owner: &Owner, why: &str) {
        let Owner { tenant, agent, user } = owner;
        self.log
            .line(&json!({ "event": event, "tenant": tenant, "agent": agent, "user": user, "cause": why }));
    }
}

fn memory_path() -> FileResult<FilePath> {
    FilePath::parse(MEMORY).map_err(|error| FileError::Unavailable(error.to_string()))
}
