//! Messages that wait for their turn: each has a row of its own until it starts or is taken out.

use super::{Post, SessionHost};
use crate::fault::{self, Fault};
use crate::ports::StoreError;
use crate::session::{Draft, Session, decode, encode};
use crate::types::{ErrorCode, EventKind, Problem, QueuedTurn, StopReason, TurnEnd, TurnError, TurnStatus};
use std::rc::Rc;

/// Most messages that wait behind a turn.
const MAX_QUEUE: usize = 100;
/// Most bytes of them together (16 MiB).
const MAX_QUEUE_BYTES: u64 = 16 << 20;

/// A message that is to wait, ready to be stored.
pub(super) struct ToWait {
    turn: String,
    json: String,
    document: Option<(String, String)>,
}

impl SessionHost {
    /// A message as it waits for its turn, if there is room for it.
    pub(super) fn to_wait(&self, session: &Rc<Session>, post: Post) -> Result<ToWait, Problem> {
        if session.state().queue.len() >= MAX_QUEUE {
            return Err(full(format!("{MAX_QUEUE} messages wait already")));
        }
        let message = self.user_message(&post.turn, post.parts);
        let budget = session.state().meta.budget.patched(&post.budget);
        let queued = QueuedTurn { turn: post.turn.clone(), message, budget, options: post.options };
        let json = encode(&queued)?;
        let bytes = session.state().reserved.queued + json.len() as u64;
        if bytes > MAX_QUEUE_BYTES && !session.state().queue.is_empty() {
            return Err(full(format!("the messages that wait have more than {MAX_QUEUE_BYTES} bytes")));
        }
        Ok(ToWait { turn: post.turn, json, document: post.document })
    }

    /// Lets a message wait for its turn.
    pub(super) fn enqueue(&self, session: &Rc<Session>, message: ToWait) -> Result<TurnStatus, Problem> {
        let ToWait { turn, json, document } = message;
        session
            .commit_from_outside(self.now(), |draft| {
                draft.state.queue.push(turn.clone());
                draft.state.reserved.queued += json.len() as u64;
                draft.put(queue_key(&turn), json);
                if let Some((key, json)) = document {
                    draft.put(key, json);
                }
                let position = draft.state.queue.len();
                draft.record(Some(&turn), EventKind::TurnQueued { position });
                tell(draft);
            })
            .map_err(Problem::from)?;
        Ok(TurnStatus::Running)
    }

    /// Starts the turn that has waited longest, if none runs.
    pub(super) fn start_queued(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), StoreError> {
        let next = session.state().queue.first().cloned();
        let Some(turn) = next.filter(|_| session.state().turn.is_none()) else { return Ok(()) };
        let key = queue_key(&turn);
        let stored = self.ports.store.get(&key)?;
        // What cannot be read will not be readable later: it must not stand in the way of others.
        let queued = stored.as_deref().and_then(|json| decode::<QueuedTurn>(json).ok());
        let queued = queued.filter(|_| !fault::active(Fault::LoseQueued));
        let titled = session.commit(self.now(), |draft| {
            draft.state.unqueue(&turn, stored.as_deref().map_or(0, str::len));
            draft.delete(key);
            let titled = match &queued {
                Some(queued) => {
                    let message = Rc::clone(&queued.message);
                    self.draft_start(draft, turn, queued.budget, queued.options.clone(), message)
                }
                None => {
                    let message = "the queued message cannot be read any more".to_owned();
                    let error = Some(TurnError { code: "internal".into(), message, retryable: true });
                    let failed = TurnEnd::ended(TurnStatus::Failed, StopReason::Error);
                    draft.record(Some(&turn), EventKind::TurnFailed(TurnEnd { error, ..failed }));
                    false
                }
            };
            tell(draft);
            titled
        })?;
        if titled {
            self.list_later(session);
        }
        match queued {
            Some(queued) => {
                self.run(session, queued.message);
                Ok(())
            }
            None => self.start_queued(session),
        }
    }

    /// Takes a message from the queue; false if it is not there. What it said stays in the log.
    ///
    /// # Errors
    /// When too much waits for the message that is being written, or the store breaks.
    pub fn remove_queued(&self, session: &Rc<Session>, turn: &str) -> Result<bool, Problem> {
        if !session.state().queue.iter().any(|queued| queued == turn) {
            return Ok(false);
        }
        let dropped = self.dropped(vec![turn.to_owned()])?;
        session.commit_from_outside(self.now(), dropped).map_err(Problem::from)?;
        Ok(true)
    }

    /// Takes all messages from the queue.
    pub(super) fn clear_queue(&self, session: &Rc<Session>) -> Result<(), Problem> {
        let all = session.state().queue.clone();
        if all.is_empty() {
            return Ok(());
        }
        let dropped = self.dropped(all)?;
        // Never refused: the message that is being written ends right behind it.
        session.commit(self.now(), dropped).map_err(Problem::from)
    }

    /// The change that takes these from the queue.
    fn dropped(&self, turns: Vec<String>) -> Result<impl FnOnce(&mut Draft) + use<>, StoreError> {
        let mut dropped = Vec::new();
        for turn in turns {
            let stored = self.ports.store.get(&queue_key(&turn))?;
            // As above: what it said is lost, but it must not stay for ever.
            let queued = stored.as_deref().and_then(|json| decode::<QueuedTurn>(json).ok());
            dropped.push((turn, stored.map_or(0, |json| json.len()), queued.map(|queued| queued.message)));
        }
        Ok(move |draft: &mut Draft| {
            for (turn, bytes, message) in dropped {
                draft.state.unqueue(&turn, bytes);
                draft.delete(queue_key(&turn));
                let canceled = TurnEnd::ended(TurnStatus::Canceled, StopReason::Canceled);
                let end = TurnEnd { message, ..canceled };
                draft.record(Some(&turn), EventKind::TurnCanceled(end));
            }
            tell(draft);
        })
    }
}

/// Drafts how many messages wait now.
fn tell(draft: &mut Draft) {
    let count = draft.state.queue.len();
    draft.record(None, EventKind::FollowupQueued { count });
}

fn full(detail: String) -> Problem {
    let problem = Problem::new(ErrorCode::QueueFull, detail);
    Problem { retry_after_s: Some(5), ..problem }
}

fn queue_key(turn: &str) -> String {
    format!("queue/{turn}")
}
