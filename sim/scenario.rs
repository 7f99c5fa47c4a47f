//! Derives a scenario from a seed: messages and their times, behavior of models and tools, and failures.

mod operator;
mod people;
mod runs;
mod subagents;

use super::dice::Dice;
use edge_harness::context::{compaction::CompactionSettings, observation::ObservationSettings};
use edge_harness::standard::ContextSettings;
use edge_harness::types::{
    BudgetPatch, ModelErrorKind, SessionId, SessionPermissions, TenantId, Thinking, UserId,
};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use std::time::Duration;

pub use people::PeopleScenario;
pub use runs::{RunScenario, StepPlan, draw_run};
pub use subagents::SubagentsScenario;

/// The name of the tool that spawns subagents.
pub const SUBAGENT: &str = "subagent";
/// The name of the tool whose subagents go on in the background.
pub const AGENT_SPAWN: &str = "agent_spawn";
/// The tool that gives a subagent a further task.
pub const AGENT_SEND: &str = "agent_send";
/// The tools that only control the session.
pub const CONTROL: [&str; 5] = [SUBAGENT, AGENT_SPAWN, AGENT_SEND, "task_list", "wait_async_results"];

/// A simulated world.
#[derive(Clone)]
pub struct Scenario {
    /// In a quiet world only crashes and failed writes disturb a turn, so that it ends as it would without
    /// them.
    pub quiet: bool,
    pub sessions: Vec<SessionScenario>,
    /// When the directory is down, in milliseconds from the start.
    pub directory_down: Option<(u64, u64)>,
    /// When the blob store is down.
    pub blobs_down: Option<(u64, u64)>,
    /// When the ledgers of the tenants are down, and when one response of them is lost. Only in worlds without limits,
    /// where no turn has to be admitted.
    pub ledger_down: Option<(u64, u64)>,
    pub ledger_unanswered: Vec<u64>,
    /// Whether another model takes over when the model fails.
    pub falls_back: bool,
    /// Whether a client may run a call of an external tool again that another client has claimed.
    pub lends_again: bool,
    pub context: ContextScenario,
    pub people: PeopleScenario,
    pub subagents: SubagentsScenario,
    /// The run that the only session does, if it does one.
    pub run: Option<RunScenario>,
    /// The source of decisions made during the run.
    pub dice: Dice,
}

/// How conversations are kept within the model's window.
#[derive(Clone)]
pub struct ContextScenario {
    pub settings: ContextSettings,
    /// The model's real window minus the instructions and tools of this world, in its own tokens. Always
    /// large enough for part of a step with many calls.
    pub room: u64,
    /// The window that the core assumes, minus the same.
    pub claimed_room: u64,
    /// The model's tokens per hundred estimated tokens.
    pub percent: u64,
    /// Whether facts are extracted.
    pub flush: bool,
    /// The fates of one-shot calls, in order. Later calls are answered.
    pub one_shots: Vec<OneShotFate>,
}

/// The fate of a one-shot call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneShotFate {
    Answered,
    Slow,
    Failed,
    Empty,
    Hangs,
}

#[derive(Clone)]
pub struct SessionScenario {
    pub tenant: TenantId,
    pub id: SessionId,
    pub user: UserId,
    pub turns: Vec<TurnScript>,
    /// The scripts of the subagents of these turns, one per task.
    pub tasks: Vec<TurnScript>,
    pub acts: Vec<(u64, Act)>,
    /// Whether a client follows the session's events, disconnecting and reconnecting.
    pub followed: bool,
    /// The polls of this object's tasks at which it is evicted.
    pub crashes: Vec<u64>,
    /// Refused writes: after how many commits, and how many.
    pub refusals: Vec<(u64, u64)>,
    /// Whether the session is erased at the end.
    pub erased: bool,
    /// The rules set before the first message, if people take part.
    pub rules: Option<SessionPermissions>,
    /// Whether the object is evicted while calls are suspended.
    pub restarts: bool,
    /// Whether calls still suspended at the end are left to expire.
    pub leaves: bool,
    /// Whether people take some seconds to decide, so that rules change in the meantime.
    pub slow: bool,
}

