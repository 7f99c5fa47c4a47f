//! Tasks for subagents, and the network between sessions.

use super::{
    AGENT_SEND, AGENT_SPAWN, Act, CallScript, FinalResponse, Flaky, SUBAGENT, SessionScenario, StepScript,
    TurnScript, any_call, any_step, mark, operator, people::PeopleScenario,
};
use crate::dice::Dice;
use edge_harness::types::{BackgroundTasks, Policy, subagent::GENERAL};
use serde_json::json;

/// The settings shared by all sessions of a world.
#[derive(Clone, Default)]
pub struct SubagentsScenario {
    /// Whether agents have subagents.
    pub on: bool,
    /// Whether they work in the background.
    pub background: BackgroundTasks,
    /// The polls at which objects without a scenario are evicted, in order of their creation.
    pub crashes: Vec<Vec<u64>>,
    /// Their refused writes: after how many commits, and how many.
    pub refusals: Vec<Vec<(u64, u64)>>,
    /// When no session can reach another, in milliseconds from the start.
    pub outage: Option<(u64, u64)>,
    /// The messages between sessions that arrive but whose responses are lost, by index.
    pub unanswered: Vec<usize>,
    /// Maximum delay of a message in each direction, in milliseconds.
    pub pace: u64,
}

impl SubagentsScenario {
    /// Returns whether all messages between sessions arrive and are answered.
    pub fn is_reliable(&self) -> bool {
        self.outage.is_none() && self.unanswered.is_empty()
    }

    /// Returns the same scenario without evictions, refused writes and failed messages.
    pub fn undisturbed(self) -> Self {
        Self { on: self.on, background: self.background, pace: self.pace, ..Self::default() }
    }
}

/// Adds subagents to some worlds.
pub fn add_subagents(
    dice: &mut Dice,
    quiet: bool,
    sessions: &mut [SessionScenario],
    people: &mut PeopleScenario,
) -> SubagentsScenario {
    if !dice.chance(30) {
        return SubagentsScenario::default();
    }
    for (place, session) in sessions.iter_mut().enumerate() {
        let asked = session.rules.is_some();
        if let Some(rules) = session.rules.as_mut().filter(|_| dice.chance(15)) {
            let policy = dice.pick(&[Policy::Ask, Policy::Ask, Policy::Ask, Policy::Deny]);
            rules.tools.insert(SUBAGENT.into(), policy);
        }
        for turn in &mut session.turns {
            if turn.steps.is_empty() && dice.chance(60) {
                turn.steps.push(StepScript { words: dice.chance(50), ..StepScript::default() });
            }
            if let Some(tools) = turn.tools.as_mut().filter(|_| dice.chance(70)) {
                tools.push(SUBAGENT);
            }
            let (budget, mut spawned) = (turn.budget, Vec::new());
            for step in turn.steps.iter_mut().filter(|step| !step.pauses) {
                for _ in 0..if dice.chance(55) { dice.pick(&[1, 1, 2, 3]) } else { 0 } {
                    let number = session.tasks.len() + spawned.len();
                    let task = TurnScript { budget, ..task(dice, place, number, quiet, asked) };
                    let at = usize::try_from(dice.below(step.calls.len() as u64 + 1)).unwrap_or(0);
                    step.calls.insert(at, call(dice, &task.said, quiet));
                    spawned.push(task);
                }
            }
            session.tasks.extend(spawned);
        }
        let calls =
            session.turns.iter_mut().flat_map(|turn| &mut turn.steps).flat_map(|step| &mut step.calls);
        // A client that reconnects identifies a call by its id.
        calls.for_each(|call| call.named |= quiet);
        let times: Vec<u64> = session.acts.iter().map(|(at, _)| *at).collect();
        let last = times.iter().max().copied().unwrap_or(0);
        if !quiet && dice.chance(40) {
            session.acts.push((dice.below(last + 4_000), Act::Abort));
        }
        // Soon after a message, while its tasks may be on their way.
        if !quiet && !times.is_empty() && dice.chance(60) {
            session.acts.push((dice.pick(&times) + dice.below(120), Act::Abort));
        }
        session.erased |= !quiet && dice.chance(15);
        // While tasks run, the rules of the parent change.
        let mut others = dice.clone().fork();
        for at in times.iter().filter(|_| !quiet && asked) {
            if others.chance(40) {
                session
                    .acts
                    .push((at + others.within(20, 1_500), Act::Permit(operator::denial(&mut others))));
            }
        }
    }
    if !quiet && sessions.iter().any(|session| session.rules.is_some()) {
        // A subagent that a cancellation does not reach waits for people until its suspensions expire.
        people.ttl_s = people.ttl_s.or(Some(dice.pick(&[15, 60, 300])));
    }
    // From dice of their own, so that the rest of the scenario stays the same.
    let background = in_background(&mut dice.clone().fork().fork(), quiet, sessions);
    let from = dice.below(3_000);
    let outage = dice.chance(30).then(|| (from, from + dice.within(10, if quiet { 5_000 } else { 12_000 })));
    let some = |dice: &mut Dice, most: &[usize], each: &dyn Fn(&mut Dice) -> u64| -> Vec<u64> {
        (0..dice.pick(most)).map(|_| each(dice)).collect()
    };
    // The parent gives up on a child after repeated failures, so a quiet world has fewer of them.
    let (twice, times): (&[usize], &[u64]) =
        if quiet { (&[0, 0, 1], &[1, 2]) } else { (&[0, 0, 1, 2], &[1, 1, 2, 5]) };
    let unanswered = some(dice, twice, &|dice| dice.below(12));
    SubagentsScenario {
        on: true,
        background,
        crashes: (0..12).map(|_| some(dice, twice, &|dice| dice.within(1, 60))).collect(),
        refusals: (0..12)
            .map(|_| {
                let after = some(dice, twice, &|dice| dice.below(14)).into_iter();
                after.map(|after| (after, dice.pick(times))).collect()
            })
            .collect(),
        outage,
        unanswered: unanswered.into_iter().filter_map(|place| usize::try_from(place).ok()).collect(),
        pace: dice.pick(&[0, 0, 2, 40, 300]),
    }
}

