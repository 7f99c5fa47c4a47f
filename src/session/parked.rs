//! Calls that wait for a person. Each has a row of its own, which stays behind the call: whoever decides a
//! second time, or too late, is told what had become of it.

use super::{Session, decode, encode};
use crate::fault::{self, Fault};
use crate::ports::{SessionStore, StoreError};
use crate::types::{CallStatus, Errand, Parked, Pending, PendingKind, Resolution, TurnPhase};
use serde_json::Value;

/// Where the row of a call stands. A call may have one of each kind: consent first, then the answer.
fn row_key(kind: PendingKind, call_id: &str) -> String {
    match kind {
        PendingKind::Approval => format!("approval/{call_id}"),
        _ => format!("answer/{call_id}"),
    }
}

/// What became of the waiting of one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Whether somebody has consented.
    pub approved: bool,
    /// What was answered.
    pub answer: Option<Value>,
    /// What was shown to whoever answered.
    pub shown: Value,
    /// Why it is not to run: somebody's words, or nobody's in time.
    pub refusal: Option<Resolution>,
    /// The arguments that were consented to, or that the answer is about. It runs with these and no others.
    pub args: Option<Value>,
}

/// The row of a call that waits or waited: its key, and what stands in it.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn row(parked: &Parked) -> Result<(String, String), StoreError> {
    Ok((row_key(parked.pending.kind, &parked.pending.call_id), encode(parked)?))
}

/// The errands that a session has sent subagents out for, ever; of those that cannot be read nothing is known.
///
/// # Errors
/// When the store breaks.
pub fn errands(store: &dyn SessionStore) -> Result<Vec<Errand>, StoreError> {
    let rows = store.list(&row_key(PendingKind::Subagent, ""))?.into_iter();
    Ok(rows.filter_map(|(_, json)| Errand::of(&decode::<Parked>(&json).ok()?.pending)).collect())
}

impl Session {
    /// The row of a call that waits or waited for this kind of thing.
    ///
    /// # Errors
    /// When the store breaks or holds what cannot be read.
    pub fn parked(&self, kind: PendingKind, call_id: &str) -> Result<Option<Parked>, StoreError> {
        self.store.get(&row_key(kind, call_id))?.as_deref().map(decode).transpose()
    }

    /// What became of the waiting of a call of the turn at hand.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn asked(&self, call_id: &str) -> Result<Asked, StoreError> {
        let mut asked = Asked::default();
        // Of all kinds of answers there is one row.
        for kind in [PendingKind::Approval, PendingKind::Question] {
            let Some(Parked { pending, resolved }) = self.parked(kind, call_id)? else { continue };
            if !self.is_at_hand(&pending.turn) {
                continue;
            }
            match resolved {
                None => continue,
                Some(Resolution::Approved { args, .. }) => {
                    asked.approved = true;
                    let args = args.filter(|_| !fault::active(Fault::ForgetArgs));
                    asked.args = Some(args.unwrap_or(pending.args));
                }
                Some(Resolution::Answered { answer }) => {
                    asked.answer = Some(answer);
                    asked.shown = pending.payload;
                    asked.args = Some(pending.args);
                }
                Some(Resolution::Declined { .. }) if fault::active(Fault::RunDeclined) => {
                    asked.approved = true
                }
                Some(refusal) => asked.refusal = Some(refusal),
            }
        }
        Ok(asked)
    }

    /// The calls that wait now, in the order in which the model made them.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn pending(&self) -> Result<Vec<Pending>, StoreError> {
        let mut pending = Vec::new();
        for call_id in self.waiting_calls() {
            for kind in [PendingKind::Approval, PendingKind::Question] {
                let row = self.parked(kind, &call_id)?;
                let open = row.filter(|row| row.resolved.is_none() && self.is_at_hand(&row.pending.turn));
                pending.extend(open.map(|row| row.pending));
            }
        }
        Ok(pending)
    }

    /// The ids of the calls that wait now.
    pub fn waiting_calls(&self) -> Vec<String> {
        match self.state().turn.as_ref().map(|turn| &turn.phase) {
            Some(TurnPhase::Tools { calls }) => {
                let waiting = calls.iter().filter(|call| call.status == CallStatus::Waiting);
                waiting.map(|call| call.call_id.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether the turn that stands in the session waits for a person.
    pub fn is_waiting(&self) -> bool {
        self.state().turn.as_ref().is_some_and(|turn| turn.waiting_since.is_some())
    }

    /// Whether somebody was asked about a call of this id, in whatever turn.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn was_asked(&self, call_id: &str) -> Result<bool, StoreError> {
        for kind in [PendingKind::Approval, PendingKind::Question] {
            if self.store.get(&row_key(kind, call_id))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether this turn stands in the session.
    pub fn is_at_hand(&self, turn: &str) -> bool {
        self.state().turn.as_ref().is_some_and(|own| own.id == turn)
    }
}