/// An action of a client.
#[derive(Clone, Debug)]
pub enum Act {
    Post {
        turn: usize,
        mode: ResponseMode,
        on_busy: &'static str,
        key: bool,
    },
    Abort,
    Dequeue,
    Rename,
    /// Requests from other tenants and users.
    Trespass,
    Look,
    Fork,
    /// Sends a decision or answer.
    Decide,
    /// Patches the permissions of the session.
    Permit(Value),
    /// Cancels a background task.
    CancelTask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseMode {
    Json,
    Stream,
    Receipt,
}

impl ResponseMode {
    /// Adds the header for this mode.
    pub fn add_header(self, headers: &mut HeaderMap) {
        let (name, value) = match self {
            Self::Json => return,
            Self::Stream => ("accept", "text/event-stream"),
            Self::Receipt => ("prefer", "respond-async"),
        };
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[derive(Clone)]
pub struct TurnScript {
    /// The user's message, which names the session and the turn.
    pub said: String,
    pub steps: Vec<StepScript>,
    pub last: FinalResponse,
    pub budget: BudgetPatch,
    pub think: Option<Thinking>,
    pub schema: bool,
    pub tools: Option<Vec<&'static str>>,
    pub citations: bool,
    pub flaky: Flaky,
}

/// The behavior of a hook at the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaky {
    Works,
    Fails,
    Panics,
}

/// The final response of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalResponse {
    Text,
    Nothing,
    Json,
    Refused,
}

#[derive(Clone, Default)]
pub struct StepScript {
    pub words: bool,
    pub calls: Vec<CallScript>,
    /// Milliseconds before each chunk.
    pub pace: u64,
    /// The number of attempts that fail in this way, after some chunks.
    pub trouble: Option<(ModelErrorKind, u32)>,
    pub hangs: bool,
    /// Whether the provider pauses and expects its response to be sent back.
    pub pauses: bool,
}

#[derive(Clone, Debug)]
pub struct CallScript {
    pub tool: &'static str,
    pub args: Value,
    pub invalid: bool,
    /// Whether the provider assigns a call id.
    pub named: bool,
}

impl Scenario {
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let quiet = dice.chance(25);
        let count = if quiet { 1 } else { dice.pick(&[1, 1, 2, 3]) };
        let sessions = (0..count).map(|place| session(&mut dice, place, quiet)).collect();
        let mut outage = |percent: u64| {
            let from = dice.below(3_000);
            (!quiet && dice.chance(percent)).then(|| (from, from + dice.within(10, 8_000)))
        };
        let (directory_down, blobs_down) = (outage(20), outage(20));
        // From forked dice, so that these rolls do not affect the rest of the scenario.
        let context = context(&mut dice.clone().fork(), quiet);
        let mut ledger = dice.clone().fork().fork();
        let from = ledger.below(6_000);
        let ledger_down = ledger.chance(20).then(|| (from, from + ledger.within(10, 8_000)));
        let ledger_unanswered = (0..ledger.pick(&[0, 0, 1, 2])).map(|_| ledger.below(12_000)).collect();
        let falls_back = ledger.chance(30);
        let lends_again = ledger.chance(50);
        let mut sessions: Vec<SessionScenario> = sessions;
        let mut other = dice.clone();
        other.roll();
        let mut people = people::add_people(&mut other.fork(), quiet, &mut sessions);
        // From dice of their own, like the above.
        operator::add_rules(&mut other.clone().fork().fork(), quiet, &mut sessions, &mut people);
        other.roll();
        let subagents = subagents::add_subagents(&mut other.fork(), quiet, &mut sessions, &mut people);
        if context.settings != ContextSettings::None {
            // Call ids carry the step's number, which is needed once the turn's start has left the window.
            let turns = sessions.iter_mut().flat_map(|s| s.turns.iter_mut().chain(&mut s.tasks));
            let steps = turns.flat_map(|turn| &mut turn.steps);
            steps.flat_map(|step| &mut step.calls).for_each(|call| call.named = true);
        }
        Self {
            quiet,
            sessions,
            directory_down,
            blobs_down,
            ledger_down,
            ledger_unanswered,
            falls_back,
            lends_again,
            context,
            people,
            subagents,
            run: None,
            dice,
        }
    }

    /// Returns the same scenario without evictions and failures.
    pub fn undisturbed(mut self) -> Self {
        for session in &mut self.sessions {
            session.crashes.clear();
            session.restarts = false;
            session.refusals.clear();
        }
        self.subagents = self.subagents.undisturbed();
        self
    }
}

