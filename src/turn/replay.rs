//! Decides which calls of a turn are skipped: repeated idempotent calls, and calls of blocked tools.

use super::schema;
use crate::types::{CallId, DenyReason, ToolOutcome};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Number of invalid calls after which a tool is blocked for the turn.
pub const MAX_INVALID_CALLS: u32 = 3;

/// Identifies equal calls: the same name and arguments, regardless of member order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplayKey([u8; 32]);

impl ReplayKey {
    /// Computes SHA-256 of the name and the arguments' canonical JSON.
    pub fn of(name: &str, args: &Value) -> Self {
        let mut hash = Sha256::new();
        hash.update(name);
        // A name contains no NUL byte, so the separator keeps name and arguments apart.
        hash.update([0]);
        hash.update(schema::canonical(args));
        Self(hash.finalize().into())
    }
}

/// History of the calls of a turn.
#[derive(Clone, Debug, Default)]
pub struct ReplayControl {
    succeeded: BTreeMap<ReplayKey, CallId>,
    blocked: BTreeMap<String, String>,
    invalid: BTreeMap<String, u32>,
}

/// What replay control needs to know about a call.
pub struct ReplayCall<'a> {
    /// Identity of the call.
    pub key: ReplayKey,
    /// Id of the call.
    pub call_id: CallId,
    /// Name of the tool.
    pub name: &'a str,
    /// Whether running the call twice has the same effect as running it once.
    pub idempotent: bool,
    /// Whether the tool only reads.
    pub reads: bool,
}

impl ReplayControl {
    /// Returns why no call of a tool may run, or `None` if the tool is not blocked. A tool stays blocked until
    /// the turn ends.
    pub fn blocked(&self, tool: &str) -> Option<(DenyReason, String)> {
        let reason = self.blocked.get(tool)?;
        Some((DenyReason::Blocked, format!("`{tool}` is blocked for this turn: {reason}")))
    }

    /// Returns why a call would only repeat an earlier one, or `None` if it may run.
    pub fn repeated(&self, call: &ReplayCall<'_>) -> Option<(DenyReason, String)> {
        let before = self.succeeded.get(&call.key).filter(|_| call.idempotent)?;
        let reason = format!("the same call already succeeded ({before}); see its result above");
        Some((DenyReason::Duplicate, reason))
    }

    /// Records the outcome of a call.
    pub fn record(&mut self, call: &ReplayCall<'_>, outcome: &ToolOutcome) {
        let ran = !matches!(outcome, ToolOutcome::Denied { .. });
        if ran && !call.reads {
            // Results of earlier calls may be outdated now.
            self.succeeded.clear();
        }
        let block = |reason: &str| Some(reason.to_owned());
        let blocked = match outcome {
            ToolOutcome::Result { .. } | ToolOutcome::Artifact { .. } => {
                self.invalid.remove(call.name);
                if call.idempotent {
                    self.succeeded.insert(call.key, call.call_id.clone());
                }
                None
            }
            // Not the tool's own message, which is untrusted text.
            ToolOutcome::Failure { retryable: false, .. } => block("it failed permanently; see above"),
            ToolOutcome::Timeout { retryable: false, .. } => block("it timed out"),
            ToolOutcome::Denied { denied: DenyReason::Validation, .. } => {
                let invalid = self.invalid.entry(call.name.to_owned()).or_default();
                *invalid += 1;
                (*invalid >= MAX_INVALID_CALLS).then(|| format!("its arguments were invalid {invalid} times"))
            }
            _ => None,
        };
        if let Some(reason) = blocked {
            self.blocked.insert(call.name.to_owned(), reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn call<'a>(args: &Value, idempotent: bool, reads: bool) -> ReplayCall<'a> {
        ReplayCall { key: ReplayKey::of("t", args), call_id: "c".into(), name: "t", idempotent, reads }
    }

    fn denied(control: &ReplayControl, call: &ReplayCall<'_>) -> Option<DenyReason> {
        control.blocked(call.name).or_else(|| control.repeated(call)).map(|(reason, _)| reason)
    }

    const OK: ToolOutcome = ToolOutcome::Result { result: Value::Null };

    #[test]
    fn an_idempotent_call_is_skipped_after_success_only() {
        let (mut control, read) = (ReplayControl::default(), call(&json!({"a": 1}), true, true));
        control.record(&read, &ToolOutcome::failure("no"));
        assert_eq!(denied(&control, &read), None);
        control.record(&read, &ToolOutcome::Timeout { reason: String::new(), retryable: true });
        assert_eq!(denied(&control, &read), None);
        control.record(&read, &OK);
        assert_eq!(denied(&control, &read), Some(DenyReason::Duplicate));
        assert_eq!(denied(&control, &call(&json!({"a": 2}), true, true)), None);
        let once_more = call(&json!({"a": 1}), false, true);
        control.record(&once_more, &OK);
        assert_eq!(denied(&control, &once_more), None, "a call that is not idempotent always runs");
    }

    #[test]
    fn a_write_invalidates_earlier_results() {
        let mut control = ReplayControl::default();
        let (read, write) = (call(&json!("read"), true, true), call(&json!("write"), true, false));
        control.record(&read, &OK);
        control.record(&write, &ToolOutcome::denied(DenyReason::Permission, "no"));
        assert_eq!(denied(&control, &read), Some(DenyReason::Duplicate), "nothing was written");
        control.record(&write, &OK);
        assert_eq!(denied(&control, &read), None);
        assert_eq!(denied(&control, &write), Some(DenyReason::Duplicate));
    }

    #[test]
    fn a_permanent_failure_blocks_only_that_tool() {
        let (mut control, bad) = (ReplayControl::default(), call(&json!(1), true, true));
        control.record(&bad, &ToolOutcome::Failure { reason: "gone".into(), retryable: false });
        assert_eq!(denied(&control, &call(&json!(2), true, true)), Some(DenyReason::Blocked));
        assert_eq!(denied(&control, &ReplayCall { name: "other", ..bad }), None);
    }

    #[test]
    fn repeated_invalid_arguments_block_the_tool() {
        let (mut control, call) = (ReplayControl::default(), call(&json!(1), true, true));
        for _ in 0..MAX_INVALID_CALLS {
            assert_eq!(denied(&control, &call), None);
            control.record(&call, &ToolOutcome::denied(DenyReason::Validation, "no"));
        }
        assert_eq!(denied(&control, &call), Some(DenyReason::Blocked));
    }

    #[test]
    fn equal_numbers_give_equal_keys() {
        assert_eq!(ReplayKey::of("t", &json!({"n": 1.0})), ReplayKey::of("t", &json!({"n": 1})));
        assert_ne!(ReplayKey::of("t", &json!({"n": 1.5})), ReplayKey::of("t", &json!({"n": 1})));
        assert_ne!(ReplayKey::of("t", &json!({"n": "1"})), ReplayKey::of("t", &json!({"n": 1})));
        assert_ne!(ReplayKey::of("ab", &json!("c")), ReplayKey::of("a", &json!("bc")));
    }

    proptest! {
        #[test]
        fn member_order_does_not_matter(mut members in prop::collection::vec((".{0,3}", any::<i8>()), 0..6)) {
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
