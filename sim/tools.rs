//! The simulated tools. Their behavior is a function of their arguments, so that a repeated run does the
//! same.

pub mod runner;

use super::{
    ledger::{Ledger, Run},
    scenario::Flaky,
};
use async_trait::async_trait;
use edge_harness::agent::{
    DynTool, HarnessBuilder, Hook, HookDraft, RuntimeContext, ToolContext,
    hook::{HookEvent, OnError, PostCall, SubStepError},
};
use edge_harness::types::{Category, Effect, Invalid, Role, Source, ToolOutcome, ToolSpec, WaitKind};
use futures::{FutureExt, future::LocalBoxFuture};
use serde_json::{Value, json};
use std::time::Duration;
use std::{cell::Cell, rc::Rc};

/// Maximum number of calls in flight.
const MAX_IN_FLIGHT: usize = 6;

/// Name, effect, whether it is idempotent, whether it may be retried after a timeout.
const TOOLS: &[(&str, Effect, bool, bool)] = &[
    ("look", Effect::ReadOnly, true, true),
    ("fetch", Effect::NetworkRead, true, false),
    ("put", Effect::LocalWrite, true, true),
    ("send", Effect::Network, false, false),
    ("destroy", Effect::Destructive, false, false),
    ("ask", Effect::ReadOnly, true, true),
    ("lend", Effect::LocalWrite, false, false),
];

/// Returns whether a tool only reads, or `None` if there is no such tool.
pub fn reads(name: &str) -> Option<bool> {
    if name == "echo" {
        return Some(true);
    }
    TOOLS.iter().find(|tool| tool.0 == name).map(|tool| tool.1.is_read())
}

/// Returns whether running a tool twice has the same effect as running it once.
pub fn is_idempotent(name: &str) -> bool {
    name == "echo" || TOOLS.iter().any(|tool| tool.0 == name && tool.2)
}

/// Returns the category of a tool in permission rules.
pub fn category(name: &str) -> Category {
    match name {
        "look" | "fetch" | "echo" => Category::Read,
        "put" => Category::Edit,
        _ => Category::Other,
    }
}

/// Adds the tools and the hook to an agent.
pub fn install(mut builder: HarnessBuilder, ledger: &Rc<Ledger>) -> HarnessBuilder {
    for (name, effect, idempotent, retry) in TOOLS {
        let tool = SimTool {
            name,
            effect: *effect,
            idempotent: *idempotent,
            retry: *retry,
            ledger: Rc::clone(ledger),
        };
        builder = builder.dyn_tool(Rc::new(tool));
    }
    builder.hook(Finisher { ledger: Rc::clone(ledger) })
}

struct SimTool {
    name: &'static str,
    effect: Effect,
    idempotent: bool,
    retry: bool,
    ledger: Rc<Ledger>,
}

/// Records the end of a tool's run, even if its instance is evicted.
struct Running(Rc<Cell<bool>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Returns whether a client may run a call again that another client has claimed.
pub fn may_repeat(ledger: &Ledger, name: &str) -> bool {
    name == "lend" && ledger.scenario.lends_again
}

impl DynTool for SimTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.into(),
            description: "Simulated.".into(),
            parameters: json!({
                "type": "object",
                "properties": { "key": { "type": "string" }, "ms": { "type": "integer" }, "how": { "type": "string" } },
                "required": ["key"],
            })
            .into(),
            effect: self.effect,
            idempotent: self.idempotent,
            retry_on_timeout: self.retry,
            varies: false,
            category: category(self.name),
            control: false,
            suspends: self.suspends(),
            client_may_repeat: may_repeat(&self.ledger, self.name),
        }
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        let key = args["key"].as_str().ok_or("`key` is missing")?;
        Ok(vec![key.to_owned()])
    }

    fn check_answer(&self, _: &Value, _: &Value, answer: &Value) -> Result<(), Invalid> {
        if answer == "unfit" { Err("as planned".into()) } else { Ok(()) }
    }

    fn call<'a>(&'a self, args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        self.act(args, cx).boxed_local()
    }
}

impl SimTool {
    /// Returns what its calls wait for.
    fn suspends(&self) -> Option<WaitKind> {
        match self.name {
            "ask" => Some(WaitKind::Question),
            "lend" => Some(WaitKind::External),
            _ => None,
        }
    }

