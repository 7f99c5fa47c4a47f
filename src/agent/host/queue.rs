//! Messages that wait for their turn: each has a row of its own until it starts or is taken out.

use super::{Post, SessionHost, broken};
use crate::fault::{self, Fault};
use crate::ports::StoreError;
use crate::session::{Session, decode, encode};
use crate::types::{ErrorCode, EventKind, Problem, QueuedTurn, StopReason, TurnEnd, TurnError, TurnStatus};
use std::rc::Rc;

/// Most messages that wait behind a turn.
const MAX_QUEUE: usize = 100;

impl SessionHost {
    /// Lets a message wait for its turn.
    pub(super) fn enqueue(&self, session: &Rc<Session>, post: Post) -> Result<TurnStatus, Problem> {
        if session.state().queue.len() >= MAX_QUEUE {
            let mut problem =
                Problem::new(ErrorCode::QueueFull, format!("{MAX_QUEUE} messages wait already"));
            problem.retry_after_s = Some(5);
            return Err(problem);
        }
        let message = self.user_message(&post.turn, post.parts);
        let budget = session.state().meta.budget.patched(&post.budget);
        let queued = QueuedTurn { turn: post.turn.clone(), message, budget, options: post.options };
        let json = encode(&queued).map_err(broken)?;
        session
            .commit(self.now(), |draft| {
                draft.state.queue.push(post.turn.clone());
                draft.put(queue_key(&post.turn), json);
                if let Some((key, json)) = post.document {
                    draft.put(key, json);
                }
                let position = draft.state.queue.len();
                draft.record(Some(&post.turn), EventKind::TurnQueued { position });
            })
            .map_err(broken)?;
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
        session.commit(self.now(), |draft| {
            draft.state.queue.retain(|waiting| *waiting != turn);
            draft.delete(key);
            match &queued {
                Some(queued) => {
                    let message = Rc::clone(&queued.message);
                    self.draft_start(draft, turn, queued.budget, queued.options.clone(), message);
                }
                None => {
                    let message = "the queued message cannot be read any more".to_owned();
                    let error = Some(TurnError { code: "internal".into(), message, retryable: true });
                    let failed = TurnEnd::ended(TurnStatus::Failed, StopReason::Error);
                    draft.record(Some(&turn), EventKind::TurnFailed(TurnEnd { error, ..failed }));
                }
            }
        })?;
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
    /// When the store breaks.
    pub fn remove_queued(&self, session: &Rc<Session>, turn: &str) -> Result<bool, Problem> {
        if !session.state().queue.iter().any(|queued| queued == turn) {
            return Ok(false);
        }
        self.drop_queued(session, &[turn.to_owned()]).map_err(broken)?;
        Ok(true)
    }

    /// Takes all messages from the queue.
    pub(super) fn clear_queue(&self, session: &Rc<Session>) -> Result<(), Problem> {
        let all = session.state().queue.clone();
        self.drop_queued(session, &all).map_err(broken)
    }

    fn drop_queued(&self, session: &Rc<Session>, turns: &[String]) -> Result<(), StoreError> {
        if turns.is_empty() {
            return Ok(());
        }
        let mut dropped = Vec::new();
        for turn in turns {
            let stored = self.ports.store.get(&queue_key(turn))?;
            let queued: Option<QueuedTurn> = stored.as_deref().map(decode).transpose()?;
            dropped.push((turn, queued.map(|queued| queued.message)));
        }
        session.commit(self.now(), |draft| {
            draft.state.queue.retain(|waiting| !turns.contains(waiting));
            for (turn, message) in dropped {
                draft.delete(queue_key(turn));
                let canceled = TurnEnd::ended(TurnStatus::Canceled, StopReason::Canceled);
                let end = TurnEnd { message, ..canceled };
                draft.record(Some(turn), EventKind::TurnCanceled(end));
            }
        })
    }
}

fn queue_key(turn: &str) -> String {
    format!("queue/{turn}")
}
