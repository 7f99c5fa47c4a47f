//! The memory of an export: facts and turns of each user with each agent.

use super::part::{Part, Subject};
use super::{Export, Position};
use crate::http::memory::view_of;
use crate::ports::memory::{Collection, CollectionKind};
use crate::types::{AgentId, UserId};
use serde::{Deserialize, Serialize};

/// Number of collections, and of entries, of one query.
const PAGE: usize = 200;

/// The last collection that was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastCollection {
    user: UserId,
    agent: AgentId,
    kind: CollectionKind,
    /// The serial number of its last entry that was written, if more may follow.
    entries_after: Option<u64>,
}

/// Writes collections by user and agent. Returns where the next part continues; `None` at the end.
pub async fn write(export: &Export, part: &mut Part, mut last: Option<LastCollection>) -> Option<Position> {
    loop {
        let next = match &last {
            Some(begun) if begun.entries_after.is_some() => vec![begun.clone()],
            _ => match collections(export, part, last.as_ref()).await {
                Ok(page) if page.is_empty() => return None,
                Ok(page) => page,
                Err(()) => return Some(Position::Memory(last)),
            },
        };
        for mut collection in next {
            if part.is_full() {
                return Some(Position::Memory(last));
            }
            collection.entries_after = entries(export, part, &collection).await;
            let is_begun = collection.entries_after.is_some();
            last = Some(collection);
            if is_begun {
                return Some(Position::Memory(last));
            }
        }
    }
}

async fn collections(
    export: &Export,
    part: &mut Part,
    last: Option<&LastCollection>,
) -> Result<Vec<LastCollection>, ()> {
    let (tenant, user) = (&export.subject.tenant, export.subject.user.as_ref());
    let after = last.map(|last| last.address(export));
    part.spend(2);
    match export.memories.collections(tenant, user, after.as_ref(), PAGE).await {
        Ok(page) => Ok(page
            .into_iter()
            .map(|Collection { user, agent, kind, .. }| LastCollection {
                user,
                agent,
                kind,
                entries_after: Some(0),
            })
            .collect()),
        Err(error) => {
            part.fail("memory", "the memory is unavailable; continue later", &error);
            Err(())
        }
    }
}

/// Writes entries of a collection. Returns the serial number after which the next part continues; `None` at the end.
async fn entries(export: &Export, part: &mut Part, collection: &LastCollection) -> Option<u64> {
    let kind = match collection.kind {
        CollectionKind::Facts => "facts",
        CollectionKind::Turns => "turns",
    };
    let name = format!("memory/{}/{}/{kind}.ndjson", collection.agent, collection.user);
    let (address, mut after) = (collection.address(export), collection.entries_after.unwrap_or(0));
    part.begin(&name).await;
    let reached = loop {
        if part.is_full() {
            break Some(after);
        }
        part.spend(2);
        let page = match export.memories.entries(&address, after, PAGE).await {
            Ok(page) => page,
            Err(error) => {
                part.fail(&name, "incomplete: the memory is unavailable; continue later", &error);
                break Some(after);
            }
        };
        for entry in &page {
            match collection.kind {
                CollectionKind::Facts => part.counts.facts += 1,
                CollectionKind::Turns => part.counts.turns += 1,
            }
            part.line(&view_of(entry)).await;
        }
        match page.last() {
            Some(entry) if page.len() == PAGE => after = entry.serial,
            _ => break None,
        }
    };
    part.end().await;
    reached
}

impl LastCollection {
    /// Returns whether an export has this collection.
    pub fn is_of(&self, subject: &Subject) -> bool {
        subject.user.as_ref().is_none_or(|user| self.user == *user)
    }

    fn address(&self, export: &Export) -> Collection {
        let (tenant, agent, user) = (export.subject.tenant.clone(), self.agent.clone(), self.user.clone());
        Collection { tenant, agent, user, kind: self.kind }
    }
}
