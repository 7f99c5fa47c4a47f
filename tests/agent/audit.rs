//! The rows of the audit trail: decisions on calls, and reviews of plans.

use crate::approvals::{approve, decide, of_type, suspended};
use crate::plans::begun;
use crate::questions::say;
use crate::scripts::ruling;
use crate::stage::{Stage, ms};
use edge_harness::agent::host::suspensions::{ApprovalDecision, CallAnswer};
use edge_harness::ports::Directory;
use edge_harness::types::{Actor, Approver, AuditAction, AuditEntry, AuditQuery, Decision, ResolvedBy};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Ann, as the sender of a request.
pub fn ann() -> ResolvedBy {
    let approver = Approver { user: Some("ann".into()), key: None };
    ResolvedBy { approver, address: "192.0.2.7".parse().ok(), request_id: Some("req_1".into()), runner: None }
}

/// The rows of the audit trail, oldest first.
fn audited(stage: &Stage) -> Vec<AuditEntry> {
    let query = AuditQuery { limit: 100, ..AuditQuery::default() };
    let tenant = stage.session().state().meta.tenant.clone();
    let mut rows = block_on(stage.directory.audit(&tenant, &query)).unwrap();
    rows.reverse();
    rows
}

#[test]
fn each_decision_is_in_the_audit_trail_once() {
    let stage = suspended();
    approve(&stage, "w1").unwrap();
    stage.tick(ms(1));
    let reason = Some("a secret reason".to_owned());
    decide(&stage, "w2", ApprovalDecision { reason, ..ruling(Decision::Decline) }).unwrap();
    // The report after the turn fails in its second half, and then the object is evicted.
    stage.directory.down.set(true);
    stage.settle();
    stage.live(ms(15_000));
    stage.crash();
    stage.wake();
    stage.directory.down.set(false);
    assert_eq!(audited(&stage), []);
    stage.live(ms(15_000));
    stage.crash();
    stage.wake();
    stage.live(ms(15_000));

    let rows = audited(&stage);
    let decided = of_type(&stage, "approval.decided");
    let expected: Vec<Value> = decided
        .iter()
        .map(|record| {
            json!([
                record["at"],
                record["call_id"],
                record["decision"],
                record["args_hash"],
                record["request_id"]
            ])
        })
        .collect();
    let found: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!([row.at, row.object, row.details["decision"], row.details["args_hash"], row.request_id])
        })
        .collect();
    assert_eq!((found, rows.len()), (expected, 2));
    for row in &rows {
        assert_eq!(row.action, AuditAction::ApprovalDecided);
        assert_eq!(row.actor, Actor::Caller { user: Some("ann".into()), key: None });
        assert_eq!((row.address, row.request_id.as_deref()), (ann().address, Some("req_1")));
        assert_eq!(row.details["tool"], "write_it");
        assert_eq!(row.details["session"], json!(stage.session().state().meta.id));
        assert!(!json!(row).to_string().contains("a secret reason"));
    }
    let log = json!(stage.records()).to_string();
    assert!(!log.contains("192.0.2.7"), "clients of the session read the log");
}

#[test]
fn the_audit_trail_has_no_row_for_a_call_that_expired() {
    let stage = suspended();
    stage.tick(ms(7 * 24 * 3_600_000));
    stage.wake();
    stage.live(ms(30_000));
    assert_eq!(of_type(&stage, "approval.decided").len(), 2);
    assert_eq!(audited(&stage), []);
}

#[test]
fn each_review_of_a_plan_is_in_the_audit_trail() {
    let (stage, _) = begun(&[
        ("plan_enter", "{}"),
        ("plan_write", r#"{"content": "a private plan"}"#),
        ("plan_exit", "{}"),
        ("plan_exit", "{}"),
        ("ask_user", r#"{"question": "Which color?"}"#),
    ]);
    let review = |call: &str, action: &str| {
        let hash = stage.session().pending().unwrap()[0].args_hash.clone();
        let answer = CallAnswer::Answer(json!({"action": action, "feedback": "a private reason"}));
        stage.host().answer(&stage.session(), &call.into(), answer, ann()).unwrap();
        stage.run();
        stage.tick(ms(1));
        hash
    };
    let hashes = [review("c2", "rejected"), review("c3", "approved")];
    say(&stage, "c4", json!("red")).unwrap();
    stage.settle();
    stage.live(ms(15_000));
    let rows = audited(&stage);
    let found: Vec<_> = rows.iter().map(|row| (row.object.as_str(), row.details.clone())).collect();
    let details = |decision: &str, hash: &str| {
        let details = json!({"session": "s", "tool": "plan_exit", "decision": decision, "args_hash": hash});
        details.as_object().unwrap().clone()
    };
    let expected = [("c2", details("decline", &hashes[0])), ("c3", details("approve", &hashes[1]))];
    assert_eq!(found, expected, "an answer to a question has no row");
    for row in &rows {
        assert_eq!((row.address, row.request_id.clone()), (ann().address, ann().request_id));
        assert!(!json!(row).to_string().contains("private"));
    }
}
