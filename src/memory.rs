//! What agents remember of their users, across sessions.
//!
//! ```text
//! turn ─▶ turns of the session ─▶ index (turns)
//!      └▶ flush: facts ─▶ the day's log = index (facts) ─▶ consolidation ─▶ MEMORY.md ─▶ prompt, index
//! ```
//!
//! A day's log is rows of the index, shown as a file; `MEMORY.md` is a file whose lines are in the index.
//! Each user's memory with each agent is a collection of its own: nothing that others hold can change what
//! is found in it, or in which order.

pub mod chunks;
pub mod consolidation;
pub mod daily;
pub mod entries;
pub mod facts;
pub mod flush;
pub mod fold;
pub mod ranking;
pub mod search;
pub mod stem;
pub mod stop_words;
pub mod terms;

use crate::model::one_shot::OneShotModel;
use crate::ports::{
    FileError, Log, MemoryIndex, MemorySpaces,
    filesystem::{FileResult, Precondition},
    memory::{Collection, CollectionKind, Entry, Listing, MemoryResult, NewEntry, Removal, Source},
};
use crate::types::{FilePath, Owner, Record, Role, TenantId, Timestamp};
use crate::workspace::{Guard, Workspaces, WrapTree, layout::MEMORY};
use consolidation::MAX_MEMORY;
use daily::{MemoryFiles, day_of};
use entries::{Origin, entry};
use facts::NewFact;
pub use search::{Hit, search};
use serde_json::json;
use std::rc::Rc;

/// Longest that a model may take to extract facts, in milliseconds.
const EXTRACT_MS: u64 = 90_000;

/// How often a fact is added to a file that keeps changing.
const SAVES: usize = 5;
/// Steps of an erasure that one call makes at most.
const ERASURES: usize = 50;

/// How memory is set.
#[derive(Clone, Debug, Default)]
pub struct MemorySettings {
    /// The model that extracts facts and consolidates; that of the session, or the default, when absent.
    pub model: Option<String>,
    /// How facts are extracted from what was said.
    pub flush: Flush,
}

/// How often facts are extracted from what was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Not at all.
    Never,
    /// Once in so many milliseconds for each user; 0 for behind every turn. Nothing is passed over: what waited
    /// is extracted together.
    Every(u64),
}

impl Default for Flush {
    fn default() -> Self {
        Self::Every(0)
    }
}

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTurn {
    /// Its id, one of its kind in its session: it is stored once.
    pub id: String,
    /// Who said it.
    pub speaker: String,
    /// When.
    pub at: Timestamp,
    /// What.
    pub text: String,
}

/// Between session and id in the key of a turn. Neither can hold it.
const SEPARATOR: char = '\u{1f}';

