//! The keys of the ledger's documents. Their spelling is stored and must never change.

use crate::types::{Day, SessionId, UsageKey};

/// The version of all documents.
pub const SCHEMA: &str = "schema";
/// The sessions that hold a slot.
pub const SLOTS: &str = "slots";
/// The requests of the current minute.
pub const REQUESTS: &str = "requests";
/// The start of the keys of the days' totals.
pub const DAYS: &str = "day/";
/// The start of the keys of erased sessions.
pub const ERASED: &str = "erased/";

/// What the ledger has counted of a session.
pub fn account(session: &SessionId) -> String {
    format!("session/{session}")
}

/// The totals of a day.
pub fn day(day: Day) -> String {
    format!("{DAYS}{day}")
}

/// A day on which sessions were erased. In ledgers from before [`erased_session`], a list of them.
pub fn erased(day: Day) -> String {
    format!("{ERASED}{day}")
}

/// The start of the keys of the sessions erased on a day.
pub fn erased_sessions(day: Day) -> String {
    format!("{ERASED}{day}/")
}

/// A session erased on a day.
pub fn erased_session(day: Day, session: &SessionId) -> String {
    format!("{}{session}", erased_sessions(day))
}

/// The start of the keys of a day's rows.
pub fn rows(day: Day) -> String {
    format!("usage/{day}/")
}

/// A row of usage.
pub fn row(key: &UsageKey) -> String {
    let rest = serde_json::json!([key.agent, key.model, key.user]);
    format!("{}{rest}", rows(key.day))
}
