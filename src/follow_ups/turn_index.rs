//! The `turn_index` follow-up: indexes turns for `session_search`.

use crate::agent::{
    FollowUp,
    follow_up::{FollowUpContext, Progress},
};
use crate::memory::{
    Memories, NewTurn,
    flush::{TRANSCRIPT_KINDS, transcript},
};
use crate::ports::memory::MemoryError;
use crate::types::{BoxError, Record, SessionId, WorkspaceOwner};
use std::rc::Rc;

/// Maximum number of records per round.
const MAX_RECORDS: usize = 200;
/// Maximum length of an entry with several messages, in bytes.
const MAX_ENTRY: usize = 16_000;

/// Priority 4, before facts are extracted. Also runs after a failed turn, because its messages still count.
pub struct TurnIndex(pub Rc<Memories>);

#[async_trait::async_trait(?Send)]
impl FollowUp for TurnIndex {
    fn name(&self) -> &'static str {
        "turn_index"
    }

    fn priority(&self) -> i32 {
        4
    }

    fn before_drop(&self) -> bool {
        true
    }

    async fn run(&self, cx: &FollowUpContext) -> Result<Progress, BoxError> {
        let mut seen = cx.seen;
        loop {
            let (records, has_more) = cx.oldest(seen, TRANSCRIPT_KINDS, MAX_RECORDS)?;
            let Some(last) = records.last() else { return Ok(Progress::Done(Vec::new())) };
            seen = last.seq;
            cx.ensure_active()?;
            let indexed = self.0.import(&cx.owner, &cx.session_id, turns(&records)).await;
            match indexed {
                Ok(_) if has_more => {}
                Ok(_) => return Ok(Progress::Done(Vec::new())),
                Err(MemoryError::Quota(quota)) => return cx.skipped(self.name(), quota),
                Err(error) => return Err(self.0.log_failure("memory.not_indexed", &cx.owner, &error).into()),
            }
        }
    }

    async fn erase(&self, workspace: &WorkspaceOwner, session: &SessionId) -> Result<bool, BoxError> {
        Ok(self.0.forget_session(&workspace.owner, session).await?)
    }
}

/// Returns one entry for each turn, with all its messages: a question is found together with its answer, and storage
/// is billed by rows, of which each entry takes four. A message that would make an entry too long starts another one,
/// because only the start of a very long entry is indexed.
///
/// The id of an entry is that of its first message, so that the same records always result in the same entries.
fn turns(records: &[Record]) -> Vec<NewTurn> {
    let mut entries: Vec<NewTurn> = Vec::new();
    for turn in records.chunk_by(|one, next| one.turn == next.turn) {
        let mut entry: Option<NewTurn> = None;
        for message in transcript(turn) {
            let line = format!("{}: {}", message.role.name(), message.text());
            match &mut entry {
                Some(entry) if entry.text.len() + line.len() < MAX_ENTRY => {
                    entry.text.push('\n');
                    entry.text.push_str(&line);
                }
                _ => {
                    let next = NewTurn {
                        id: message.id.to_string(),
                        speaker: None,
                        at: message.created_at,
                        text: line,
                    };
                    entries.extend(entry.replace(next));
                }
            }
        }
        entries.extend(entry);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{EventKind, Message, Part, Role, Timestamp};

    fn record(seq: u64, turn: &str, role: Role, text: &str) -> Record {
        let message = Rc::new(Message {
            id: format!("msg_{seq}").into(),
            seq,
            role,
            parts: vec![Part::text(text)],
            created_at: Timestamp(seq),
            turn: turn.into(),
            interrupted: false,
        });
        let kind = match role {
            Role::User => EventKind::TurnStarted { message },
            _ => EventKind::MessageCompleted { message },
        };
        Record { seq, at: Timestamp(seq), turn: Some(turn.into()), kind }
    }

    fn texts(records: &[Record]) -> Vec<(String, String)> {
        turns(records).into_iter().map(|entry| (entry.id, entry.text)).collect()
    }

    #[test]
    fn a_turn_is_one_entry_with_its_messages() {
        let records = [
            record(1, "t1", Role::User, "Where is Ann?"),
            record(2, "t1", Role::Assistant, "I look it up."),
            record(3, "t1", Role::Assistant, "In Oslo."),
            record(4, "t2", Role::User, "Thanks"),
        ];
        let first = "user: Where is Ann?\nassistant: I look it up.\nassistant: In Oslo.".to_owned();
        assert_eq!(texts(&records), [("msg_1".into(), first), ("msg_4".into(), "user: Thanks".into())]);
    }

    #[test]
    fn a_message_after_a_long_one_has_an_entry_of_its_own() {
        let long = "word ".repeat(MAX_ENTRY / 5);
        let records =
            [record(1, "t", Role::User, &long), record(2, "t", Role::Assistant, "It is about words.")];
        assert_eq!(texts(&records)[1], ("msg_2".into(), "assistant: It is about words.".into()));
    }
}
