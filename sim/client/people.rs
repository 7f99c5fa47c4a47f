//! People: the calls that they decide on, and their decisions and answers.

use super::{Client, Reply, spawn};
use crate::{
    caller::Caller,
    dice::Dice,
    scenario::{CONTROL, ResponseMode, SUBAGENT},
    witness::{Patch, Submission},
};
use edge_harness::types::{BackgroundTasks, SessionId, SessionPermissions};
use futures::future::join;
use serde_json::{Value, json};
use std::{cell::Cell, rc::Rc};

/// Maximum number of attempts to send a decision.
const MAX_TRIES: usize = 20;
/// Maximum number of attempts to find a suspended call.
const MAX_LOOKS: usize = 8;
/// The same for a person who decides until the session is idle.
const MAX_TRIES_UNTIL_IDLE: usize = 2_000;

/// The status of a decision while the tenant has as many running turns as it may.
const TOO_MANY_TURNS: u16 = 429;

impl Submission {
    /// Chooses a decision or answer for a suspended call.
    fn of(pending: &Value, dice: &mut Dice, sane: bool) -> Self {
        let call_id = pending["call_id"].as_str().unwrap_or_default().to_owned();
        // Those who decide until the session is idle know who may.
        let by_approver = pending["by"] == "approver";
        let able = [Caller::Approver, Caller::User, Caller::Desk];
        let caller = if sane {
            dice.clone().pick(if by_approver { &able[..1] } else { &able[..] })
        } else {
            dice.pick(&Caller::DECIDING)
        };
        let (body, at) = (Value::Null, (0, 0));
        let kind = pending["kind"].as_str().unwrap_or_default();
        let external = kind == "external";
        let mut submission =
            Self { call_id, answers: false, external, body, wrong: false, caller, at, status: None };
        if kind != "approval" {
            submission.answers = true;
            submission.body = match dice.below(10) {
                0..=1 if kind == "external" => json!({ "error": "it could not be done" }),
                2 if !sane => {
                    submission.wrong = true;
                    json!({ "answer": "unfit" })
                }
                _ => json!({ "answer": { "n": dice.below(1_000) } }),
            };
            // Sent to the wrong endpoint, unless the call also had to be approved.
            if !sane && dice.chance(5) {
                let body = json!({ "decision": "approve" });
                submission = Self { answers: false, wrong: false, body, ..submission };
            }
            return submission;
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
                2 => return Self { answers: true, body: json!({ "answer": { "n": 1 } }), ..submission },
                _ => return Self { body, ..submission },
            }
            submission.wrong = true;
        }
        Self { body, ..submission }
    }

    /// Returns the opposite decision, or another answer.
    fn opposite(&self) -> Self {
        let body = match self.body["decision"].as_str() {
            Some("decline") => json!({ "decision": "approve" }),
            Some(_) => json!({ "decision": "decline" }),
            None => json!({ "answer": { "n": 1_000 } }),
        };
        Self { body, wrong: false, ..self.clone() }
    }
}

/// Valid arguments to replace the model's.
fn edited(pending: &Value) -> Value {
    match pending["name"].as_str() {
        Some("echo") => json!({ "text": "edited" }),
        Some(SUBAGENT) => forked(&pending["args"]),
        Some(name) if CONTROL.contains(&name) => pending["args"].clone(),
        _ => json!({ "key": "edited", "ms": 0, "how": "ok" }),
    }
}

/// Arguments that a person may substitute when approving the call of a subagent.
fn forked(args: &Value) -> Value {
    let mut args = args.clone();
    args["forked"] = json!(true);
    args
}

/// Returns the suspended calls, each with its session if that is a subagent's.
fn spread(pending: &[Value]) -> Vec<(Option<String>, Value)> {
    let own = |pending: &Value| {
        if pending["kind"] != SUBAGENT {
            return vec![(None, pending.clone())];
        }
        let session = pending["payload"]["session"].as_str().map(str::to_owned);
        let theirs = pending["payload"]["pending"].as_array().into_iter().flatten();
        theirs.map(|theirs| (session.clone(), theirs.clone())).collect()
    };
    pending.iter().flat_map(own).collect()
}