/// Returns the mark of a session: all of its texts contain it, and those of other sessions do not.
pub fn mark(place: usize) -> String {
    format!("⟨s{place}⟩")
}

fn context(dice: &mut Dice, quiet: bool) -> ContextScenario {
    let settings = ContextSettings::Compaction(CompactionSettings {
        at_messages: dice.pick(&[0, 3, 5, 8, 12]),
        at_tokens: 0,
        keep_messages: dice.pick(&[1, 2, 4]),
        keep_tokens: dice.pick(&[0, 50, 300]),
        reserve: dice.pick(&[0, 500, 20_000]),
        model: dice.chance(30).then(|| "sim/aside".into()),
    });
    let notes = ContextSettings::Observation(ObservationSettings {
        observe_at: dice.pick(&[60, 200, 500]),
        reflect_at: dice.pick(&[20, 60, 500]),
        observer: dice.chance(30).then(|| "sim/aside".into()),
        reflector: None,
        idle_after: dice.chance(30).then_some(Duration::from_millis(500)),
    });
    let settings = match dice.below(10) {
        0..=2 => ContextSettings::None,
        3..=5 => notes,
        _ => settings,
    };
    let wrong = !quiet && settings != ContextSettings::None && dice.chance(30);
    let room = if settings == ContextSettings::None { 1_000_000 } else { dice.within(1_500, 4_000) };
    let kinds = [
        OneShotFate::Answered,
        OneShotFate::Answered,
        OneShotFate::Slow,
        OneShotFate::Failed,
        OneShotFate::Empty,
        OneShotFate::Hangs,
    ];
    ContextScenario {
        settings,
        room,
        claimed_room: if wrong { room * 3 } else { room },
        percent: if wrong { dice.pick(&[80, 100, 130]) } else { 100 },
        flush: dice.chance(40),
        one_shots: (0..dice.below(4))
            .map(|_| if quiet { OneShotFate::Slow } else { dice.pick(&kinds) })
            .collect(),
    }
}

fn session(dice: &mut Dice, place: usize, quiet: bool) -> SessionScenario {
    // Two tenants use the same session id, and two sessions of a tenant have different users.
    let tenant = if place == 1 { "globex" } else { "acme" };
    let id = if place == 2 { "other" } else { "talk" };
    let user = if place == 2 { "bob" } else { "ada" };
    let turns: Vec<TurnScript> =
        (0..dice.within(1, 3)).map(|number| turn(dice, place, number, quiet)).collect();
    let mut acts = Vec::new();
    let mut at = 0;
    for number in 0..turns.len() {
        let mode = dice.pick(&[ResponseMode::Json, ResponseMode::Stream, ResponseMode::Receipt]);
        let on_busy =
            if quiet { "queue" } else { dice.pick(&["queue", "queue", "queue", "steer", "reject"]) };
        let key = quiet || dice.chance(60);
        let post = Act::Post { turn: number, mode, on_busy, key };
        acts.push((at, post.clone()));
        if key && dice.chance(50) {
            acts.push((at + dice.below(4_000), post));
        }
        at += dice.pick(&[0, 3, 50, 700, 4_000]);
    }
    for _ in 0..if quiet { 0 } else { dice.below(5) } {
        let act = dice.pick(&[
            Act::Abort,
            Act::Abort,
            Act::Dequeue,
            Act::Rename,
            Act::Trespass,
            Act::Look,
            Act::Fork,
            Act::Decide,
        ]);
        acts.push((dice.below(at + 3_000), act));
    }
    let crashes = dice.pick(&[0, 0, 1, 1, 2, 3]);
    let refusals = dice.pick(&[0, 0, 0, 1, 2]);
    SessionScenario {
        tenant: tenant.into(),
        id: id.into(),
        user: user.into(),
        acts,
        followed: dice.chance(60),
        crashes: (0..crashes).map(|_| dice.within(1, 40 + 40 * turns.len() as u64)).collect(),
        refusals: (0..refusals)
            .map(|_| (dice.below(12 * turns.len() as u64), dice.pick(&[1, 1, 2, 5])))
            .collect(),
        erased: !quiet && dice.chance(15),
        rules: None,
        restarts: false,
        leaves: false,
        slow: false,
        tasks: Vec::new(),
        turns,
    }
}

