//! The decisions in a session's log, which the session adds to its tenant's audit trail.

use super::decode;
use crate::ports::{
    SessionStore, StoreError,
    session_store::{Records, Select},
};
use crate::types::{AuditAction, AuditEntry, AuditId, EventKind, Record, SessionId, TenantId};
use serde_json::{Value, json};

/// Returns the rows for the decisions after the record `after`, up to `last`. A row's id follows from its record, so
/// a row that is added again is the same. Calls that the server declined, for example because they expired, have none.
///
/// # Errors
/// If the store fails, or a record cannot be parsed.
pub fn decisions(
    store: &dyn SessionStore,
    tenant: &TenantId,
    session: &SessionId,
    after: u64,
    last: u64,
) -> Result<Vec<AuditEntry>, StoreError> {
    let before = Some(last.saturating_add(1));
    let select = Select { after, before, kinds: &["approval.decided"], ..Select::default() };
    let rows = Records::new(store, select)
        .map(|stored| stored.and_then(|stored| Ok(entry(tenant, session, decode(&stored.json)?))));
    rows.filter_map(Result::transpose).collect()
}

fn entry(tenant: &TenantId, session: &SessionId, record: Record) -> Option<AuditEntry> {
    let Record { seq, at, kind, .. } = record;
    let EventKind::ApprovalDecided { call_id, name, decision, args_hash, by: Some(by), request_id, .. } =
        kind
    else {
        return None;
    };
    let details = [
        ("session", json!(session)),
        ("tool", Value::String(name)),
        ("decision", json!(decision)),
        ("args_hash", Value::String(args_hash)),
    ];
    Some(AuditEntry {
        tenant: tenant.clone(),
        id: AuditId::of_record(at, session, seq),
        at,
        actor: by.into(),
        action: AuditAction::ApprovalDecided,
        object: call_id.to_string(),
        address: None,
        request_id,
        details: details.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
    })
}