/// Lets some subagents work in the background, in worlds that need not end like undisturbed ones.
fn in_background(dice: &mut Dice, quiet: bool, sessions: &mut [SessionScenario]) -> BackgroundTasks {
    if quiet || dice.chance(5) {
        return BackgroundTasks::Off;
    }
    for session in sessions.iter_mut() {
        let mut spawned = Vec::new();
        for turn in &mut session.turns {
            if let Some(tools) = turn.tools.as_mut().filter(|_| dice.chance(80)) {
                tools.extend([AGENT_SPAWN, AGENT_SEND, "wait_async_results"]);
            }
            for step in turn.steps.iter_mut().filter(|step| !step.pauses) {
                for call in step.calls.iter_mut().filter(|call| call.tool == SUBAGENT) {
                    if dice.chance(80) {
                        let seconds = dice.pick(&[0, 0, 0, 1, 1, 2, 30]);
                        in_background_with(dice, call, seconds, &mut spawned);
                    }
                }
                if dice.chance(25) {
                    let wait =
                        json!({ "timeout_seconds": dice.pick(&[0, 1, 5]), "wait_all": dice.chance(50) });
                    let (tool, args) = dice.pick(&[("wait_async_results", wait), ("task_list", json!({}))]);
                    step.calls.push(CallScript { tool, args, invalid: false, named: true });
                }
            }
        }
        if let Some(rules) = session.rules.as_mut().filter(|_| dice.chance(15)) {
            let policy = dice.pick(&[Policy::Ask, Policy::Ask, Policy::Deny]);
            rules.tools.insert(dice.pick(&[AGENT_SPAWN, AGENT_SPAWN, AGENT_SEND]).into(), policy);
        }
        let last = session.acts.iter().map(|(at, _)| *at).max().unwrap_or(0);
        for _ in 0..dice.below(3) {
            session.acts.push((dice.below(last + 4_000), Act::CancelTask));
        }
    }
    dice.pick(&[BackgroundTasks::On, BackgroundTasks::Wake])
}

/// Lets a call spawn a subagent that may go on in the background, or give a further task to one that was spawned earlier.
fn in_background_with(dice: &mut Dice, call: &mut CallScript, seconds: u64, spawned: &mut Vec<String>) {
    let args = call.args.take();
    if !spawned.is_empty() && dice.chance(40) {
        let label = dice.pick(spawned);
        call.args = json!({ "label": label, "message": args["task"], "timeout_seconds": seconds });
        call.tool = AGENT_SEND;
        return;
    }
    let label = format!("agent {}", spawned.len());
    call.args = json!({ "agent_id": args["agent"], "task": args["task"], "timeout_seconds": seconds, "label": label });
    if let Some(forked) = args.get("forked") {
        call.args["forked"] = forked.clone();
    }
    call.tool = AGENT_SPAWN;
    spawned.push(label);
}

/// Returns the script of a turn of a subagent.
fn task(dice: &mut Dice, place: usize, number: usize, quiet: bool, asked: bool) -> TurnScript {
    let pool: Vec<CallScript> = (0..dice.within(2, 4)).map(|_| any_call(dice, quiet)).collect();
    let mut steps: Vec<StepScript> =
        (0..dice.pick(&[0, 1, 1, 2, 3])).map(|_| any_step(dice, &pool, quiet)).collect();
    for call in steps.iter_mut().flat_map(|step| &mut step.calls) {
        call.named |= quiet;
        if asked && dice.chance(12) {
            call.tool = dice.pick(&["ask", "lend"]);
        }
        if dice.chance(8) {
            let args = json!({ "agent": GENERAL, "task": format!("{} is not done", mark(place)) });
            *call = CallScript { tool: SUBAGENT, args, invalid: false, ..call.clone() };
        }
    }
    let text = [FinalResponse::Text; 5];
    TurnScript {
        said: format!("{} e{number} does ünïcode 🌍", mark(place)),
        steps,
        last: dice.pick(
            &[&text[..], &[FinalResponse::Nothing, FinalResponse::Json, FinalResponse::Refused]].concat(),
        ),
        budget: Default::default(),
        think: None,
        schema: false,
        tools: None,
        citations: false,
        flaky: if !quiet && dice.chance(30) {
            dice.pick(&[Flaky::Fails, Flaky::Panics])
        } else {
            Flaky::Works
        },
    }
}

/// Returns the call that spawns the subagent.
fn call(dice: &mut Dice, said: &str, quiet: bool) -> CallScript {
    let agent = if !quiet && dice.chance(4) { "absent" } else { GENERAL };
    let mut args = json!({ "agent": agent, "task": said });
    if dice.chance(35) {
        args["forked"] = json!(dice.chance(80));
    }
    CallScript { tool: SUBAGENT, args, invalid: dice.chance(2), named: dice.chance(90) }
}
