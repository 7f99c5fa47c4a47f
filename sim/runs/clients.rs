//! The clients of a run: one that starts it, runners, and people who approve, cancel and retry.

use crate::{
    client::{Client, Reply, spawn},
    dice::Dice,
    scenario::RunScenario,
    sched::START,
    tools::runner::is_repeatable,
    world::World,
};
use edge_harness::http::Response;
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Maximum number of attempts to send a request.
const MAX_TRIES: usize = 60;
/// Maximum number of looks of the people. Then the run should have ended.
const MAX_LOOKS: usize = 3_000;

/// What the clients of a run observe.
#[derive(Default)]
pub struct RunWitness {
    /// The calls that runners have run, in their order.
    pub ran: RefCell<Vec<String>>,
    /// The results that the server has accepted, with their calls.
    pub answered: RefCell<Vec<(String, Value)>>,
    /// The run as its last reader saw it.
    pub last: RefCell<Value>,
    /// Whether no client does anything more with the run.
    is_over: Cell<bool>,
}

/// The clients of a run.
#[derive(Clone)]
struct Clients {
    client: Client,
    run: RunScenario,
    witness: Rc<RunWitness>,
}

/// Starts the clients.
pub fn start(world: &Rc<World>, dice: &mut Dice) -> Rc<RunWitness> {
    let witness = Rc::<RunWitness>::default();
    let Some(run) = world.ledger.scenario.run.clone() else { return witness };
    let clients = Clients { client: client(world), run, witness: Rc::clone(&witness) };
    let (own, dice_of) = (clients.clone(), dice.fork());
    spawn(world, Box::pin(async move { own.people(dice_of).await }));
    for number in 0..clients.run.runners {
        let (own, dice_of) = (clients.clone(), dice.fork());
        spawn(world, Box::pin(async move { own.runner(number, dice_of).await }));
    }
    for at in &clients.run.cancels {
        let (own, at) = (clients.clone(), *at);
        spawn(world, Box::pin(async move { own.cancel(at).await }));
    }
    witness
}

/// Reads the run from a new instance, when nothing happens any more.
pub fn look(world: &Rc<World>, witness: &Rc<RunWitness>) {
    let (client, witness) = (client(world), Rc::clone(witness));
    spawn(
        world,
        Box::pin(async move {
            let read = client.json(&format!("GET /v1/runs/{}", client.node.session), &Value::Null).await;
            *witness.last.borrow_mut() = read.map(|(_, run)| run).unwrap_or_default();
        }),
    );
    world.run(60_000, |world| world.busy.get() == 0);
}

fn client(world: &Rc<World>) -> Client {
    let (node, scenario) = (world.node(0), world.ledger.scenario.sessions[0].clone());
    Client { world: Rc::clone(world), node, scenario }
}

impl Clients {
    fn path(&self, rest: &str) -> String {
        format!("/v1/runs/{}{rest}", self.client.node.session)
    }

    /// Sends a request until the server has decided about it. Returns the status.
    async fn insist(&self, route: &str, body: &Value, key: Option<&str>, dice: &mut Dice) -> Option<u16> {
        for _ in 0..MAX_TRIES {
            let mut call = self.client.request(route, body);
            if let Some(key) = key.and_then(|key| key.parse().ok()) {
                call.request.headers_mut().insert("idempotency-key", key);
            }
            let reply = self.client.ask(call).await;
            let status = reply.status().filter(|status| *status < 500 && *status != 429);
            if status.is_some() {
                return status;
            }
            self.client.world.sched.sleep(dice.within(20, 2_000)).await;
        }
        None
    }

    async fn show(&self) -> Option<Value> {
        let (status, run) = self.client.json(&format!("GET {}", self.path("")), &Value::Null).await?;
        (status == 200).then_some(run)
    }

    /// Starts the run, decides on its steps, and retries it.
    async fn people(&self, mut dice: Dice) {
        let run = &self.run;
        let body = json!({ "goal": "Reach it.", "approvals": run.approvals, "on_decline": run.on_decline });
        if self.insist("POST /v1/runs", &body, Some("start"), &mut dice).await != Some(202) {
            self.find("the run was not accepted");
        }
        let (mut left, mut retries) = (Vec::<String>::new(), 0);
        for _ in 0..MAX_LOOKS {
            self.client.world.sched.sleep(dice.pick(&[3, 80, 700])).await;
            let Some(shown) = self.show().await else { continue };
            match shown["status"].as_str().unwrap_or_default() {
                "waiting" => self.decide(&shown, &mut left, &mut dice).await,
                "succeeded" | "failed" | "canceled" if retries < run.retries => {
                    retries += 1;
                    self.retry(retries, &mut dice).await;
                }
                "succeeded" | "failed" | "canceled" => {
                    self.witness.is_over.set(true);
                    return;
                }
                _ => {}
            }
        }
        self.witness.is_over.set(true);
        self.find("the run does not end");
    }