impl NewTurn {
    fn entry(self, session: &str) -> NewEntry {
        let origin = Origin {
            key: format!("{session}{SEPARATOR}{}", self.id),
            source: Source::Session,
            group: session.to_owned(),
            session: Some(session.to_owned()),
            at: self.at,
            speaker: Some(self.speaker),
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
}

impl Memories {
    /// Memories kept in these. `files` must have [`Memories::layer`].
    pub fn new(
        index: Rc<dyn MemoryIndex>,
        spaces: Rc<dyn MemorySpaces>,
        files: Rc<Workspaces>,
        one_shot: OneShotModel,
        settings: MemorySettings,
        log: Rc<dyn Log>,
    ) -> Self {
        Self { index, spaces, files, one_shot, settings, log }
    }

    /// Whether facts are extracted from what is said.
    pub fn is_learning(&self) -> bool {
        self.settings.flush != Flush::Never
    }

    /// The layer by which users' files show their memory, and keep it found.
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

    /// How facts are extracted.
    pub fn flush_setting(&self) -> Flush {
        self.settings.flush
    }

    /// Stores facts; those that are there already stay as they are. Returns how many are new.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn learn(&self, owner: &Owner, facts: Vec<NewFact>) -> MemoryResult<usize> {
        let entries: Vec<_> = facts.into_iter().map(NewFact::entry).collect();
        self.index.add(&Self::collection(owner, CollectionKind::Facts), &entries).await
    }

    /// Stores a fact at the user's own wish: in the log, and at once in `MEMORY.md` where there is room. `guard` is
    /// asked before each write.
    ///
    /// # Errors
    /// When a store does not answer, or whoever writes has lost the right to.
    pub async fn save(&self, owner: &Owner, fact: NewFact, guard: Guard) -> FileResult<()> {
        let located = self.index.locate(&owner.tenant).await;
        located.map_err(|error| FileError::Unavailable(error.to_string()))?;
        if !guard() {
            return Err(FileError::Closed);
        }
        let line = format!("- {} ({})\n", fact.text, day_of(fact.at));
        let learned = self.learn(owner, vec![fact]).await;
        learned.map_err(|error| FileError::Unavailable(error.to_string()))?;
        let files = self.files.open(&owner.tenant, &owner.agent, &owner.user, Some(guard));
        let path = memory_path()?;
        for _ in 0..SAVES {
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
        // It is in the log: consolidation works it in.
        Ok(())
    }

    /// Reads a file of the memory: `MEMORY.md`, or the log of a day.
    ///
    /// # Errors
    /// When there is none, or a store does not answer.
    pub async fn read(&self, owner: &Owner, path: &FilePath) -> FileResult<String> {
        let files = self.files.open(&owner.tenant, &owner.agent, &owner.user, None);
        let (file, _) = files.read(path).await?;
        Ok(String::from_utf8_lossy(&file.bytes).into_owned())
    }

    /// What was last said in a session, oldest first; of what is long, the first part.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn history(&self, owner: &Owner, session: &str, last: usize) -> MemoryResult<Vec<Entry>> {
        let group = Some(session.to_owned());
        let listing = Listing { group, first_parts: true, limit: last, ..Listing::default() };
        let mut said = self.index.list(&Self::collection(owner, CollectionKind::Turns), &listing).await?;
        said.reverse();
        Ok(said)
    }

    /// Keeps what was said in a session where words find it. Said again, nothing changes.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn hear(&self, owner: &Owner, session: &str, records: &[Record]) -> MemoryResult<usize> {
        let turns = flush::transcript(records).into_iter().map(|message| NewTurn {
            id: message.id.clone(),
            speaker: if message.role == Role::User { "user" } else { "assistant" }.to_owned(),
            at: message.created_at,
            text: message.text(),
        });
        self.import(owner, session, turns.collect()).await
    }

