//! Accepts, runs, recovers and aborts turns.

use super::{OnBusy, Post, SessionHost, webhooks::check_room};
use crate::agent::{RuntimeContext, ending::Ending, finalizer, judge};
use crate::ports::StoreError;
use crate::session::{Permit, Session, WriteError, suspensions::child_completed};
use crate::turn::TurnMachine;
use crate::types::{
    CallId, ChildStatus, ErrorCode, EventKind, Message, Problem, Role, SessionStatus, StopReason, TurnError,
    TurnId, TurnStatus,
};
use futures::{FutureExt, future::abortable};
use std::{panic::AssertUnwindSafe, rc::Rc};

impl SessionHost {
    /// Accepts a message: its turn starts at once, or the message is queued.
    ///
    /// # Errors
    /// `agent_gone`, `session_busy`, `queue_full`, or a failed store. Nothing is stored then.
    pub fn post(self: &Rc<Self>, session: &Rc<Session>, post: Post) -> Result<TurnStatus, Problem> {
        self.check_agent()?;
        if let Some(webhook) = &post.webhook {
            check_room(session, &webhook.key)?;
        }
        if session.state().status() == SessionStatus::Idle {
            return self.start(session, post);
        }
        match post.on_busy {
            OnBusy::Reject => Err(busy_now()),
            // A new message ends a turn that waits for a person.
            OnBusy::Queue if session.state().status() == SessionStatus::Waiting => {
                let message = self.queued(session, post)?;
                // Prepared first: an unqueueable message must not end the turn.
                self.interrupt(session)?;
                self.enqueue(session, message)
            }
            OnBusy::Queue => self.enqueue(session, self.queued(session, post)?),
            OnBusy::Steer => {
                self.clear_queue(session)?;
                self.interrupt(session)?;
                self.start(session, post)
            }
        }
    }

    /// Checks that a running turn does not exclude a message.
    ///
    /// # Errors
    /// `session_busy`.
    pub fn check_busy(&self, session: &Session, on_busy: OnBusy) -> Result<(), Problem> {
        let busy = session.state().status() != SessionStatus::Idle;
        if busy && on_busy == OnBusy::Reject { Err(busy_now()) } else { Ok(()) }
    }

    fn start(self: &Rc<Self>, session: &Rc<Session>, post: Post) -> Result<TurnStatus, Problem> {
        let new = session.last_seq() == 0;
        let message = self.user_message(&post.turn, post.parts);
        let budget = session.state().meta.budget.patched(&post.budget);
        let budget = self.limits_of(session).lower(budget);
        // Before the commit: on Cloudflare, what leaves the object after it waits until the disk has it.
        *self.prefetch.borrow_mut() = self.agent().prefetch(&session.state().meta.workspace());
        let started = session.commit(self.now(), |draft| {
            if new {
                draft.created(None);
            }
            post.response.into_iter().for_each(|response| draft.store_response(response));
            post.webhook.into_iter().for_each(|webhook| draft.put_webhook(webhook));
            let turn = TurnMachine::start(post.turn, self.now(), budget, post.options);
            draft.start_turn(turn, message);
            draft.hold_slot(post.slot_until);
        });
        if new && started.is_ok() {
            self.adopt_new(session);
        }
        self.prefetch.take();
        started?;
        Ok(TurnStatus::Running)
    }

    /// Makes this host serve a newly stored session, and runs its turn, if it has one.
    pub(super) fn adopt_new(self: &Rc<Self>, session: &Rc<Session>) {
        self.adopt(session);
        if session.state().activity.turn.is_some() {
            // This process started the turn, so there is nothing to recover.
            self.kernel.borrow_mut().started_here();
        }
        self.run_due();
    }

    pub(super) fn user_message(&self, turn: &TurnId, parts: Vec<crate::types::Part>) -> Rc<Message> {
        Rc::new(Message {
            id: self.new_id(),
            seq: 0,
            role: Role::User,
            parts,
            created_at: self.now(),
            turn: turn.to_owned(),
            interrupted: false,
        })
    }

    /// Runs the current turn in this process, from its journal.
    pub(super) fn run(self: &Rc<Self>, session: &Rc<Session>, permit: Permit) {
        let cx = self.context(session, permit);
        cx.state.set_prefetch(self.prefetch.take());
        let (host, own) = (Rc::clone(self), Rc::clone(&cx));
        let (work, handle) = abortable(async move { host.drive(own).await });
        *self.turn.borrow_mut() = Some((cx, handle));
        self.ports.spawner.spawn(work.map(drop).boxed_local());
    }

    async fn drive(self: Rc<Self>, cx: Rc<RuntimeContext>) {
        let session = &cx.session;
        let result = match self.own_message(&cx) {
            Ok(Some(message)) => {
                let call = AssertUnwindSafe(self.agent().call(message, Rc::clone(&cx))).catch_unwind().await;
                // A panic ends only this turn.
                call.unwrap_or_else(|_| self.fail(&cx, "internal error: the turn panicked"))
            }
            // A turn that cannot continue must not block queued turns.
            Ok(None) => self.fail(&cx, "the log lacks the message of this turn"),
            Err(error) => Err(WriteError::Store(error)),
        };
        let is_own = self.turn.borrow().as_ref().is_some_and(|(running, _)| running.permit == cx.permit);
        if is_own {
            self.turn.borrow_mut().take();
        }
        match result {
            Ok(()) => {
                if !session.hub().has_listeners() {
                    self.stop_streams();
                }
                judge::grade_reply(&self.agent(), &cx);
            }
            Err(WriteError::Store(_)) if is_own => self.drop_copy(session),
            Err(_) => {}
        }
    }

