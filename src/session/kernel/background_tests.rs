//! The obligations of sessions with background tasks.

use super::*;
use crate::types::{BackgroundTask, Budget, Owner, SessionMeta, TurnStatus, background::MAX_WAKES};
use pretty_assertions::assert_eq;
use std::rc::Rc;

const NOW: Timestamp = Timestamp(1_000_000);

fn task(number: u32) -> BackgroundTask {
    BackgroundTask {
        id: format!("trn_{number}").into(),
        session: format!("ses_{number}").into(),
        agent: "general-purpose".into(),
        label: None,
        number: 0,
        turn: "t".into(),
        call_id: "c".into(),
        budget: Budget::default(),
        started_at: NOW,
        expires_at: NOW + Duration::from_hours(24),
        status: TurnStatus::Running,
        notified: Some("r".into()),
        canceled_at: None,
        ended_at: None,
        shown_in: None,
        wakes: true,
    }
}

/// An idle session with these tasks, from which nothing else follows.
fn state(tasks: Vec<BackgroundTask>) -> SessionState {
    let owner = Owner { tenant: "t".into(), user: "u".into(), agent: "a".into() };
    let mut state = SessionState::new(SessionMeta::new("s".into(), owner, NOW));
    Rc::make_mut(&mut state.background).listed_at = NOW;
    Rc::make_mut(&mut state.background).purge_at = None;
    Rc::make_mut(&mut state.subagents).tasks = tasks;
    state
}

fn durable(state: &SessionState) -> Durable<'_> {
    let open = state.subagents.open().filter(|task| task.canceled_at.is_none());
    let child = |task: &BackgroundTask| Child {
        session: task.session.clone(),
        call_id: task.call_id.clone(),
        rules: "r".into(),
        acknowledged: true,
        in_background: true,
    };
    Durable {
        state,
        expires_at: None,
        promote_at: None,
        socket_expires_at: None,
        follow_up_at_once: false,
        children: open.map(child).collect(),
        inbox: None,
        ledger: LedgerDues::default(),
        status: None,
    }
}

fn started(effects: &[Effect]) -> Vec<Job> {
    let start = |effect: &Effect| match effect {
        Effect::Start(job) => Some(job.clone()),
        _ => None,
    };
    effects.iter().filter_map(start).collect()
}

#[test]
fn a_silent_child_is_notified_again() {
    let (state, mut kernel) = (state(vec![task(1)]), SessionKernel::default());
    let notify = Job::NotifyChild("ses_1".into());
    let effects = kernel.handle(Input::Changed, Ok(Some(durable(&state))), NOW);
    assert_eq!(started(&effects), std::slice::from_ref(&notify), "each process notifies it once");
    kernel.apply(Input::ChildNotified("ses_1".into()), NOW);
    let ended = Input::JobEnded(notify.clone(), true);
    assert_eq!(started(&kernel.handle(ended, Ok(Some(durable(&state))), NOW)), []);
    let wake = kernel.next_wake(Some(&durable(&state)), NOW);
    assert_eq!(wake, Some(NOW + CHECK_CHILD), "although the session is idle");
    let effects = kernel.handle(Input::Alarm, Ok(Some(durable(&state))), NOW + CHECK_CHILD);
    assert_eq!(started(&effects), [notify]);
}

#[test]
fn a_canceled_task_is_canceled_again_by_each_process() {
    let state = state(vec![BackgroundTask { canceled_at: Some(NOW), ..task(1) }]);
    for _ in 0..2 {
        let mut kernel = SessionKernel::default();
        let effects = kernel.handle(Input::Alarm, Ok(Some(durable(&state))), NOW);
        assert_eq!(started(&effects), [Job::CancelChild(task(1).key())]);
    }
}

#[test]
fn a_finished_task_starts_a_turn_unless_one_runs_or_there_were_too_many() {
    let ended = |task: BackgroundTask| BackgroundTask { ended_at: Some(NOW), ..task };
    let starts = |state: &SessionState| {
        let effects = SessionKernel::default().handle(Input::Changed, Ok(Some(durable(state))), NOW);
        started(&effects).contains(&Job::StartWoken)
    };
    let mut idle = state(vec![ended(task(1))]);
    assert!(starts(&idle) && works(&idle));
    assert!(!starts(&state(vec![task(1)])), "it has not ended");
    assert!(!starts(&state(vec![BackgroundTask { shown_in: Some("t".into()), ..ended(task(1)) }])));
    assert!(!starts(&state(vec![BackgroundTask { wakes: false, ..ended(task(1)) }])));
    Rc::make_mut(&mut idle.subagents).wakes = MAX_WAKES;
    assert!(!starts(&idle) && !works(&idle));
    Rc::make_mut(&mut idle.subagents).wakes = 0;
    Rc::make_mut(&mut idle.activity).queue.push("t2".into());
    assert!(!starts(&idle), "the queued message shows the result");
}
