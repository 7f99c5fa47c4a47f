//! People: the rules that they write before anything is said, what they are asked about, and what they say.

use super::{
    client::{self, Client, Reply},
    dice::Dice,
    errands::{self, SUBAGENT},
    plan::{Act, CallPlan, SessionPlan, Wants},
};
use edge_harness::http::routes::SessionRoute;
use edge_harness::types::{Category, Grants, Policy, Rules, SessionPermissions};
use futures::future::join;
use serde_json::{Value, json};
use std::{cell::Cell, rc::Rc};

/// Tools that rules are about.
const RULED: &[&str] = &["look", "fetch", "put", "put", "send", "send", "destroy", "echo", "lend"];
/// How often somebody looks for what waits, or tries again what did not get through.
const TRIES: usize = 20;
/// The same, of somebody who sees a session through to its end.
const PATIENT: usize = 2_000;

/// What is the same for all sessions of a world.
#[derive(Clone, Default)]
pub struct PeoplePlan {
    /// The rules of the agent.
    pub rules: Rules,
    /// How long somebody who is asked has time to answer, in seconds; the agent's own when absent.
    pub ttl_s: Option<u64>,
}

/// Brings people into some sessions.
pub fn plan(dice: &mut Dice, quiet: bool, sessions: &mut [SessionPlan]) -> PeoplePlan {
    let mut people = PeoplePlan::default();
    if !dice.chance(if quiet { 50 } else { 60 }) {
        return people;
    }
    if dice.chance(15) {
        people.rules.tools.insert(dice.pick(RULED).into(), dice.pick(&[Policy::Ask, Policy::Deny]));
    }
    people.ttl_s = (!quiet && dice.chance(40)).then(|| dice.pick(&[1, 3, 15]));
    for session in sessions.iter_mut() {
        if dice.chance(10) && people.rules.tools.is_empty() {
            continue;
        }
        session.rules = Some(rules(dice));
        session.restarts = dice.chance(80);
        session.leaves = people.ttl_s.is_some() && dice.chance(40);
        let calls =
            session.turns.iter_mut().flat_map(|turn| &mut turn.steps).flat_map(|step| &mut step.calls);
        for call in calls {
            // Whoever comes back knows a call by its name.
            call.named |= quiet;
            if dice.chance(12) {
                *call = CallPlan { tool: dice.pick(&["ask", "lend"]), ..call.clone() };
            }
        }
        let last = session.acts.iter().map(|(at, _)| *at).max().unwrap_or(0);
        for _ in 0..if quiet { 0 } else { dice.within(1, 6) } {
            session.acts.push((dice.below(last + 4_000), Act::Decide));
        }
        for _ in 0..if quiet { 0 } else { dice.below(2) } {
            session.acts.push((dice.below(last + 4_000), dice.pick(&[Act::Abort, Act::Fork, Act::Look])));
        }
    }
    people
}

fn rules(dice: &mut Dice) -> SessionPermissions {
    let mut rules = SessionPermissions::default();
    for _ in 0..dice.within(1, 4) {
        rules.tools.insert(dice.pick(RULED).into(), Policy::Ask);
    }
    if dice.chance(25) {
        rules.tools.insert(dice.pick(RULED).into(), Policy::Deny);
    }
    if dice.chance(20) {
        let category = dice.pick(&[Category::Read, Category::Edit, Category::Other]);
        rules.categories.insert(category, dice.pick(&[Policy::Ask, Policy::Ask, Policy::Deny]));
    }
    if dice.chance(10) {
        rules.grants = Grants { tools: [dice.pick(RULED).to_owned()].into(), ..Grants::default() };
    }
    rules.yolo = dice.chance(8);
    rules
}

/// What somebody said about a call, and what came back.
#[derive(Clone, Debug)]
pub struct Said {
    pub call_id: String,
    /// Whether it was an answer, and no decision.
    pub answers: bool,
    pub body: Value,
    /// Whether it must be refused: meant for other arguments, or such as no call can have.
    pub wrong: bool,
    /// Unless the line was cut.
    pub status: Option<u16>,
}

