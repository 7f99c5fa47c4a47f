//! Clients: they post, abort, disconnect and reconnect according to the scenario, and store their
//! observations.

mod gateway;
pub mod inbox;
mod people;
mod runners;

use super::{
    caller::Caller,
    dice::Dice,
    reader::{Line, Parser, is_own},
    scenario::{Act, ResponseMode, SessionScenario, mark},
    sched::START,
    witness::{Event, Fate, Streamed, Witness, is_end, waits},
    world::{Node, World},
};
use edge_harness::http::{Body, Request, Response, session, session::call::SessionRequest};
use edge_harness::types::{ErrorCode, Problem, UserId};
use futures::{
    channel::oneshot,
    future::{Either, LocalBoxFuture, join, join_all, select},
};
use serde_json::{Value, json};
use std::{cell::Cell, rc::Rc};

/// A client of one session.
#[derive(Clone)]
pub struct Client {
    pub world: Rc<World>,
    pub node: Rc<Node>,
    pub scenario: SessionScenario,
}

pub enum Reply {
    Answer(Response, u64),
    Problem(Problem),
    /// The session was evicted.
    Lost,
}

impl Reply {
    /// Returns the status, unless the connection was lost.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answer(response, _) => Some(response.status().as_u16()),
            Self::Problem(problem) => Some(problem.code.status()),
            Self::Lost => None,
        }
    }
}

/// Starts the clients of all sessions.
pub fn start(world: &Rc<World>, dice: &mut Dice) {
    for (place, scenario) in world.ledger.scenario.sessions.iter().enumerate() {
        let client =
            || Client { world: Rc::clone(world), node: world.node(place), scenario: scenario.clone() };
        let (own, quiet, dice_of) = (client(), world.ledger.scenario.quiet, dice.fork());
        spawn(world, Box::pin(async move { own.script(quiet, dice_of).await }));
        if scenario.followed {
            let (follower, dice) = (client(), dice.fork());
            world.sched.spawn(None, Box::pin(async move { follower.follow(dice).await }));
        }
    }
}

/// Lets the followers read the remaining events from newly started instances.
pub fn read_remaining(world: &Rc<World>) {
    for (place, scenario) in
        world.ledger.scenario.sessions.iter().enumerate().filter(|(_, scenario)| scenario.followed)
    {
        let client = Client { world: Rc::clone(world), node: world.node(place), scenario: scenario.clone() };
        spawn(
            world,
            Box::pin(async move {
                let mut events = client.seen();
                // Records that are appended while it reads may come after the session was idle, and so after
                // the stream's end.
                let known = client.node.disk.log.borrow().len();
                if let Some(mut line) = client.reconnect(&events, "until=idle").await {
                    let mut parser = Parser::default();
                    while let Some(bytes) = line.next().await {
                        parser.push(&client.world, place, &bytes, &mut events);
                    }
                }
                let witness = &mut client.world.witnesses.borrow_mut()[place];
                (witness.followed, witness.known) = (events, known);
            }),
        );
    }
}

/// Starts a task that counts as busy until it completes.
pub fn spawn(world: &Rc<World>, work: LocalBoxFuture<'static, ()>) {
    world.busy.set(world.busy.get() + 1);
    let own = Rc::clone(world);
    world.sched.spawn(
        None,
        Box::pin(async move {
            work.await;
            own.busy.set(own.busy.get() - 1);
        }),
    );
}