    async fn act(&self, args: Value, cx: ToolContext) -> ToolOutcome {
        let (how, ms) = (args["how"].as_str().unwrap_or("ok").to_owned(), args["ms"].as_u64().unwrap_or(0));
        let (place, _running) = self.begin(&args, &cx);
        self.write(place, &cx, "begun");
        let ms = match how.as_str() {
            "hang" => 3_600_000,
            // Longer than any tool timeout, but within the time a canceled tool may keep running.
            "late" => 2_500 + ms * 10,
            _ => ms,
        };
        if ms > 0 {
            cx.clock.sleep(Duration::from_millis(ms)).await;
        }
        self.write(place, &cx, "done");
        self.ledger.say(self.name, || format!("{} ends: {how}", cx.call_id));
        match how.as_str() {
            "fail" => ToolOutcome::failure("it failed"),
            "gone" => ToolOutcome::Failure { reason: "it is gone for good".into(), retryable: false },
            // Without the panic hook, to keep the output clean.
            "panic" => std::panic::resume_unwind(Box::new("as planned")),
            "big" => ToolOutcome::Result { result: "large ".repeat(2_500).into() },
            "cite" => {
                cx.cite(Source::Web { url: format!("https://example.com/{}", args["key"]), title: None });
                ToolOutcome::Result { result: json!({ "found": args["key"] }) }
            }
            _ => ToolOutcome::Result { result: json!({ "key": args["key"], "n": 1 }) },
        }
    }

    fn begin(&self, args: &Value, cx: &ToolContext) -> (usize, Running) {
        let running = Rc::new(Cell::new(true));
        let ledger = &self.ledger;
        let run = Run {
            session: format!("{}/{}", cx.tenant, cx.session),
            turn: cx.turn.to_string(),
            call_id: cx.call_id.to_string(),
            tool: self.name,
            key: format!("{} {args}", self.name),
            touches: args["key"].to_string(),
            reads: self.effect.is_read(),
            idempotent: self.idempotent,
            args: args.clone(),
            answer: cx.answer.clone(),
            began: ledger.moment(),
            at: ledger.sched.now(),
            running: Rc::clone(&running),
            over: cx.cancel.clone(),
            wrote: Vec::new(),
        };
        ledger.say(self.name, || format!("{} of {} begins: {}", run.call_id, run.session, run.key));
        let mut beside = 1;
        let mut runs = ledger.runs.borrow_mut();
        // Canceled calls are late and do not count as in flight.
        for other in runs.iter().filter(|o| o.turn == run.turn && o.running.get() && !o.over.is_canceled()) {
            beside += 1;
            if !other.reads || !run.reads || other.touches == run.touches {
                ledger.find(
                    5,
                    format!("{} runs while {} runs: {} / {}", run.call_id, other.call_id, run.key, other.key),
                );
            }
        }
        if beside > MAX_IN_FLIGHT {
            ledger.find(5, format!("{beside} calls in flight"));
        }
        runs.push(run);
        (runs.len() - 1, Running(running))
    }

    /// Writes to the session, unless the tool only reads.
    fn write(&self, place: usize, cx: &ToolContext, what: &str) {
        if self.effect.is_read() {
            return;
        }
        let key = format!("{}.{what}", cx.call_id);
        let moment = self.ledger.moment();
        match cx.set_state(&key, what.into()) {
            Ok(()) => self.ledger.runs.borrow_mut()[place].wrote.push((key, moment)),
            Err(error) => self.ledger.say(self.name, || format!("{key} was not written: {error}")),
        }
    }
}

/// A hook that writes a document at the end of each turn, and fails at some.
struct Finisher {
    ledger: Rc<Ledger>,
}

impl Finisher {
    fn finish(&self, cx: &RuntimeContext, draft: &mut HookDraft<'_>) -> Result<(), SubStepError> {
        let messages = cx.messages();
        let own =
            messages.iter().rev().find(|message| message.role == Role::User && message.turn == *cx.turn());
        let said = own.map(|message| message.text()).unwrap_or_default();
        draft.put_document(&format!("finished/{}", cx.turn()), "true".into());
        let scenario = self.ledger.scenario.turn(&said);
        match scenario.map_or(Flaky::Works, |(_, turn)| turn.flaky) {
            Flaky::Works => Ok(()),
            Flaky::Fails => Err(SubStepError("as planned".into())),
            Flaky::Panics => std::panic::resume_unwind(Box::new("as planned")),
        }
    }
}

#[async_trait(?Send)]
impl Hook for Finisher {
    fn name(&self) -> &'static str {
        "finisher"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PostCall, HookEvent::Error]
    }

    fn post_call(&self, event: &mut PostCall<'_>, cx: &RuntimeContext) -> Result<(), SubStepError> {
        self.finish(cx, &mut event.draft)
    }

    fn on_error(&self, event: &mut OnError<'_>, cx: &RuntimeContext) -> Result<(), SubStepError> {
        self.finish(cx, &mut event.draft)
    }
}