impl Said {
    /// What somebody says about a call that waits.
    fn of(pending: &Value, dice: &mut Dice, sane: bool) -> Self {
        let call_id = pending["call_id"].as_str().unwrap_or_default().to_owned();
        let mut said = Self { call_id, answers: false, body: Value::Null, wrong: false, status: None };
        let kind = pending["kind"].as_str().unwrap_or_default();
        if kind != "approval" {
            said.answers = true;
            said.body = match dice.below(10) {
                0..=1 if kind == "external" => json!({ "error": "it could not be done" }),
                2 if !sane => {
                    said.wrong = true;
                    json!({ "answer": "unfit" })
                }
                _ => json!({ "answer": { "n": dice.below(1_000) } }),
            };
            // Through the wrong door, unless it had to be approved, too.
            if !sane && dice.chance(5) {
                let body = json!({ "decision": "approve" });
                said = Self { answers: false, wrong: false, body, ..said };
            }
            return said;
        }
        let mut body = match dice.below(20) {
            0..=4 => json!({ "decision": "decline", "reason": "not now" }),
            5..=8 => json!({ "decision": "approve", "args": edited(pending) }),
            9..=10 => json!({ "decision": "always_allow_tool" }),
            11 => json!({ "decision": "always_allow_category" }),
            _ => json!({ "decision": "approve" }),
        };
        if dice.chance(50) {
            body["args_hash"] = pending["args_hash"].clone();
        }
        if !sane {
            match dice.below(10) {
                0 => body["args_hash"] = json!("0".repeat(64)),
                1 if body["decision"] != "decline" => body["args"] = json!({ "ms": 1 }),
                2 => return Self { answers: true, body: json!({ "answer": { "n": 1 } }), ..said },
                _ => return Self { body, ..said },
            }
            said.wrong = true;
        }
        Self { body, ..said }
    }

    /// The other thing that one can say.
    fn opposite(&self) -> Self {
        let body = match self.body["decision"].as_str() {
            Some("decline") => json!({ "decision": "approve" }),
            Some(_) => json!({ "decision": "decline" }),
            None => json!({ "answer": { "n": 1_000 } }),
        };
        Self { body, wrong: false, ..self.clone() }
    }

    pub fn declines(&self) -> bool {
        self.body["decision"] == "decline"
    }
}

/// Arguments in place of the model's, which fit.
fn edited(pending: &Value) -> Value {
    match pending["name"].as_str() {
        Some("echo") => json!({ "text": "edited" }),
        Some(SUBAGENT) => errands::edited(&pending["args"]),
        _ => json!({ "key": "edited", "ms": 0, "how": "ok" }),
    }
}

impl Client {
    /// Makes the session and writes its rules, before anything is said.
    pub async fn lay_down(&self, rules: &SessionPermissions) {
        let steps = [
            (SessionRoute::Create, json!({ "user": self.plan.user })),
            (SessionRoute::Update, json!({ "permissions": rules })),
        ];
        for (route, body) in steps {
            let mut done = false;
            for _ in 0..TRIES {
                done = self.json(route, "", &body).await.is_some();
                if done {
                    break;
                }
                self.world.sched.sleep(200).await;
            }
            if !done {
                self.world.outside.find(11, format!("{route:?} is refused: {body}"));
            }
        }
    }

    /// Who talks to the session of a subagent.
    fn of(&self, subagent: Option<&str>) -> Self {
        let node = match subagent {
            Some(session) => self.world.object(&self.node.tenant, session, self.node.origin),
            None => Rc::clone(&self.node),
        };
        Self { node, ..self.clone() }
    }

    /// The calls that wait, each with who talks to its session, and whether the session has nothing left to do.
    async fn waiting(&self) -> (Vec<(Self, Value)>, bool) {
        let Some((200, view)) = self.json(SessionRoute::Show, "", &Value::Null).await else {
            return (Vec::new(), false);
        };
        let pending = view["pending"].as_array().cloned().unwrap_or_default();
        let pending = errands::spread(&pending).into_iter();
        let pending = pending.map(|(session, call)| (self.of(session.as_deref()), call)).collect();
        (pending, view["status"] == "idle" && view["queue"].as_array().is_none_or(Vec::is_empty))
    }

    /// The machine may go away before anybody has decided.
    fn restart(&self, dice: &mut Dice) {
        if self.plan.restarts && dice.chance(50) {
            self.node.crash(&self.world);
        }
    }