    /// Drops a copy of the session whose store has failed. The session is soon read again and continues from
    /// its journal. Requests that wait for a turn of this copy get an error.
    fn drop_copy(self: &Rc<Self>, session: &Rc<Session>) {
        session.hub().detach();
        session.retire();
        self.stop_streams();
        self.session.borrow_mut().take();
        self.kernel.borrow_mut().store_failed(self.now());
        self.run_due();
    }

    /// Returns the user's message of the turn.
    fn own_message(&self, cx: &RuntimeContext) -> Result<Option<Rc<Message>>, StoreError> {
        let session = &cx.session;
        let is_own = |message: &Rc<Message>| message.role == Role::User && message.turn == cx.permit.turn;
        session
            .messages()
            .into_iter()
            .find(is_own)
            .map(|message| session.complete_message(&message))
            .transpose()
    }

    fn fail(&self, cx: &Rc<RuntimeContext>, why: &str) -> Result<(), WriteError> {
        let error = TurnError::new("internal", why, true);
        finalizer::seal(&self.agent(), cx, Ending::failed(error))
    }

    /// Gives a turn that no process runs a new epoch, so that the kernel runs it.
    pub(super) fn recover_turn(&self, session: &Rc<Session>) -> Result<(), StoreError> {
        let Some(permit) = Permit::of(session).filter(|_| self.kernel.borrow().is_orphan(session)) else {
            return Ok(());
        };
        session.commit(self.now(), |draft| {
            if let Some(state) = draft.turn_mut() {
                TurnMachine(state).resume();
                let epoch = state.epoch;
                draft.close_message();
                let reason = "restart".into();
                draft.record(Some(&permit.turn), EventKind::TurnResumed { epoch, reason });
            }
        })
    }

    /// Aborts the current turn; returns `false` if there is none. `statuses` are the statuses of its
    /// children, which the caller has canceled.
    ///
    /// # Errors
    /// When the store fails. The turn then continues.
    pub fn abort(
        self: &Rc<Self>,
        session: &Rc<Session>,
        statuses: Vec<ChildStatus>,
    ) -> Result<bool, Problem> {
        self.end_with(session, Ending { statuses, ..Ending::new(StopReason::Canceled) })
    }

    /// Ends the current turn, running or waiting; returns `false` if there is none.
    pub(super) fn end_with(self: &Rc<Self>, session: &Rc<Session>, ending: Ending) -> Result<bool, Problem> {
        let Some(permit) = Permit::of(session) else { return Ok(false) };
        let own = self.turn.borrow().as_ref().map(|(cx, handle)| (Rc::clone(cx), handle.clone()));
        let own = own.filter(|(cx, _)| cx.permit == permit);
        let cx = own.as_ref().map_or_else(|| self.context(session, permit), |(cx, _)| Rc::clone(cx));
        // Best effort: unreadable records only leave the terminal record's counts incomplete.
        let _ = self.agent().restore_state(&cx);
        let suspensions = session.suspensions()?;
        let mut ending = ending;
        ending.resolved.extend(self.known_outcomes(session));
        for suspension in &suspensions {
            let Some(child) = suspension.child() else { continue };
            let status = ending.statuses.iter().find(|status| status.call_id == suspension.call_id);
            // A child may have completed before its cancellation arrived.
            let end = status.map_or(TurnStatus::Canceled, |status| status.status);
            ending.records.push(child_completed(&suspension.call_id, child, end, status));
        }
        finalizer::seal(&self.agent(), &cx, ending).map_err(|error| Problem::internal(error.to_string()))?;
        self.cancel_later(&suspensions);
        // Aborting the task closes its connections. The seal already refuses its writes.
        if let Some((_, handle)) = own {
            handle.abort();
        }
        if !session.hub().has_listeners() {
            self.stop_streams();
        }
        Ok(true)
    }

    fn context(self: &Rc<Self>, session: &Rc<Session>, permit: Permit) -> Rc<RuntimeContext> {
        // Weak, because the host holds the context of the current turn.
        let (host, own) = (Rc::downgrade(self), Rc::downgrade(session));
        let finish_follow_ups = move || {
            let (host, own) = (host.upgrade(), own.upgrade());
            async move {
                if let (Some(host), Some(session)) = (host, own) {
                    host.finish_follow_ups(&session).await;
                }
            }
            .boxed_local()
        };
        let state = session.state();
        Rc::new(RuntimeContext {
            tenant: state.meta.tenant.clone(),
            user: state.meta.user.clone(),
            agent: state.meta.agent.clone(),
            session: Rc::clone(session),
            permit,
            clock: Rc::clone(&self.ports.clock),
            spawner: Rc::clone(&self.ports.spawner),
            artifacts: self.artifacts(session),
            modes: Rc::clone(self.agent().modes()),
            state_rules: Rc::clone(&self.agent().state),
            state: Rc::default(),
            skills: Rc::new(self.agent().skills_of(&state.meta)),
            finish_follow_ups: Rc::new(finish_follow_ups),
        })
    }

    /// Returns whether this process has started the tool of this call.
    pub fn has_begun(&self, call_id: &CallId) -> bool {
        self.turn.borrow().as_ref().is_some_and(|(cx, _)| cx.state.has_begun(call_id))
    }
}

fn busy_now() -> Problem {
    let detail = "a turn is running; wait for it, or use on_busy `queue` or `steer`";
    Problem::new(ErrorCode::SessionBusy, detail)
}
