//! Records and events as JSON: the names of events, and event types that this version does not know.

use super::{EventKind, Record};
use crate::types::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error, ser::SerializeMap};
use serde_json::{Map, Value};

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self::Other { kind, fields } = self else { return Self::serialize(self, to) };
        let mut map = to.serialize_map(Some(fields.len() + 1))?;
        map.serialize_entry("type", kind)?;
        fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for EventKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::of(Map::deserialize(from)?)
    }
}

impl EventKind {
    fn of<E: Error>(mut fields: Map<String, Value>) -> Result<Self, E> {
        match fields.remove("type") {
            Some(Value::String(kind)) if !Self::is_known(&kind) => Ok(Self::Other { kind, fields }),
            Some(kind) => {
                fields.insert("type".to_owned(), kind);
                Self::deserialize(Value::Object(fields)).map_err(E::custom)
            }
            None => Err(E::missing_field("type")),
        }
    }
}

// The derived implementation buffers all fields once more, because of `flatten`.
impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(from)?;
        let seq = fields.remove("seq").ok_or_else(|| D::Error::missing_field("seq"))?;
        let at = fields.remove("at").ok_or_else(|| D::Error::missing_field("at"))?;
        let turn = fields.remove("turn").unwrap_or_default();
        Ok(Self {
            seq: u64::deserialize(seq).map_err(D::Error::custom)?,
            at: Timestamp::deserialize(at).map_err(D::Error::custom)?,
            turn: Option::deserialize(turn).map_err(D::Error::custom)?,
            kind: EventKind::of(fields)?,
        })
    }
}

/// Defines the `type` of each event on the wire.
macro_rules! names {
    ($($kind:ident $name:literal)*) => {
        impl EventKind {
            /// The `type` of each event that this version has.
            pub const NAMES: &[&str] = &[$($name),*];

            /// Returns the `type` on the wire.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$kind { .. } => $name,)*
                    Self::Other { kind, .. } => kind,
                }
            }

            /// Returns whether this version has the event type. One type also has an earlier name.
            fn is_known(name: &str) -> bool {
                matches!(name, $($name)|* | "reflection.completed")
            }
        }
    };
}

names! {
    SessionCreated "session.created"
    SessionUpdated "session.updated"
    ModeChanged "mode.changed"
    ModelChanged "model.changed"
    AgentChanged "agent.changed"
    ModelFallback "model.fallback"
    StateChanged "state.changed"
    TurnQueued "turn.queued"
    TurnStarted "turn.started"
    RunRequested "run.requested"
    TurnResumed "turn.resumed"
    MessageCompleted "message.completed"
    ToolStarted "tool.started"
    ToolApprovalRequired "tool.approval_required"
    ToolSuspended "tool.suspended"
    ApprovalDecided "approval.decided"
    AnswerGiven "answer.given"
    SubagentStarted "subagent.started"
    SubagentCompleted "subagent.completed"
    TaskStarted "task.started"
    TaskProgress "task.progress"
    TaskCompleted "task.completed"
    TaskFailed "task.failed"
    TaskCanceled "task.canceled"
    TurnWaiting "turn.waiting"
    TaskListUpdated "task.list_updated"
    FollowupQueued "followup.queued"
    UsageUpdated "usage.updated"
    UsageOther "usage.other"
    ToolLateResult "tool.late_result"
    ArtifactStored "artifact.stored"
    TurnReflected "turn.reflected"
    BudgetExceeded "budget.exceeded"
    JudgeCompleted "judge.completed"
    SubStepFailed "turn.sub_step_failed"
    MemoryFlushed "memory.flushed"
    MemoryConsolidated "memory.consolidated"
    CompactionStarted "compaction.started"
    CompactionCompleted "compaction.completed"
    CompactionFailed "compaction.failed"
    ObservationStarted "observation.started"
    ObservationBuffered "observation.buffered"
    ObservationActivated "observation.activated"
    ObservationCompleted "observation.completed"
    ObservationFailed "observation.failed"
    ReflectionStarted "reflection.started"
    ReflectionBuffered "reflection.buffered"
    ReflectionActivated "reflection.activated"
    ReflectionFailed "reflection.failed"
    ToolCompleted "tool.completed"
    TurnCompleted "turn.completed"
    TurnFailed "turn.failed"
    TurnCanceled "turn.canceled"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CompactReason, Cut};

    #[test]
    fn a_compaction_with_a_cut_round_trips() {
        let cut = Cut { parted: [(7, 400)].into(), ..Cut::default() };
        let (reason, dropped, summary_tokens, tokens_before, tokens_after) =
            (CompactReason::Tokens, 1, 2, 3, 4);
        let kind = EventKind::CompactionCompleted {
            reason,
            dropped,
            summary_tokens,
            tokens_before,
            tokens_after,
            cut,
        };
        let record = Record { seq: 1, at: Timestamp(0), turn: None, kind };
        let json = serde_json::to_vec(&record).expect("JSON");
        assert_eq!(serde_json::from_slice::<Record>(&json).expect("a record"), record);
    }

    #[test]
    fn a_self_critique_stored_under_its_old_name_is_readable() {
        let old = r#"{"seq":1,"at":"2026-11-20T12:00:00.000Z","type":"reflection.completed","should_continue":true,"note":"n"}"#;
        let record: Record = serde_json::from_str(old).expect("a record");
        let kind = EventKind::TurnReflected { should_continue: true, note: "n".into(), stub: false };
        assert_eq!(record.kind, kind);
        assert_eq!(serde_json::to_value(&record).expect("JSON")["type"], "turn.reflected");
    }

    #[test]
    fn a_record_of_a_newer_version_is_kept() {
        let newer = r#"{"seq":1,"at":"2026-11-20T12:00:00.000Z","turn":"t","type":"tool.rated","by":{"user":"u"},"stars":5}"#;
        let record: Record = serde_json::from_str(newer).expect("a record");
        assert_eq!(record.kind.name(), "tool.rated");
        assert_eq!(serde_json::to_string(&record).expect("JSON"), newer);
        let broken = r#"{"seq":1,"at":"2026-11-20T12:00:00.000Z","type":"turn.queued","place":1}"#;
        let error = serde_json::from_str::<Record>(broken).expect_err("a known event that does not fit");
        assert!(error.to_string().starts_with("missing field `position`"), "{error}");
    }
}