impl Client {
    async fn script(&self, quiet: bool, mut dice: Dice) {
        if let Some(rules) = &self.scenario.rules {
            self.write_rules(rules).await;
        }
        let asked = self.scenario.rules.is_some();
        if quiet {
            // Sequentially, so that the turns are in the scenario's order. A message posted while a
            // call is suspended would end its turn.
            for (at, act) in &self.scenario.acts {
                self.act(*at, act, dice.fork()).await;
                if asked {
                    self.decide_until_idle(&Cell::new(0), dice.fork()).await;
                }
            }
        } else {
            let (acting, last_dice) = (Cell::new(self.scenario.acts.len()), dice.fork());
            let acts = self.scenario.acts.iter().map(|(at, act)| (at, act, dice.fork()));
            let acts = acts.map(async |(at, act, dice)| {
                self.act(*at, act, dice).await;
                acting.set(acting.get() - 1);
            });
            // A message queued after a suspended call needs a decision to make progress.
            let rest = async {
                if asked {
                    let last = self.scenario.acts.iter().map(|(at, _)| *at).max().unwrap_or(0);
                    self.world.sched.sleep(last).await;
                    self.decide_until_idle(&acting, last_dice).await;
                }
            };
            join(join_all(acts), rest).await;
        }
        if self.scenario.erased {
            self.erase().await;
        }
    }

    /// Returns a request to the session. `route` is a method and a path, from the root or below the session.
    pub fn request(&self, route: &str, body: &Value) -> SessionRequest {
        let session = self.node.session.clone();
        let (method, path) = route.split_once(' ').unwrap_or((route, ""));
        let root = if path.starts_with("/v1/") { String::new() } else { format!("/v1/sessions/{session}") };
        let principal = self.principal(Caller::Owner);
        let body = if body.is_null() { Default::default() } else { body.to_string().into() };
        let mut request = Request::new(body);
        *request.method_mut() = method.parse().unwrap_or_default();
        *request.uri_mut() = format!("{root}{path}").parse().unwrap_or_default();
        SessionRequest { principal, session, id: "req_sim".into(), request }
    }

    pub async fn ask(&self, call: SessionRequest) -> Reply {
        let (world, host) = (&self.world, self.node.host(&self.world));
        let what = format!("{} {}", call.request.method(), call.request.uri());
        world.ledger.say("client", || format!("{} {what}", self.node.disk.name));
        let generation = self.node.generation.get();
        let received = self.received(&call);
        let (sender, answer) = oneshot::channel();
        let work = async move {
            if let Err(problem) = gateway::authorize(&call) {
                let _ = sender.send(Err(problem));
                return;
            }
            let _ = sender.send(session::respond(&host, &call).await);
        };
        world.sched.spawn(Some(self.node.place), Box::pin(work));
        let reply = match answer.await {
            Ok(Ok(response)) => Reply::Answer(response, generation),
            Ok(Err(problem)) => Reply::Problem(problem),
            Err(_) => Reply::Lost,
        };
        if let Some((received, _)) = received.filter(|(_, exists)| match &reply {
            Reply::Answer(..) => true,
            Reply::Problem(problem) => *exists && problem.code.status() < 500,
            Reply::Lost => false,
        }) {
            received.arrived.set(Some(world.sched.now()));
        }
        world.ledger.say("client", || match &reply {
            Reply::Answer(response, _) => format!("{} {what}: {}", self.node.disk.name, response.status()),
            Reply::Problem(problem) => format!("{} {what}: {problem}", self.node.disk.name),
            Reply::Lost => format!("{} {what}: connection lost", self.node.disk.name),
        });
        reply
    }

    pub async fn json(&self, route: &str, body: &Value) -> Option<(u16, Value)> {
        match self.ask(self.request(route, body)).await {
            Reply::Answer(response, _) => Some((response.status().as_u16(), self.read(&response))),
            _ => None,
        }
    }