    /// Keeps turns of a conversation where words find them, in this order; those that are there already stay
    /// as they are. Returns how many are new.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn import(&self, owner: &Owner, session: &str, turns: Vec<NewTurn>) -> MemoryResult<usize> {
        let entries: Vec<_> = turns.into_iter().map(|turn| turn.entry(session)).collect();
        if entries.is_empty() {
            return Ok(0);
        }
        self.index.add(&Self::collection(owner, CollectionKind::Turns), &entries).await
    }

    /// Forgets what was said in a session, and the facts that were drawn from it. What consolidation has
    /// made of them stays in `MEMORY.md`, which is the user's. Returns whether there was anything.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn forget_session(&self, owner: &Owner, session: &str) -> MemoryResult<bool> {
        let mut any = false;
        for kind in [CollectionKind::Turns, CollectionKind::Facts] {
            let (collection, what) = (Self::collection(owner, kind), Removal::Session(session.to_owned()));
            let listing = Listing { session: Some(session.to_owned()), limit: 1, ..Listing::default() };
            any |= !self.index.list(&collection, &listing).await?.is_empty();
            while self.index.remove(&collection, &what).await? {}
        }
        Ok(any)
    }

    /// Finds what words are about, best first.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn search(
        &self,
        owner: &Owner,
        kind: CollectionKind,
        query: &str,
        limit: usize,
    ) -> MemoryResult<Vec<Hit>> {
        let mut hits = search(self.index.as_ref(), &Self::collection(owner, kind), query, limit).await?;
        for hit in &mut hits {
            // As the caller knows it.
            if let Some((_, id)) = hit.entry.key.split_once(SEPARATOR) {
                hit.entry.key = id.to_owned();
            }
        }
        Ok(hits)
    }

    /// Removes all that is remembered of a user, or of a whole tenant; returns whether nothing is left. Bounded:
    /// call it again.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn erase(&self, tenant: &TenantId, user: Option<&str>) -> MemoryResult<bool> {
        for _ in 0..ERASURES {
            if !self.index.erase(tenant, user).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the right to extract facts, given once in `gap_ms` for each user. `None` when it is taken; else
    /// when it will be free.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn claim_flush(&self, owner: &Owner, gap_ms: u64) -> Result<Option<Timestamp>, String> {
        if gap_ms == 0 {
            return Ok(None);
        }
        let claimed = self.spaces.claim_flush(owner, self.one_shot.clock.now(), gap_ms).await;
        claimed.map_err(|error| self.put_off("memory.not_flushed", owner, &error))
    }

    /// Asks for consolidation before those for whom nobody asks. Returns when it was done last.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn request(&self, owner: &Owner) -> MemoryResult<Option<Timestamp>> {
        self.spaces.request(owner, self.one_shot.clock.now()).await
    }

    /// The log of a day, as Markdown; none when nothing was learned.
    ///
    /// # Errors
    /// When the index does not answer.
    pub async fn day(&self, owner: &Owner, day: &str) -> MemoryResult<Option<String>> {
        daily::day(self.index.as_ref(), &Self::collection(owner, CollectionKind::Facts), day).await
    }

    /// Extracts what a stretch of a session's log tells about its user. The facts are not stored yet.
    ///
    /// # Errors
    /// When the model or a store does not answer.
    pub async fn extract(
        &self,
        owner: &Owner,
        session: &str,
        model: Option<&str>,
        records: &[Record],
    ) -> Result<Vec<NewFact>, String> {
        let said = flush::transcript(records);
        let now = self.one_shot.clock.now();
        let failed = |why: &dyn ToString| self.put_off("memory.not_flushed", owner, why);
        let today = self.day(owner, &day_of(now)).await.map_err(|error| failed(&error))?;
        let memory = match self.read(owner, &memory_path().map_err(|error| failed(&error))?).await {
            Err(FileError::NotFound) => String::new(),
            read => read.map_err(|error| failed(&error))?,
        };
        let Some(question) = flush::question(&said, &memory, &today.unwrap_or_default(), now) else {
            return Ok(Vec::new());
        };
        let default = || self.one_shot.models.default_model();
        let model = self.settings.model.as_deref().or(model).map_or_else(default, str::to_owned);
        let answer =
            self.one_shot.complete(&model, question, EXTRACT_MS).await.map_err(|error| failed(&error))?;
        let from = records.first().map_or(0, |record| record.seq).to_string();
        let fact = |text: String| NewFact {
            id: facts::id_of(&[session, &from], &text),
            text,
            at: now,
            session: Some(session.to_owned()),
            speaker: None,
        };
        Ok(flush::facts_in(&answer).into_iter().map(fact).collect())
    }

    /// Writes down why something is put off, and gives the words that a session may read.
    pub fn put_off(&self, event: &str, owner: &Owner, why: &dyn ToString) -> String {
        self.trouble(event, owner, &why.to_string());
        "it could not be done now, and is tried again".to_owned()
    }

    fn trouble(&self, event: &str, owner: &Owner, why: &str) {
        let Owner { tenant, agent, user } = owner;
        self.log
            .line(&json!({ "event": event, "tenant": tenant, "agent": agent, "user": user, "cause": why }));
    }
}

fn memory_path() -> FileResult<FilePath> {
    FilePath::parse(MEMORY).map_err(|error| FileError::Unavailable(error.to_string()))
}
