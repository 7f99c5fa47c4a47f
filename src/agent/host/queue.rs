//! The queue: each queued message has a row of its own until its turn starts or it is removed.

use super::{Post, SessionHost};
use crate::ports::StoreError;
use crate::session::{DocumentKey, Draft, Session, decode, encode, idempotency::ResponseDocument};
use crate::turn::TurnMachine;
use crate::types::{
    Budget, ErrorCode, EventKind, Problem, QueuedTurn, StopReason, Timestamp, TurnEnd, TurnError, TurnId,
    TurnStatus, session::Webhook,
};
use std::rc::Rc;

/// Maximum number of messages in a queue.
const MAX_QUEUE: usize = 100;
/// Maximum size of a queue, in bytes (16 MiB).
const MAX_QUEUE_BYTES: u64 = 16 << 20;

/// A message for the queue, ready to be stored.
pub(super) struct QueuedMessage {
    turn: TurnId,
    json: String,
    response: Option<ResponseDocument>,
    webhook: Option<Webhook>,
    slot_until: Option<Timestamp>,
}

impl SessionHost {
    /// Prepares a message for the queue, if there is room for it.
    pub(super) fn queued(&self, session: &Rc<Session>, post: Post) -> Result<QueuedMessage, Problem> {
        if session.state().activity.queue.len() >= MAX_QUEUE {
            return Err(full(format!("the queue already holds {MAX_QUEUE} messages")));
        }
        let message = self.user_message(&post.turn, post.parts);
        let budget = session.state().meta.budget.patched(&post.budget);
        let queued = QueuedTurn { turn: post.turn.clone(), message, budget, options: post.options };
        let json = encode(&queued)?;
        let bytes = session.state().activity.reserved.queued + json.len() as u64;
        if bytes > MAX_QUEUE_BYTES && !session.state().activity.queue.is_empty() {
            return Err(full(format!("the queue would hold more than {MAX_QUEUE_BYTES} bytes")));
        }
        let Post { turn, response, webhook, slot_until, .. } = post;
        Ok(QueuedMessage { turn, json, response, webhook, slot_until })
    }

    /// Stores a message in the queue.
    pub(super) fn enqueue(
        &self,
        session: &Rc<Session>,
        message: QueuedMessage,
    ) -> Result<TurnStatus, Problem> {
        let QueuedMessage { turn, json, response, webhook, slot_until } = message;
        session
            .commit_from_outside(self.now(), |draft| {
                draft.enqueue(&turn, json);
                response.into_iter().for_each(|response| draft.store_response(response));
                webhook.into_iter().for_each(|webhook| draft.put_webhook(webhook));
                draft.record_queue();
                draft.hold_slot(slot_until);
            })
            .map_err(Problem::from)?;
        Ok(TurnStatus::Running)
    }

    /// Starts the turn of the oldest queued message, if no turn runs.
    pub(super) fn start_queued(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), StoreError> {
        let next = session.state().activity.queue.first().cloned();
        let Some(turn) = next.filter(|_| session.state().activity.turn.is_none()) else { return Ok(()) };
        let stored = session.document(&DocumentKey::Queued(turn.clone()))?;
        // An unreadable row stays unreadable, so it must not block later messages.
        let queued = stored.as_deref().and_then(|json| decode::<QueuedTurn>(json).ok());
        let limits = self.limits_of(session);
        session.commit(self.now(), |draft| {
            draft.dequeue(&turn, stored.as_deref().map_or(0, str::len));
            match queued {
                Some(queued) => {
                    let QueuedTurn { budget, options, message, .. } = queued;
                    let budget = limits.lower(budget);
                    draft.start_turn(TurnMachine::start(turn, self.now(), budget, options), message);
                }
                None => {
                    let message = "the queued message cannot be read".to_owned();
                    let error = Some(TurnError::new("internal", message, true));
                    let failed = TurnEnd::ended(TurnStatus::Failed, StopReason::Error);
                    draft.record(Some(&turn), EventKind::TurnFailed(TurnEnd { error, ..failed }));
                }
            }
            draft.record_queue();
        })
    }

    /// Removes a message from the queue. Returns `false` if it is not queued. Its content stays in the log.
    ///
    /// # Errors
    /// When too many records wait for the end of the streamed message, or the store fails.
    pub fn remove_queued(&self, session: &Rc<Session>, turn: &TurnId) -> Result<bool, Problem> {
        if !session.state().activity.queue.iter().any(|queued| queued == turn) {
            return Ok(false);
        }
        let dropped = dropped(session, vec![turn.to_owned()])?;
        session.commit_from_outside(self.now(), dropped).map_err(Problem::from)?;
        Ok(true)
    }

    /// Removes all messages from the queue.
    pub(super) fn clear_queue(&self, session: &Rc<Session>) -> Result<(), Problem> {
        let all = session.state().activity.queue.clone();
        if all.is_empty() {
            return Ok(());
        }
        let dropped = dropped(session, all)?;
        // Without the bound of `commit_from_outside`, because the streamed message ends right after this
        // commit.
        session.commit(self.now(), dropped).map_err(Problem::from)
    }
}

/// Returns the budgets of the queued turns.
///
/// # Errors
/// When the store fails.
pub(super) fn queued_budgets(session: &Session) -> Result<Vec<Budget>, StoreError> {
    let queue = session.state().activity.queue.clone();
    let mut budgets = Vec::with_capacity(queue.len());
    for turn in queue {
        let stored = session.document(&DocumentKey::Queued(turn))?;
        // An unreadable message starts no turn.
        let queued = stored.as_deref().and_then(|json| decode::<QueuedTurn>(json).ok());
        budgets.extend(queued.map(|queued| queued.budget));
    }
    Ok(budgets)
}

/// Returns the change that removes these turns from the queue.
fn dropped(session: &Session, turns: Vec<TurnId>) -> Result<impl FnOnce(&mut Draft) + use<>, StoreError> {
    let mut dropped = Vec::new();
    for turn in turns {
        let stored = session.document(&DocumentKey::Queued(turn.clone()))?;
        // An unreadable row is removed too.
        let queued = stored.as_deref().and_then(|json| decode::<QueuedTurn>(json).ok());
        dropped.push((turn, stored.map_or(0, |json| json.len()), queued.map(|queued| queued.message)));
    }
    Ok(move |draft: &mut Draft| {
        for (turn, bytes, message) in dropped {
            draft.dequeue(&turn, bytes);
            let canceled = TurnEnd::ended(TurnStatus::Canceled, StopReason::Canceled);
            let end = TurnEnd { message, ..canceled };
            draft.record(Some(&turn), EventKind::TurnCanceled(end));
        }
        draft.record_queue();
    })
}

fn full(detail: String) -> Problem {
    let problem = Problem::new(ErrorCode::QueueFull, detail);
    Problem { retry_after_s: Some(5), ..problem }
}