    /// Decides on the steps that wait. `left` are the calls that this person has left for others.
    async fn decide(&self, shown: &Value, left: &mut Vec<String>, dice: &mut Dice) {
        for step in shown["steps"].as_array().into_iter().flatten() {
            let call = step["call_id"].as_str().unwrap_or_default();
            if step["status"] != "waiting_approval" || left.iter().any(|own| own == call) {
                continue;
            }
            if dice.chance(self.run.leaves) {
                left.push(call.to_owned());
                continue;
            }
            let path = self.path(&format!("/steps/{}/approval", step["id"].as_str().unwrap_or_default()));
            let route = format!("POST {path}");
            if dice.chance(10) {
                let wrong = json!({ "decision": "approve", "args_hash": "0" });
                if self.insist(&route, &wrong, None, dice).await == Some(200) {
                    self.find("a decision about other arguments was accepted");
                }
            }
            let decision = if dice.chance(80) { "approve" } else { "decline" };
            let body = json!({ "decision": decision, "args_hash": step["args_hash"] });
            self.insist(&route, &body, None, dice).await;
        }
    }

    async fn retry(&self, number: usize, dice: &mut Dice) {
        let steps: Vec<&str> = self.run.steps.iter().map(|step| step.id.as_str()).collect();
        let body = if dice.chance(40) { json!({ "from": dice.pick(&steps) }) } else { json!({}) };
        let route = format!("POST {}", self.path("/retry"));
        // A run that has succeeded, or has no such step, refuses it.
        self.insist(&route, &body, Some(&format!("retry-{number}")), dice).await;
    }

    async fn cancel(&self, at: u64) {
        let due = (START + at).saturating_sub(self.client.world.sched.now());
        self.client.world.sched.sleep(due).await;
        let route = format!("POST {}", self.path("/cancel"));
        drop(self.client.json(&route, &json!({})).await);
    }

    /// Runs the calls that wait for a runner, one after the other. A runner that is killed is replaced by one of another name.
    async fn runner(&self, number: usize, mut dice: Dice) {
        let (sched, mut life) = (&self.client.world.sched, 0);
        while !self.witness.is_over.get() {
            sched.sleep(dice.pick(&[5, 40, 600])).await;
            let Some((200, view)) = self.client.json("GET", &Value::Null).await else { continue };
            for call in view["pending"].as_array().into_iter().flatten() {
                if call["kind"] == "external" && call["claim"].is_null() {
                    let name = format!("runner {number}.{life}");
                    if !self.work(call, &name, &mut dice).await {
                        life += 1;
                    }
                }
            }
        }
    }

    /// Claims a call, runs it and answers it. Returns `false` if the runner is killed.
    async fn work(&self, call: &Value, name: &str, dice: &mut Dice) -> bool {
        let id = call["call_id"].as_str().unwrap_or_default();
        let session = &self.client.node.session;
        let claim = json!({ "runner": name, "lease_s": dice.pick(&[2, 5, 20]) });
        let claimed =
            self.client.json(&format!("POST /v1/pending/{id}/claim?session={session}"), &claim).await;
        let Some((200, _)) = claimed else { return true };
        let (is_dead, is_early) = (dice.chance(self.run.deaths), dice.chance(50));
        if is_dead && is_early {
            return false;
        }
        self.ran(id, call["name"].as_str().unwrap_or_default());
        self.client.world.sched.sleep(dice.pick(&[0, 10, 300, 1_500])).await;
        if is_dead {
            return false;
        }
        let result = match dice.chance(self.run.failures) {
            true => json!({ "error": format!("{id} failed") }),
            false => json!({ "answer": format!("{id} is done") }),
        };
        let mut body = result.clone();
        body["runner"] = json!(name);
        let route = format!("POST /answers/{id}");
        for _ in 0..MAX_TRIES {
            let mut request = self.client.request(&route, &body);
            if let Ok(value) = "respond-async".parse() {
                request.request.headers_mut().insert("prefer", value);
            }
            let reply = self.client.ask(request).await;
            if accepted(&reply).is_some() {
                self.witness.answered.borrow_mut().push((id.to_owned(), result));
                return true;
            }
            if reply.status().is_some_and(|status| status < 500 && status != 429) {
                return true;
            }
            self.client.world.sched.sleep(dice.within(20, 900)).await;
        }
        true
    }

    /// 23: no runner runs a call that another one has run, unless it only reads.
    fn ran(&self, id: &str, tool: &str) {
        let mut ran = self.witness.ran.borrow_mut();
        if !is_repeatable(tool) && ran.iter().any(|own| own == id) {
            self.find(&format!("{id} ran twice"));
        }
        ran.push(id.to_owned());
    }

    fn find(&self, what: &str) {
        self.client.world.ledger.find(23, what);
    }
}

fn accepted(reply: &Reply) -> Option<&Response> {
    match reply {
        Reply::Answer(response, _) if response.status().is_success() => Some(response),
        _ => None,
    }
}