impl Client {
    /// Creates the session and sets its rules, before the first message.
    pub async fn write_rules(&self, rules: &SessionPermissions) {
        let steps = [
            ("POST /v1/sessions", json!({ "user": self.scenario.user })),
            ("PATCH", json!({ "permissions": rules })),
        ];
        for (route, body) in steps {
            let mut done = false;
            for _ in 0..MAX_TRIES {
                done = self.json(route, &body).await.is_some();
                if done {
                    break;
                }
                self.world.sched.sleep(200).await;
            }
            if !done {
                self.world.ledger.find(11, format!("{route} was refused: {body}"));
            }
        }
    }

    /// Patches the permissions of the session.
    pub async fn permit(&self, patch: &Value, dice: &mut Dice) {
        let caller = dice.pick(&[Caller::Owner, Caller::User, Caller::Desk, Caller::Desk, Caller::Reader]);
        let mut call = self.request("PATCH", &json!({ "permissions": patch }));
        call.principal = self.principal(caller);
        let reply = self.ask(call).await;
        let permissions = match &reply {
            Reply::Answer(response, _) => self.read(response)["permissions"].take(),
            Reply::Problem(_) | Reply::Lost => Value::Null,
        };
        let (body, status) = (patch.clone(), reply.status());
        self.witness(|w| w.patches.push(Patch { body, caller, status, permissions }));
    }

    /// Creates a client of a subagent's session.
    fn of(&self, subagent: Option<&SessionId>) -> Self {
        let node = match subagent {
            Some(session) => self.world.object(&self.node.tenant, session, self.node.origin),
            None => Rc::clone(&self.node),
        };
        Self { node, ..self.clone() }
    }

    /// Returns the suspended calls, each with a client of its session, and whether the session is idle.
    async fn waiting(&self) -> (Vec<(Self, Value)>, bool) {
        let Some((200, view)) = self.json("GET", &Value::Null).await else {
            return (Vec::new(), false);
        };
        let pending = view["pending"].as_array().cloned().unwrap_or_default();
        let pending = spread(&pending).into_iter().chain(self.of_tasks().await);
        let pending =
            pending.map(|(session, call)| (self.of(session.map(SessionId::from).as_ref()), call)).collect();
        (pending, view["status"] == "idle" && view["queue"].as_array().is_none_or(Vec::is_empty))
    }

    /// Returns the suspended calls of background tasks, each with its session.
    async fn of_tasks(&self) -> Vec<(Option<String>, Value)> {
        let mut calls = Vec::new();
        for task in self.tasks().await {
            let session = task["session"].as_str().map(str::to_owned);
            let pending = task["pending"].as_array().cloned().unwrap_or_default();
            calls.extend(pending.into_iter().map(|call| (session.clone(), call)));
        }
        calls
    }

    async fn tasks(&self) -> Vec<Value> {
        if self.world.ledger.scenario.subagents.background == BackgroundTasks::Off {
            return Vec::new();
        }
        let listed = self.json("GET /tasks", &Value::Null).await;
        listed.and_then(|(_, list)| list["data"].as_array().cloned()).unwrap_or_default()
    }

    /// Cancels a background task, if there is one.
    pub async fn cancel_task(&self, dice: &mut Dice) {
        let tasks = self.tasks().await;
        if !tasks.is_empty() {
            let task = dice.pick(&tasks);
            let id = task["id"].as_str().unwrap_or_default();
            self.json(&format!("POST /tasks/{id}/cancel"), &json!({})).await;
        }
    }

    /// Evicts the session at random before the decision.
    fn restart(&self, dice: &mut Dice) {
        if self.scenario.restarts && dice.chance(50) {
            self.node.crash(&self.world);
        }
    }