    /// Says something about a call that waits, or about one that did.
    pub async fn decide(&self, dice: &mut Dice) {
        let mut waiting = Vec::new();
        for _ in 0..TRIES {
            waiting = self.waiting().await.0;
            if !waiting.is_empty() {
                break;
            }
            self.world.sched.sleep(dice.pick(&[1, 20, 150, 600])).await;
        }
        let said: Vec<Said> = self.witness(|w| w.said.clone());
        if waiting.is_empty() || dice.chance(10) {
            let nobodys = Said::of(&json!({ "call_id": "nobody's", "kind": "approval" }), dice, false);
            let gone = dice.pick(&[vec![nobodys], said].concat());
            self.tell(gone, dice).await;
            return;
        }
        let (own, pending) = dice.pick(&waiting);
        own.restart(dice);
        // What was seen may be gone by the time that somebody has thought about it.
        self.world.sched.sleep(dice.pick(&[0, 0, 3, 80, 700])).await;
        let said = Said::of(&pending, dice, false);
        let (mut one, mut other) = (dice.fork(), dice.fork());
        match dice.below(8) {
            0 => {
                own.tell(said.clone(), &mut one).await;
                own.tell(said, &mut other).await;
            }
            1 => drop(join(own.tell(said.clone(), &mut one), own.tell(said, &mut other)).await),
            2 => drop(join(own.tell(said.opposite(), &mut one), own.tell(said, &mut other)).await),
            3 => {
                own.tell(said.clone(), &mut one).await;
                own.tell(said.opposite(), &mut other).await;
            }
            4 => {
                for (own, pending) in &waiting {
                    own.tell(Said::of(pending, dice, false), &mut one).await;
                }
            }
            _ => drop(own.tell(said, &mut one).await),
        }
    }

    /// Decides on everything that waits until the session has nothing left to do, or leaves it to its time. The
    /// same is said of the same call, whoever asks again. `acting` tells how many others are at it still; of a
    /// session that is erased then nothing else needs to be seen through.
    pub async fn see_through(&self, acting: &Cell<usize>, mut dice: Dice) {
        for _ in 0..PATIENT {
            // Before, since what is done meanwhile need not be seen yet.
            let alone = acting.get() == 0;
            let (waiting, idle) = self.waiting().await;
            if alone && (idle || self.plan.erased) {
                return;
            }
            if !waiting.is_empty() {
                dice.pick(&waiting).0.restart(&mut dice);
            }
            for (own, pending) in waiting.iter().filter(|_| !self.plan.leaves) {
                let id = pending["call_id"].as_str().unwrap_or_default();
                let seed = id.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(131) ^ u64::from(byte));
                let mut said = Said::of(pending, &mut Dice::new(seed), true);
                if self.world.outside.plan.errands.on && said.body["decision"] != "decline" && !said.answers {
                    // What is granted here is granted to subagents, too, once they hear of it.
                    said.body["decision"] = json!("approve");
                }
                // Before the next one, since one may grant what another declines.
                for _ in 0..TRIES {
                    let status = own.tell(said.clone(), &mut dice).await;
                    if status.is_some_and(|status| status < 500) {
                        break;
                    }
                    self.world.sched.sleep(dice.within(1, 300)).await;
                }
            }
            self.world.sched.sleep(dice.within(50, 900)).await;
        }
    }

    /// Says it, and has what comes of it read as somebody may want to. Returns the status, unless the line was cut.
    async fn tell(&self, mut said: Said, dice: &mut Dice) -> Option<u16> {
        let route = if said.answers { SessionRoute::Answer } else { SessionRoute::Approve };
        let wants = dice.pick(&[Wants::Json, Wants::Stream, Wants::Receipt]);
        let mut call = self.request(route, &said.call_id, &said.body);
        wants.ask_for(&mut call.request.headers);
        let reply = self.ask(call).await;
        let status = match &reply {
            Reply::Answer(response, _) => Some(response.status),
            Reply::Problem(problem) => Some(problem.code.status()),
            Reply::Lost => None,
        };
        said.status = status;
        self.witness(|w| w.said.push(said));
        if let Reply::Answer(response, generation) = reply {
            // A stream may have to wait for others who decide, and so for us.
            let reader = self.clone();
            let read = async move { drop(reader.accepted(response, generation, false).await) };
            client::spawn(&self.world, Box::pin(read));
        }
        status
    }
}
