//! Performs the kernel's effects: runs turns, starts background jobs, arms the alarm.

use super::{Running, SessionHost, children::rules_hash, delegation::OpenTask, inbox};
use crate::agent::CancelToken;
use crate::ports::StoreError;
use crate::session::{
    OpenError, Session,
    kernel::{Child, Durable, Effect, Input, Job, LedgerDues},
};
use crate::types::{ChildStatus, ListedCall, Problem, SessionState, Suspension, Timestamp};
use futures::FutureExt;
use std::rc::Rc;
use std::time::Duration;

/// Delay until a session that a newer version has written is read again.
const RECHECK_NEWER: Duration = Duration::from_mins(10);

impl SessionHost {
    /// Handles the platform's alarm.
    ///
    /// # Errors
    /// When the store fails. The platform then repeats the alarm.
    pub async fn wake(self: &Rc<Self>) -> Result<(), Problem> {
        self.load_agent().await?;
        let opened = self.open();
        if let Err(OpenError::Newer(_)) = opened {
            // The platform drops an alarm that keeps failing, but the newer version needs it.
            self.ports.spawner.wake_after(RECHECK_NEWER);
            return Ok(());
        }
        let recovered = opened.and_then(|session| {
            Ok(session.map_or_else(|| self.expire_copy(), |own| self.recover_turn(&own))?)
        });
        self.enter(Input::Alarm);
        Ok(recovered?)
    }

    /// Handles the arrival of a request, an alarm or a message. Jobs that change the turn run before this
    /// returns, so that the caller sees neither an evicted turn nor an expired call.
    pub(super) fn enter(self: &Rc<Self>, input: Input) {
        let mut effects = self.due(input);
        while let Some(effect) = effects.pop() {
            let session = self.session.borrow().clone();
            match (effect, session) {
                (
                    Effect::Start(
                        job @ (Job::RecoverTurn | Job::StartQueued | Job::ExpireCalls | Job::Promote),
                    ),
                    Some(session),
                ) => {
                    let succeeded = self.perform_turn_job(&session, &job);
                    effects.extend(self.due(Input::JobEnded(job, succeeded)));
                }
                (effect, session) => self.effect(effect, session.as_ref()),
            }
        }
    }

    /// Performs the effects that are due. Call this after the platform has opened a WebSocket.
    pub fn run_due(self: &Rc<Self>) {
        self.handle(Input::Changed);
    }

    /// Passes an input to the kernel and performs the effects that are then due.
    pub(super) fn handle(self: &Rc<Self>, input: Input) {
        for effect in self.due(input) {
            let session = self.session.borrow().clone();
            self.effect(effect, session.as_ref());
        }
    }

    /// Passes an input to the kernel and returns the effects.
    fn due(&self, input: Input) -> Vec<Effect> {
        let session = self.session.borrow().clone();
        let now = self.now();
        let mut kernel = self.kernel.borrow_mut();
        let Some(session) = session else { return kernel.handle(input, Ok(None), now) };
        match self.facts(&session) {
            Ok(facts) => kernel.handle(input, Ok(Some(facts.durable(&session.state()))), now),
            Err(error) => kernel.handle(input, Err(error), now),
        }
    }

    fn effect(self: &Rc<Self>, effect: Effect, session: Option<&Rc<Session>>) {
        match (effect, session) {
            (Effect::WakeAt(at), _) => self.ports.spawner.wake_after(at.since(self.now())),
            (Effect::TimerAt(at), _) => self.start_timer(at),
            (Effect::RunTurn(permit), Some(session)) => self.run(session, permit),
            (Effect::Start(job), Some(session)) => self.start_job(session, job),
            (Effect::RunTurn(_) | Effect::Start(_), None) => {}
        }
    }

    fn start_timer(self: &Rc<Self>, at: Timestamp) {
        let (host, timer) = (Rc::downgrade(self), self.ports.clock.sleep(at.since(self.now())));
        self.spawn(async move {
            timer.await;
            if let Some(host) = host.upgrade() {
                host.handle(Input::Timer);
            }
        });
    }

    fn start_job(self: &Rc<Self>, session: &Rc<Session>, job: Job) {
        let cancel = CancelToken::default();
        let (host, session, own, name) = (Rc::clone(self), Rc::clone(session), cancel.clone(), job.clone());
        let work = async move {
            let succeeded = host.perform(&session, &name, &own).await;
            host.jobs.borrow_mut().remove(&name);
            host.handle(Input::JobEnded(name, succeeded));
        };
        let work = work.boxed_local().shared();
        if let Some(work) = work.downgrade() {
            self.jobs.borrow_mut().insert(job, Running { work, cancel });
        }
        self.ports.spawner.spawn(work.boxed_local());
    }