    pub fn read(&self, response: &Response) -> Value {
        let Body::Bytes(bytes) = response.body() else { return Value::Null };
        is_own(&self.world, self.node.origin, &String::from_utf8_lossy(bytes));
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    pub fn witness<T>(&self, see: impl FnOnce(&mut Witness) -> T) -> T {
        see(&mut self.world.witnesses.borrow_mut()[self.node.place])
    }

    async fn act(&self, at: u64, act: &Act, mut dice: Dice) {
        let due = (START + at).saturating_sub(self.world.sched.now());
        self.world.sched.sleep(due).await;
        match act {
            Act::Post { turn, mode, on_busy, key } => self.post(*turn, *mode, on_busy, *key, &mut dice).await,
            Act::Abort => drop(self.json("POST /abort", &json!({})).await),
            Act::Dequeue => self.dequeue().await,
            Act::Rename => {
                let title = format!("{} {}", mark(self.node.place), dice.roll());
                let renamed = self.json("PATCH", &json!({ "title": title })).await;
                if let Some((200, _)) = renamed {
                    self.witness(|w| w.titles.push(title));
                }
            }
            Act::Trespass => self.trespass().await,
            Act::Look => {
                self.json("GET", &Value::Null).await;
                self.json("GET /messages", &Value::Null).await;
            }
            Act::Fork => drop(self.json("POST /fork", &json!({})).await),
            Act::Decide => self.decide(&mut dice).await,
            Act::Permit(patch) => self.permit(patch, &mut dice).await,
            Act::CancelTask => self.cancel_task(&mut dice).await,
        }
    }

    /// Posts a message. With an idempotency key, retries until its fate is known.
    async fn post(&self, turn: usize, mode: ResponseMode, on_busy: &str, key: bool, dice: &mut Dice) {
        for _ in 0..12 {
            let fate = self.try_post(turn, mode, on_busy, key).await;
            self.witness(|w| w.posts.push((turn, key, fate.clone())));
            let again = match fate {
                Fate::Accepted(_) => false,
                Fate::Unknown => key,
                Fate::Refused => key && on_busy != "reject",
            };
            if !again {
                return;
            }
            self.world.sched.sleep(dice.within(50, 3_000)).await;
        }
    }

    async fn try_post(&self, turn: usize, mode: ResponseMode, on_busy: &str, key: bool) -> Fate {
        let script = &self.scenario.turns[turn];
        let mut body = json!({
            "content": script.said, "on_busy": on_busy, "budget": script.budget_json(), "show_citations": script.citations,
        });
        if let Some(think) = script.think {
            body["think"] = json!(think);
        }
        if let Some(tools) = &script.tools {
            body["tools"] = json!(tools);
        }
        if script.schema {
            body["output_schema"] = json!({ "type": "object", "required": ["answer"] });
        }
        let mut call = self.request("POST /messages", &body);
        let headers = call.request.headers_mut();
        if key && let Ok(key) = format!("turn-{turn}").parse() {
            headers.insert("idempotency-key", key);
        }
        mode.add_header(headers);
        match self.ask(call).await {
            Reply::Answer(response, generation) => self.accepted(response, generation, true).await,
            // Without the ledger, no turn is admitted.
            Reply::Problem(problem) if problem.detail.starts_with("the limits") => Fate::Refused,
            // Accepted, but the turn continues in another instance.
            Reply::Problem(problem) if problem.code == ErrorCode::Unavailable => Fate::Accepted(None),
            Reply::Problem(problem) if problem.code == ErrorCode::IdempotencyInProgress => {
                Fate::Accepted(None)
            }
            Reply::Problem(_) => Fate::Refused,
            Reply::Lost => Fate::Unknown,
        }
    }

    pub async fn accepted(&self, response: Response, generation: u64, whole: bool) -> Fate {
        if let Body::Bytes(_) = response.body() {
            let answer = self.read(&response);
            let turn = answer["turn_id"].as_str().map(str::to_owned);
            if let (200, Some(turn)) = (response.status().as_u16(), turn.clone()) {
                self.witness(|w| w.answers.push((turn, answer)));
            }
            return Fate::Accepted(turn);
        }
        let turn = response.headers().get("x-turn-id");
        let turn = turn.and_then(|turn| turn.to_str().ok()).map(str::to_owned);
        let Body::Stream(stream) = response.into_body() else { return Fate::Accepted(None) };
        let mut line = Line { node: Rc::clone(&self.node), generation, stream };
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        while let Some(bytes) = line.next().await {
            parser.push(&self.world, self.node.origin, &bytes, &mut events);
        }
        let complete = events.last().is_some_and(|event: &Event| is_end(&event.name) || waits(&event.name));
        if let Some(turn) = turn.clone() {
            self.witness(|w| w.streams.push(Streamed { turn, events, complete, whole }));
        }
        Fate::Accepted(turn)
    }

    async fn dequeue(&self) {
        let Some((200, view)) = self.json("GET", &Value::Null).await else { return };
        let Some(turn) = view["queue"][0]["id"].as_str() else { return };
        if let Some((204, _)) = self.json(&format!("DELETE /queue/{turn}"), &Value::Null).await {
            self.witness(|w| w.dequeued.push(turn.to_owned()));
        }
    }

    /// Requests of other tenants and other users must not find the session.
    async fn trespass(&self) {
        let strangers = [("initech", None), (self.scenario.tenant.as_str(), Some("mallory"))];
        let routes = [
            "GET",
            "GET /events",
            "GET /messages",
            "POST /abort",
            "PATCH",
            "DELETE",
            "POST /fork",
            "POST /approvals/u0.0.0",
            "POST /answers/u0.0.0",
        ];
        for (tenant, user) in strangers {
            for route in routes {
                let body = json!({ "decision": "approve", "answer": "theirs" });
                let mut call = self.request(route, &body);
                call.principal.tenant = tenant.into();
                call.principal.user = user.map(UserId::from);
                if *tenant != *self.scenario.tenant {
                    call.principal.policy = Default::default();
                }
                if let Reply::Answer(response, _) = self.ask(call).await {
                    let what = format!("{tenant}/{user:?} may {route}: {}", response.status());
                    self.world.ledger.find(7, what);
                }
            }
        }
    }

    async fn erase(&self) {
        for _ in 0..20 {
            let call = self.request("DELETE", &Value::Null);
            let gone = match self.ask(call).await {
                Reply::Answer(response, _) => response.status() == 204,
                Reply::Problem(problem) => problem.code == ErrorCode::NotFound,
                Reply::Lost => false,
            };
            if gone {
                return self.witness(|w| w.erased = true);
            }
            self.world.sched.sleep(700).await;
        }
    }

    /// Follows the session's events, disconnecting and reconnecting at random.
    async fn follow(&self, mut dice: Dice) {
        while !self.world.closing.get() {
            let mut events = self.seen();
            if let Some(mut line) = self.reconnect(&events, "").await {
                let mut parser = Parser::default();
                let leave = self.world.sched.sleep(dice.pick(&[0, 3, 30, 300, 3_000, 20_000]));
                futures::pin_mut!(leave);
                while let Either::Left((Some(bytes), _)) = select(Box::pin(line.next()), leave.as_mut()).await
                {
                    // The connection may be lost at any byte.
                    let cut = dice.chance(8);
                    let length = if cut { dice.below(bytes.len() as u64) } else { bytes.len() as u64 };
                    let kept = &bytes[..usize::try_from(length).unwrap_or(0)];
                    parser.push(&self.world, self.node.place, kept, &mut events);
                    if cut {
                        break;
                    }
                }
            }
            self.witness(|w| w.followed = events);
            self.world.sched.sleep(dice.pick(&[1, 20, 400, 2_500])).await;
        }
    }

    /// Takes the events received so far; the caller stores them again.
    fn seen(&self) -> Vec<Event> {
        self.witness(|w| std::mem::take(&mut w.followed))
    }

    /// Reconnects after the last received event.
    async fn reconnect(&self, seen: &[Event], query: &str) -> Option<Line> {
        let mut call = self.request(&format!("GET /events?{query}"), &Value::Null);
        if let Some(id) = seen.iter().rev().find_map(|event| event.id)
            && let Ok(id) = id.to_string().parse()
        {
            call.request.headers_mut().insert("last-event-id", id);
        }
        let Reply::Answer(response, generation) = self.ask(call).await else { return None };
        match response.into_body() {
            Body::Stream(stream) => Some(Line { node: Rc::clone(&self.node), generation, stream }),
            _ => None,
        }
    }
}