fn turn(dice: &mut Dice, place: usize, number: u64, quiet: bool) -> TurnScript {
    let pool: Vec<CallScript> = (0..dice.within(2, 4)).map(|_| any_call(dice, quiet)).collect();
    let storm = |dice: &mut Dice, percent: u64| !quiet && dice.chance(percent);
    let count = dice.pick(&[0, 1, 1, 2, 3, 5]);
    let steps = (0..count).map(|_| any_step(dice, &pool, quiet)).collect();
    let mut budget = BudgetPatch::default();
    if !quiet {
        let maybe = |dice: &mut Dice, low, high| {
            let wish = u32::try_from(dice.within(low, high)).unwrap_or(1);
            dice.chance(50).then_some(wish)
        };
        budget.max_steps = maybe(dice, 1, 5);
        budget.max_tool_calls = maybe(dice, 0, 6);
        budget.max_reflections = maybe(dice, 0, 2);
        budget.max_tokens = maybe(dice, 10, 80).map(u64::from);
        budget.timeout_s = Some(dice.pick(&[2, 5, 20]));
        budget.tool_timeout_s = Some(dice.pick(&[1, 2]));
    }
    let some_tools = Some(vec!["look", "put", "send"]);
    TurnScript {
        said: format!("{} u{number} says ünïcode 🌍", mark(place)),
        steps,
        last: dice.pick(&[
            FinalResponse::Text,
            FinalResponse::Text,
            FinalResponse::Text,
            FinalResponse::Nothing,
            FinalResponse::Json,
            FinalResponse::Refused,
        ]),
        budget,
        think: storm(dice, 30).then_some(Thinking::Low),
        schema: storm(dice, 20),
        tools: if storm(dice, 15) { some_tools } else { None },
        citations: dice.chance(70),
        flaky: if storm(dice, 30) { dice.pick(&[Flaky::Fails, Flaky::Panics]) } else { Flaky::Works },
    }
}

fn any_step(dice: &mut Dice, pool: &[CallScript], quiet: bool) -> StepScript {
    let calls = if dice.chance(15) { dice.within(5, 9) } else { dice.within(1, 4) };
    let kinds = [
        ModelErrorKind::RateLimited,
        ModelErrorKind::Cut,
        ModelErrorKind::Unavailable,
        ModelErrorKind::Stalled,
    ];
    let mut trouble = dice.chance(15).then(|| (dice.pick(&kinds), 1 + u32::from(dice.chance(30))));
    if !quiet && dice.chance(3) {
        trouble = Some((dice.pick(&[ModelErrorKind::Billing, ModelErrorKind::Cut]), 9));
    }
    let pauses = dice.chance(5);
    StepScript {
        words: pauses || dice.chance(50),
        calls: (0..if pauses { 0 } else { calls }).map(|_| dice.pick(pool)).collect(),
        pace: dice.pick(&[0, 1, 7, 40]),
        trouble,
        hangs: !quiet && dice.chance(3),
        pauses,
    }
}

fn any_call(dice: &mut Dice, quiet: bool) -> CallScript {
    let tool = dice
        .pick(&["look", "look", "look", "fetch", "put", "put", "send", "send", "destroy", "echo", "absent"]);
    let how = if quiet {
        dice.pick(&["ok", "ok", "ok", "ok", "fail", "gone", "panic", "big", "cite"])
    } else {
        dice.pick(&["ok", "ok", "ok", "ok", "fail", "gone", "panic", "big", "cite", "hang", "late", "late"])
    };
    let key = dice.pick(&["a", "b", "c", "d"]);
    let ms = dice.pick(&[0, 0, 5, 60, 300]);
    let args = match dice.below(12) {
        0 => json!({ "ms": ms }),
        _ if tool == "echo" => json!({ "text": key }),
        _ => json!({ "key": key, "ms": ms, "how": how }),
    };
    CallScript { tool, args, invalid: dice.chance(4), named: dice.chance(90) }
}

impl Scenario {
    /// Returns the session and the script of the turn or task with this message.
    pub fn turn(&self, said: &str) -> Option<(usize, &TurnScript)> {
        self.sessions.iter().enumerate().find_map(|(place, session)| {
            let mut turns = session.turns.iter().chain(&session.tasks);
            Some((place, turns.find(|turn| turn.said == said)?))
        })
    }
}

impl TurnScript {
    /// Returns the budget as the client sends it.
    pub fn budget_json(&self) -> Value {
        json!(self.budget)
    }
}
