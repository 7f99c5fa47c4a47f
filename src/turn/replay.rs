//! Which calls of a turn need not, or must not, run again.

use super::schema;
use crate::fault::{self, Fault};
use crate::types::{DenyReason, ToolOutcome};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Calls of one tool with arguments that do not fit, before the tool is blocked for the turn.
pub const REPAIR_LIMIT: u32 = 3;

/// What names a call for replay: equal for equal names and arguments, whatever the order of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplayKey([u8; 32]);

impl ReplayKey {
    /// SHA-256 over the name and the arguments' canonical JSON.
    pub fn of(name: &str, args: &Value) -> Self {
        let mut hash = Sha256::new();
        hash.update(name);
        // A name holds no NUL, so that name and arguments cannot run into each other.
        hash.update([0]);
        hash.update(schema::canonical(args));
        Self(hash.finalize().into())
    }
}

/// What a turn remembers of its calls.
#[derive(Clone, Debug, Default)]
pub struct ReplayControl {
    succeeded: BTreeMap<ReplayKey, String>,
    blocked: BTreeMap<String, String>,
    unfit: BTreeMap<String, u32>,
}

/// A call as replay sees it.
pub struct Replayed<'a> {
    /// What names it.
    pub key: ReplayKey,
    /// The call.
    pub call_id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// Whether running it twice equals running it once.
    pub idempotent: bool,
    /// Whether it only reads.
    pub reads: bool,
}

impl ReplayControl {
    /// Why a call is not to run; none when it may.
    pub fn refusal(&self, call: &Replayed<'_>) -> Option<(DenyReason, String)> {
        if let Some(reason) = self.blocked.get(call.name) {
            return Some((DenyReason::Blocked, format!("`{}` is closed for this turn: {reason}", call.name)));
        }
        let before = self
            .succeeded
            .get(&call.key)
            .filter(|_| call.idempotent && !fault::active(Fault::IgnoreIdempotency))?;
        let reason = format!("the same call succeeded before ({before}); its result stands above");
        Some((DenyReason::Duplicate, reason))
    }

    /// Takes note of what became of a call.
    pub fn completed(&mut self, call: &Replayed<'_>, outcome: &ToolOutcome) {
        let ran = !matches!(outcome, ToolOutcome::Denied { .. });
        if ran && !call.reads {
            // What was read or written before may be different now.
            self.succeeded.clear();
        }
        let block = |reason: &str| Some(reason.to_owned());
        let blocked = match outcome {
            ToolOutcome::Result { .. } | ToolOutcome::Artifact { .. } => {
                self.unfit.remove(call.name);
                if call.idempotent {
                    self.succeeded.insert(call.key, call.call_id.to_owned());
                }
                None
            }
            // Not in the tool's own words: those are somebody else's text.
            ToolOutcome::Failure { retryable: false, .. } => block("it failed for good; see above"),
            ToolOutcome::Timeout { retryable: false, .. } => block("it does not answer in time"),
            ToolOutcome::Denied { denied: DenyReason::Validation, .. } => {
                let unfit = self.unfit.entry(call.name.to_owned()).or_default();
                *unfit += 1;
                (*unfit >= REPAIR_LIMIT).then(|| format!("its arguments did not fit {unfit} times"))
            }
            _ => None,
        };
        if let Some(reason) = blocked.filter(|_| !fault::active(Fault::KeepFailedTools)) {
            self.blocked.insert(call.name.to_owned(), reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn call<'a>(args: &Value, idempotent: bool, reads: bool) -> Replayed<'a> {
        Replayed { key: ReplayKey::of("t", args), call_id: "c", name: "t", idempotent, reads }
    }

    fn refused(control: &ReplayControl, call: &Replayed<'_>) -> Option<DenyReason> {
        control.refusal(call).map(|(reason, _)| reason)
    }

    const OK: ToolOutcome = ToolOutcome::Result { result: Value::Null };

    #[test]
    fn an_idempotent_call_is_skipped_after_success_only() {
        let (mut control, read) = (ReplayControl::default(), call(&json!({"a": 1}), true, true));
        control.completed(&read, &ToolOutcome::failure("no"));
        assert_eq!(refused(&control, &read), None);
        control.completed(&read, &ToolOutcome::Timeout { reason: String::new(), retryable: true });
        assert_eq!(refused(&control, &read), None);
        control.completed(&read, &OK);
        assert_eq!(refused(&control, &read), Some(DenyReason::Duplicate));
        assert_eq!(refused(&control, &call(&json!({"a": 2}), true, true)), None);
        let once_more = call(&json!({"a": 1}), false, true);
        control.completed(&once_more, &OK);
        assert_eq!(refused(&control, &once_more), None, "a call that is not idempotent always runs");
    }

    #[test]
    fn a_write_makes_earlier_results_old() {
        let mut control = ReplayControl::default();
        let (read, write) = (call(&json!("read"), true, true), call(&json!("write"), true, false));
        control.completed(&read, &OK);
        control.completed(&write, &ToolOutcome::denied(DenyReason::Permission, "no"));
        assert_eq!(refused(&control, &read), Some(DenyReason::Duplicate), "nothing was written");
        control.completed(&write, &OK);
        assert_eq!(refused(&control, &read), None);
        assert_eq!(refused(&control, &write), Some(DenyReason::Duplicate));
    }

    #[test]
    fn what_cannot_be_mended_closes_the_tool_and_no_other() {
        let (mut control, bad) = (ReplayControl::default(), call(&json!(1), true, true));
        control.completed(&bad, &ToolOutcome::Failure { reason: "gone".into(), retryable: false });
        assert_eq!(refused(&control, &call(&json!(2), true, true)), Some(DenyReason::Blocked));
        assert_eq!(refused(&control, &Replayed { name: "other", ..bad }), None);
    }

    #[test]
    fn arguments_that_never_fit_close_the_tool() {
        let (mut control, call) = (ReplayControl::default(), call(&json!(1), true, true));
        for _ in 0..REPAIR_LIMIT {
            assert_eq!(refused(&control, &call), None);
            control.completed(&call, &ToolOutcome::denied(DenyReason::Validation, "no"));
        }
        assert_eq!(refused(&control, &call), Some(DenyReason::Blocked));
    }

    #[test]
    fn numbers_have_one_form() {
        assert_eq!(ReplayKey::of("t", &json!({"n": 1.0})), ReplayKey::of("t", &json!({"n": 1})));
        assert_ne!(ReplayKey::of("t", &json!({"n": 1.5})), ReplayKey::of("t", &json!({"n": 1})));
        assert_ne!(ReplayKey::of("t", &json!({"n": "1"})), ReplayKey::of("t", &json!({"n": 1})));
        assert_ne!(ReplayKey::of("ab", &json!("c")), ReplayKey::of("a", &json!("bc")));
    }

    proptest! {
        #[test]
        fn the_order_of_members_does_not_matter(mut members in prop::collection::vec((".{0,3}", any::<i8>()), 0..6)) {
            let object = |members: &[(String, i8)]| {
                let text: Vec<String> = members.iter().map(|(k, v)| format!("{}:{v}", json!(k))).collect();
                serde_json::from_str::<Value>(&format!("{{\"outer\":{{{}}}}}", text.join(","))).expect("JSON")
            };
            members.sort_by(|a, b| a.0.cmp(&b.0));
            members.dedup_by(|a, b| a.0 == b.0);
            let forth = object(&members);
            members.reverse();
            prop_assert_eq!(ReplayKey::of("t", &forth), ReplayKey::of("t", &object(&members)));
        }
    }
}