    /// Sends a decision or answer for a call that is or was suspended.
    pub async fn decide(&self, dice: &mut Dice) {
        let mut waiting = Vec::new();
        for _ in 0..MAX_LOOKS {
            waiting = self.waiting().await.0;
            if !waiting.is_empty() {
                break;
            }
            self.world.sched.sleep(dice.pick(&[1, 40, 300, 1_500])).await;
        }
        let submissions: Vec<Submission> = self.witness(|w| w.submissions.clone());
        if waiting.is_empty() || dice.chance(10) {
            let unknown = Submission::of(&json!({ "call_id": "unknown", "kind": "approval" }), dice, false);
            let gone = dice.pick(&[vec![unknown], submissions].concat());
            self.submit(gone, dice).await;
            return;
        }
        let (own, pending) = dice.pick(&waiting);
        own.restart(dice);
        // The call may be resolved by the time the person decides.
        self.world.sched.sleep(dice.pick(&[0, 0, 3, 80, 700])).await;
        let submission = Submission::of(&pending, dice, false);
        let (mut one, mut other) = (dice.fork(), dice.fork());
        match dice.below(8) {
            0 => {
                own.submit(submission.clone(), &mut one).await;
                own.submit(submission, &mut other).await;
            }
            1 => {
                let both = (own.submit(submission.clone(), &mut one), own.submit(submission, &mut other));
                join(both.0, both.1).await;
            }
            2 => drop(
                join(own.submit(submission.opposite(), &mut one), own.submit(submission, &mut other)).await,
            ),
            3 => {
                own.submit(submission.clone(), &mut one).await;
                own.submit(submission.opposite(), &mut other).await;
            }
            4 => {
                for (own, pending) in &waiting {
                    own.submit(Submission::of(pending, dice, false), &mut one).await;
                }
            }
            _ => drop(own.submit(submission, &mut one).await),
        }
    }

    /// Decides on all suspended calls until the session is idle, or lets them expire. The same call always
    /// gets the same decision. `acting` is the number of other clients still active; a session that will be
    /// erased is left when they are done.
    pub async fn decide_until_idle(&self, acting: &Cell<usize>, mut dice: Dice) {
        for _ in 0..MAX_TRIES_UNTIL_IDLE {
            // Read first, because the view may not yet include concurrent actions of other clients.
            let alone = acting.get() == 0;
            let (waiting, idle) = self.waiting().await;
            if alone && (idle || self.scenario.erased) {
                return;
            }
            if !waiting.is_empty() {
                dice.pick(&waiting).0.restart(&mut dice);
            }
            for (own, pending) in waiting.iter().filter(|_| !self.scenario.leaves) {
                let id = pending["call_id"].as_str().unwrap_or_default();
                let seed = id.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(131) ^ u64::from(byte));
                let mut submission = Submission::of(pending, &mut Dice::new(seed), true);
                if self.world.ledger.scenario.subagents.on
                    && submission.body["decision"] != "decline"
                    && !submission.answers
                {
                    // A grant would also apply to subagents, at a time that depends on the network.
                    submission.body["decision"] = json!("approve");
                }
                // One at a time, because one decision may grant what another declines.
                for _ in 0..MAX_TRIES {
                    let status = own.submit(submission.clone(), &mut dice).await;
                    if status == Some(403) {
                        // The rules have changed since the call was suspended.
                        submission.caller = Caller::Approver;
                    } else if status.is_some_and(|status| status < 500 && status != TOO_MANY_TURNS) {
                        break;
                    }
                    self.world.sched.sleep(dice.within(1, 300)).await;
                }
            }
            let pause = if self.scenario.slow { (1_000, 6_000) } else { (100, 1_800) };
            self.world.sched.sleep(dice.within(pause.0, pause.1)).await;
        }
    }

    /// Sends it, and reads the response as requested. Returns the status, unless the connection was lost.
    async fn submit(&self, mut submission: Submission, dice: &mut Dice) -> Option<u16> {
        let is_run = submission.answers && submission.external && !self.world.ledger.scenario.quiet;
        if is_run && dice.chance(50) && !self.run(&mut submission, dice).await {
            return None;
        }
        let route = if submission.answers { "answers" } else { "approvals" };
        let mode = dice.pick(&[ResponseMode::Json, ResponseMode::Stream, ResponseMode::Receipt]);
        let mut call = self.request(&format!("POST /{route}/{}", submission.call_id), &submission.body);
        mode.add_header(call.request.headers_mut());
        call.principal = self.principal(submission.caller);
        let sent = self.world.sched.now();
        let reply = self.ask(call).await;
        let status = reply.status();
        (submission.status, submission.at) = (status, (sent, self.world.sched.now()));
        self.witness(|w| w.submissions.push(submission));
        if let Reply::Answer(response, generation) = reply {
            // A stream may only end after further decisions, which this task makes.
            let reader = self.clone();
            let read = async move { drop(reader.accepted(response, generation, false).await) };
            spawn(&self.world, Box::pin(read));
        }
        status
    }
}
