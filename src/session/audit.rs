//! The decisions in a session's log, which the session adds to its tenant's audit trail: on calls that waited for
//! approval, and on plans.

use super::{decode, decode_record, document_key, suspensions::Row};
use crate::ports::{
    SessionStore, StoreError,
    session_store::{Records, Select},
};
use crate::types::{
    AuditAction, AuditEntry, AuditId, CallId, Decision, EventKind, PlanReview, Record, SessionId, Suspension,
    TenantId, Wait, WaitKind,
};
use serde_json::{Value, json};

/// Returns the rows for the decisions after the record `after`, up to `last`. A row's id follows from its record, so
/// a row that is added again is the same. Calls that the server declined, for example because they expired, have none.
///
/// # Errors
/// If the store fails, or a record or suspension cannot be parsed.
pub fn decisions(
    store: &dyn SessionStore,
    tenant: &TenantId,
    session: &SessionId,
    after: u64,
    last: u64,
) -> Result<Vec<AuditEntry>, StoreError> {
    let before = Some(last.saturating_add(1));
    let kinds = &["approval.decided", "answer.given"];
    let select = Select { after, before, kinds, ..Select::default() };
    let rows = Records::new(store, select)
        .map(|stored| entry(store, tenant, session, decode_record(&stored?.json)?));
    rows.filter_map(Result::transpose).collect()
}

fn entry(
    store: &dyn SessionStore,
    tenant: &TenantId,
    session: &SessionId,
    record: Record,
) -> Result<Option<AuditEntry>, StoreError> {
    // Clients read the log, so the address is in the suspension, which outlives its turn and keeps its id for itself.
    let suspension = |kind: WaitKind, call_id: &CallId| {
        let row = document_key::read(store, &Row::of(kind).key(call_id))?;
        row.as_deref().map(decode::<Suspension>).transpose()
    };
    let (call_id, name, decision, args_hash, by, address, request_id) = match record.kind {
        EventKind::ApprovalDecided {
            call_id, name, decision, args_hash, by: Some(by), request_id, ..
        } => {
            let address = suspension(WaitKind::Approval, &call_id)?.and_then(|found| found.address);
            (call_id, name, decision, args_hash, by, address, request_id)
        }
        EventKind::AnswerGiven { call_id, name, answer, by: Some(by), request_id } => {
            let Some(Suspension { wait: Wait::Plan(_), args_hash, address, .. }) =
                suspension(WaitKind::Plan, &call_id)?
            else {
                return Ok(None);
            };
            let is_approved = PlanReview::read(&answer).is_ok_and(|review| review.approved);
            let decision = if is_approved { Decision::Approve } else { Decision::Decline };
            (call_id, name, decision, args_hash, by, address, request_id)
        }
        _ => return Ok(None),
    };
    let details = [
        ("session", json!(session)),
        ("tool", Value::String(name)),
        ("decision", json!(decision)),
        ("args_hash", Value::String(args_hash)),
    ];
    Ok(Some(AuditEntry {
        tenant: tenant.clone(),
        id: AuditId::of_record(record.at, session, record.seq),
        at: record.at,
        actor: by.into(),
        action: AuditAction::ApprovalDecided,
        object: call_id.to_string(),
        address,
        request_id,
        details: details.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
    }))
}