    /// Runs a job. Returns `false` if it must be retried.
    async fn perform(self: &Rc<Self>, session: &Rc<Session>, job: &Job, cancel: &CancelToken) -> bool {
        match job {
            Job::StartQueued | Job::RecoverTurn | Job::ExpireCalls | Job::Promote => {
                self.perform_turn_job(session, job)
            }
            Job::StartWoken => self.start_woken(session).await.is_ok(),
            Job::NotifyChild(child) => self.notify_child(session, child).await.is_ok(),
            Job::CancelChild(task) => self.cancel_child(session, task).await.is_ok(),
            Job::NotifyParent => self.notify_parent(session).await.is_ok(),
            Job::NotifyWebhook => self.notify_webhook(session).await.is_ok(),
            Job::FollowUps => self.run_follow_ups(session, cancel).await.is_ok(),
            Job::Tick(name) => self.tick(session, name, cancel).await.is_ok(),
            Job::Report => self.report(session).await.is_ok(),
            Job::List => self.update_list_entry(session).await.is_ok(),
            Job::NotifyInbox => self.notify_inbox(session).await.is_ok(),
            Job::Purge => self.purge(session).await.is_ok(),
            // A request that is in flight may be about to post the first message.
            Job::Discard => self.in_flight() == 0 && self.erase_own(session).await.is_ok(),
            Job::CloseSockets => {
                self.ports.broadcast.iter().for_each(|sockets| sockets.close_expired());
                true
            }
        }
    }

    /// Runs a job that does not await.
    fn perform_turn_job(self: &Rc<Self>, session: &Rc<Session>, job: &Job) -> bool {
        match job {
            Job::StartQueued => self.start_queued(session).is_ok(),
            Job::RecoverTurn => self.recover_turn(session).is_ok(),
            Job::ExpireCalls => self.expire(session).is_ok(),
            Job::Promote => self.promote(session).is_ok(),
            _ => false,
        }
    }

    /// Waits until the job has ended. Returns `false` if it was not running.
    pub(super) async fn await_job(&self, job: &Job) -> bool {
        let work = self.jobs.borrow().get(job).and_then(|running| running.work.upgrade());
        match work {
            Some(work) => {
                work.await;
                true
            }
            None => false,
        }
    }

    fn facts(&self, session: &Rc<Session>) -> Result<Facts, StoreError> {
        let suspensions = session.suspensions()?;
        let subagents = Rc::clone(&session.state().subagents);
        let open = OpenTask::first_of(&suspensions, subagents.open());
        let hash = if open.is_empty() { String::new() } else { rules_hash(session) };
        let children = open.into_iter().filter(|(_, open)| !open.is_canceled).map(|(child, open)| Child {
            session: child,
            call_id: open.call_id,
            acknowledged: open.notified.as_ref() == Some(&hash),
            rules: hash.clone(),
            in_background: open.in_background,
        });
        let expiries = suspensions.iter().map(Suspension::changes_at);
        Ok(Facts {
            follow_up_at_once: self.has_follow_up_at_once(session),
            socket_expires_at: self.ports.broadcast.as_ref().and_then(|sockets| sockets.expires_at()),
            expires_at: expiries.chain(subagents.open().map(|task| task.expires_at)).min(),
            promote_at: suspensions.iter().filter_map(Suspension::promote_at).min(),
            children: children.collect(),
            inbox: inbox::due(&session.state(), &suspensions),
            ledger: self.ledger_dues(session),
            status: self.unacknowledged_status(session)?,
        })
    }
}

/// The parts of [`Durable`] that are not in the state.
struct Facts {
    follow_up_at_once: bool,
    expires_at: Option<Timestamp>,
    promote_at: Option<Timestamp>,
    socket_expires_at: Option<Timestamp>,
    children: Vec<Child>,
    inbox: Option<Vec<ListedCall>>,
    ledger: LedgerDues,
    status: Option<ChildStatus>,
}

impl Facts {
    fn durable(self, state: &SessionState) -> Durable<'_> {
        Durable {
            state,
            expires_at: self.expires_at,
            promote_at: self.promote_at,
            socket_expires_at: self.socket_expires_at,
            follow_up_at_once: self.follow_up_at_once,
            children: self.children,
            inbox: self.inbox,
            ledger: self.ledger,
            status: self.status,
        }
    }
}
