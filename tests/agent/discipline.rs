//! The rules of a turn: skipped calls, late tools, final responses, self-critiques, schemas, sources, and
//! parts that fail without failing the turn.

use crate::scripts::step_of;
use crate::stage::{Stage, ms};
use edge_harness::agent::{
    ActDecision, ContextSource, Hook, RuntimeContext, Settings, Tool, ToolContext, ToolError,
    hook::{HookEvent, PostCall, PreActing, SubStepError},
};
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::ports::Clock;
use edge_harness::types::{
    BoxError, BudgetPatch, Effect, Message, ModelError, ModelErrorKind, ModelRequest, Part, Source,
    StopReason, Thinking, TurnOptions, TurnStatus,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const NONE: BudgetPatch = BudgetPatch {
    max_steps: None,
    max_tool_calls: None,
    timeout_s: None,
    tool_timeout_s: None,
    max_tokens: None,
    max_cost_usd: None,
    max_reflections: None,
};

fn text(text: &str) -> edge_harness::platform::in_memory::models::ScriptedResponse {
    answer(vec![Part::text(text)])
}

/// Waits, then writes the session's state.
pub struct SlowWrite;

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub struct Wait {
    ms: u64,
}

impl Tool for SlowWrite {
    type Args = Wait;
    type Output = String;
    const NAME: &'static str = "slow_write";
    const DESCRIPTION: &'static str = "Writes late.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;

    async fn run(&self, args: Wait, cx: ToolContext) -> Result<String, ToolError> {
        cx.clock.sleep(ms(args.ms)).await;
        cx.set_state("written", json!(args.ms))?;
        Ok("written".into())
    }
}

#[test]
fn a_late_tool_changes_nothing_and_leaves_one_record() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![call("c", "slow_write", json!({"ms": 5_000}))]),
        _ => text("done"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder.tool(SlowWrite));
    stage.post_with("t1", "go", BudgetPatch { tool_timeout_s: Some(1), ..NONE }, TurnOptions::default());
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["timeout"]);
    let before = stage.kinds();
    stage.tick(ms(10_000));
    assert_eq!(stage.session().state().meta.state.get("written"), None);
    assert_eq!(stage.kinds()[before.len()..], ["tool.late_result"]);
    assert_eq!(stage.records().last().unwrap()["turn"], "t1");
    stage.check();
}

#[test]
fn a_tool_of_an_aborted_turn_changes_nothing_in_the_next_one() {
    let script = |request: &ModelRequest| match request.messages.last().unwrap().text().as_str() {
        "go" => answer(vec![call("c", "slow_write", json!({"ms": 500}))]),
        _ => text("hello"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder.tool(SlowWrite));
    stage.post("t1", "go");
    stage.tick(ms(100));
    assert!(stage.host().abort(&stage.session(), Vec::new()).unwrap());
    stage.post("t2", "next");
    stage.settle();
    stage.tick(ms(1_000));
    assert_eq!(stage.session().state().meta.state.get("written"), None);
    let late: Vec<_> = stage.records().into_iter().filter(|r| r["type"] == "tool.late_result").collect();
    assert_eq!((late.len(), &late[0]["turn"]), (1, &json!("t1")));
    assert_eq!(stage.end("t2").outcomes.len(), 0);
    stage.check();
}

#[test]
fn a_tool_writes_the_sessions_state() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![call("c", "slow_write", json!({"ms": 50}))]),
        _ => text("done"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder.tool(SlowWrite));
    stage.post("t1", "go");
    stage.settle();
    assert_eq!(stage.session().state().meta.state.get("written"), Some(&json!(50)));
    stage.tick(ms(60_000));
    assert!(!stage.kinds().contains(&"tool.late_result".to_owned()));
}

#[test]
fn a_call_equal_to_a_successful_one_is_skipped() {
    let read = |id: &str| call(id, "read_it", json!({"key": "k"}));
    let script = move |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![read("a"), read("b")]),
        1 => answer(vec![read("c"), call("w", "write_it", json!({"key": "k"})), read("d")]),
        2 => {
            answer(vec![call("e", "fail_it", json!({"key": "k"})), call("f", "fail_it", json!({"key": "k"}))])
        }
        _ => text("done"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.post("t1", "go");
    stage.settle();
    stage.check();
    let expected = ["result", "duplicate", "duplicate", "result", "result", "failure", "failure"];
    assert_eq!(stage.outcomes("t1"), expected);
    let counts = json!(stage.end("t1").outcomes);
    assert_eq!(counts, json!({"denied": 2, "failure": 2, "result": 3}));
}

#[test]
fn skipped_calls_stay_skipped_after_a_crash() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![call("a", "read_it", json!({"key": "k"}))]),
        1 => answer(vec![
            call("b", "read_it", json!({"key": "other"})),
            call("c", "read_it", json!({"key": "k"})),
        ]),
        _ => text("done"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.post("t1", "go");
    stage.run();
    stage.tick(ms(200));
    assert_eq!(stage.outcomes("t1"), ["result"]);
    stage.crash();
    stage.wake();
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["result", "result", "duplicate"]);
}

#[test]
fn at_the_step_limit_the_model_responds_without_tools() {
    let script = |request: &ModelRequest| {
        if request.tools_off {
            assert!(request.tail.contains("no steps left") && !request.tools.is_empty());
            return answer(vec![Part::text("So far."), call("x", "read_it", json!({"key": "x"}))]);
        }
        let step = step_of(request);
        answer(vec![call(&format!("c{step}"), "read_it", json!({"key": step.to_string()}))])
    };
    let (stage, models) = Stage::scripted(script, |builder| builder);
    stage.post_with("t1", "go", BudgetPatch { max_steps: Some(2), ..NONE }, TurnOptions::default());
    stage.settle();
    stage.check();
    let end = stage.end("t1");
    assert_eq!((end.stop_reason, end.steps, end.status), (StopReason::MaxSteps, 2, TurnStatus::Completed));
    assert_eq!(end.reply.unwrap().text, "So far.");
    assert_eq!((models.requests().len(), stage.outcomes("t1").len()), (3, 2));
    assert!(stage.kinds().contains(&"budget.exceeded".to_owned()));
}

#[test]
fn a_turn_at_its_deadline_has_a_reply() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![call("c", "slow_write", json!({"ms": 60_000}))]),
        _ => text("never"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder.tool(SlowWrite));
    stage.post_with("t1", "go", BudgetPatch { timeout_s: Some(2), ..NONE }, TurnOptions::default());
    stage.settle();
    stage.check();
    let end = stage.end("t1");
    assert_eq!((end.stop_reason, end.status), (StopReason::Deadline, TurnStatus::Completed));
    assert_eq!(end.reply.unwrap().text, "I ran out of time before I could answer.");
}

/// One failing call per step, with thinking in between.
fn thoughtful(options: TurnOptions, budget: BudgetPatch, thought: &'static str) -> (Stage, usize) {
    let script = move |request: &ModelRequest| {
        if request.tail.contains("Look back at the last step") {
            return text(thought);
        }
        match step_of(request) {
            step @ 0..6 if !request.tools_off => {
                answer(vec![call(&format!("c{step}"), "fail_it", json!({"key": step.to_string()}))])
            }
            _ => text("done"),
        }
    };
    let (stage, models) = Stage::scripted(script, |builder| builder);
    stage.post_with("t1", "go", budget, options);
    stage.settle();
    stage.check();
    let noted =
        |r: &ModelRequest| r.tail.contains("Your review of an earlier step:\n<untrusted_output>\nCONTINUE");
    let notes = models.requests().iter().filter(|r| noted(r) && !r.tail.contains("Look back")).count();
    (stage, notes)
}

#[test]
fn a_failure_is_critiqued_within_the_budget() {
    let low = || TurnOptions { think: Some(Thinking::Low), ..TurnOptions::default() };
    let reflections = |stage: &Stage| -> Vec<Value> {
        stage.records().into_iter().filter(|r| r["type"] == "turn.reflected").collect()
    };
    let (stage, _) = thoughtful(TurnOptions::default(), NONE, "CONTINUE");
    assert_eq!(reflections(&stage).len(), 0, "there are none without thinking");

    let (stage, notes) = thoughtful(low(), NONE, "CONTINUE with another key.");
    let stubs: Vec<_> = reflections(&stage).iter().map(|r| r["stub"].as_bool().unwrap_or(false)).collect();
    assert_eq!(stubs, [false, false, false, false, true, true]);
    assert_eq!((stage.end("t1").reflections, notes), (4, 6));

    let (stage, _) = thoughtful(low(), NONE, "STOP, it never works.");
    assert_eq!((reflections(&stage).len(), stage.outcomes("t1").len()), (1, 1));
    let end = stage.end("t1");
    assert_eq!((end.stop_reason, end.reply.unwrap().text), (StopReason::End, "done".to_owned()));
}

#[test]
fn an_answer_that_is_not_json_is_repeated_once() {
    let run = |answers: [&'static str; 2]| {
        let script = move |request: &ModelRequest| text(answers[step_of(request).min(1)]);
        let (stage, models) = Stage::scripted(script, |builder| builder);
        let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}});
        let options = TurnOptions { output_schema: Some(schema), ..TurnOptions::default() };
        stage.post_with("t1", "go", NONE, options);
        stage.settle();
        stage.check();
        (stage.end("t1"), models.requests())
    };
    let (end, requests) = run(["no", "```json\n{\"a\": 1}\n```"]);
    assert_eq!((end.status, end.reply.unwrap().output), (TurnStatus::Completed, Some(json!({"a": 1}))));
    assert!(requests[0].tail.contains("must conform to this JSON Schema"));
    assert!(
        requests[1]
            .tail
            .contains("Your last answer did not fit the schema:\n<untrusted_output>\nnot valid JSON")
    );

    let (end, requests) = run(["no", "still no"]);
    assert_eq!((end.status, requests.len()), (TurnStatus::Failed, 2));
    assert_eq!(end.error.unwrap().code, "output_invalid");
}

/// Cites the requested source.
pub struct Cite;

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub struct CiteArgs {
    local: usize,
    web: usize,
}

impl Tool for Cite {
    type Args = CiteArgs;
    type Output = String;
    const NAME: &'static str = "cite";
    const DESCRIPTION: &'static str = "Cites.";
    const EFFECT: Effect = Effect::ReadOnly;

    async fn run(&self, args: CiteArgs, cx: ToolContext) -> Result<String, ToolError> {
        for n in 0..args.local {
            cx.cite(Source::Local { path: format!("notes/{n}.md"), title: None });
        }
        for n in 0..args.web {
            cx.cite(Source::Web { url: format!("https://example.com/{n}"), title: None });
        }
        Ok("found".into())
    }
}

#[test]
fn a_reply_lists_its_sources_unless_disabled() {
    let run = |show_citations: bool| {
        let script = |request: &ModelRequest| match step_of(request) {
            0 => answer(vec![call("c", "cite", json!({"local": 12, "web": 9}))]),
            _ => text("Found it."),
        };
        let (stage, _) = Stage::scripted(script, |builder| builder.tool(Cite));
        stage.post_with("t1", "go", NONE, TurnOptions { show_citations, ..TurnOptions::default() });
        stage.settle();
        stage.end("t1")
    };
    let end = run(true);
    let text = end.reply.unwrap().text;
    assert!(text.starts_with("Found it.\n\nSources:\n- notes/0.md"), "{text}");
    assert_eq!((text.lines().filter(|line| line.starts_with("- ")).count(), end.citations.len()), (16, 16));
    let end = run(false);
    assert_eq!((end.reply.unwrap().text.as_str(), end.citations.len()), ("Found it.", 0));
}

/// Fails or panics at the end of a turn, after changing the draft.
struct Careless(bool);

#[async_trait::async_trait(?Send)]
impl Hook for Careless {
    fn name(&self) -> &'static str {
        if self.0 { "breaks" } else { "fails" }
    }
    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PostCall]
    }
    fn post_call(&self, event: &mut PostCall<'_>, _cx: &RuntimeContext) -> Result<(), SubStepError> {
        event.draft.set_title(Some("half done".into()));
        assert!(!self.0, "as scripted");
        Err(SubStepError("no".into()))
    }
}

/// Memories that fail to load, never load, or load.
struct Memories(Option<&'static str>);

#[async_trait::async_trait(?Send)]
impl ContextSource for Memories {
    fn name(&self) -> &'static str {
        if self.0.is_some() { "memories" } else { "slow_memories" }
    }
    async fn load(&self, _message: &Message, cx: &RuntimeContext) -> Result<Option<String>, BoxError> {
        cx.clock.sleep(ms(if self.0.is_some() { 500 } else { 10_000 })).await;
        Ok(self.0.map(str::to_owned))
    }
}

#[test]
fn optional_parts_of_a_turn_may_fail() {
    let (stage, models) = Stage::scripted(
        |_| text("hello"),
        |builder| {
            let builder = builder.hook(Careless(true)).hook(Careless(false));
            builder
                .context(Memories(Some("Likes tea.")))
                .context(Memories(None))
                .context(Memories(Some("Is Zoë.")))
        },
    );
    stage.post("t1", "go");
    stage.settle();
    let end = stage.end("t1");
    assert_eq!(end.status, TurnStatus::Completed);
    assert_eq!(end.sub_steps_failed, ["slow_memories", "breaks", "fails"]);
    assert_eq!(stage.session().state().meta.title.as_deref(), Some("go"));
    let volatile = &models.requests()[0].volatile;
    let marked = |text: &str| format!("<untrusted_output>\n{text}\n</untrusted_output>");
    assert!(volatile.contains(&format!("{}\n\n{}", marked("Likes tea."), marked("Is Zoë."))), "{volatile}");
    let took = stage.clock.now().since(crate::stage::NOW);
    assert!(took <= ms(2_100), "sources are loaded concurrently: {took:?}");
}

#[test]
fn the_prompts_hash_depends_only_on_instructions_and_tools() {
    let hash = |instructions: &'static str, said: &str, tools: Option<Vec<String>>| {
        let (stage, _) = Stage::scripted(|_| text("hello"), move |b| b.instructions("default", instructions));
        stage.post_with("t1", said, NONE, TurnOptions { tools, ..TurnOptions::default() });
        stage.settle();
        stage.end("t1").prompt_render_hash.unwrap()
    };
    assert_eq!(hash("Be kind.", "hello", None), hash("Be kind.", "good bye", None));
    assert_ne!(hash("Be kind.", "hello", None), hash("Be brief.", "hello", None));
    assert_ne!(hash("Be kind.", "hello", None), hash("Be kind.", "hello", Some(vec!["echo".into()])));
}

#[test]
fn a_session_reflects_in_every_nth_turn() {
    let script = |request: &ModelRequest| {
        if request.tail.contains("Look back") {
            return text("CONTINUE");
        }
        match step_of(request) {
            0 => answer(vec![call("c", "read_it", json!({"key": "k"}))]),
            _ => text("done"),
        }
    };
    let (stage, _) = Stage::scripted(script, |builder| {
        builder.settings(Settings { think: Thinking::Low, reflect_every: 2, ..Settings::default() })
    });
    let reflections: Vec<u32> = ["t1", "t2", "t3", "t4"]
        .map(|turn| {
            stage.post(turn, "go");
            stage.settle();
            stage.end(turn).reflections
        })
        .into();
    assert_eq!(reflections, [0, 1, 0, 1]);
}

#[test]
fn a_call_running_at_an_abort_is_not_reported_as_not_run() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![
            call("c", "slow_write", json!({"ms": 60_000})),
            call("d", "read_it", json!({"key": "k"})),
        ]),
        _ => text("done"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder.tool(SlowWrite));
    stage.post("t1", "go");
    stage.run();
    assert!(stage.host().abort(&stage.session(), Vec::new()).unwrap());
    assert_eq!(stage.outcomes("t1"), ["unknown", "canceled"]);
    stage.settle();
    stage.check();
}

#[test]
fn a_turn_with_a_cost_limit_fails_without_a_price() {
    let (stage, models) = Stage::scripted(|_| text("hello"), |builder| builder);
    let budget = BudgetPatch { max_cost_usd: Some(1.0), ..NONE };
    stage.post_with("t1", "go", budget, TurnOptions::default());
    stage.settle();
    assert_eq!(stage.end("t1").error.unwrap().code, "price_unknown");
    assert!(models.requests().is_empty());
}

#[test]
fn a_summary_that_fails_after_a_reflection_fails_the_turn() {
    let script = |request: &ModelRequest| {
        if request.tail.contains("Look back") {
            return text("STOP");
        }
        if request.tools_off {
            let error = ModelError::new(ModelErrorKind::Billing, "no credit");
            return vec![Err(error)];
        }
        answer(vec![call("c", "fail_it", json!({"key": "k"}))])
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    let options = TurnOptions { think: Some(Thinking::Low), ..TurnOptions::default() };
    stage.post_with("t1", "go", NONE, options);
    stage.settle();
    assert_eq!(stage.end("t1").error.unwrap().code, "provider_billing");
}

#[test]
fn a_varying_call_is_not_skipped() {
    let script = |request: &ModelRequest| match step_of(request) {
        step @ 0..2 => answer(vec![call(&format!("c{step}"), "current_time", json!({}))]),
        _ => text("done"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.post("t1", "go");
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["result", "result"]);
}

/// Changes every key, or panics.
struct Rewrite(Option<&'static str>);

#[async_trait::async_trait(?Send)]
impl Hook for Rewrite {
    fn name(&self) -> &'static str {
        "rewrite"
    }
    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreActing]
    }
    async fn pre_acting(&self, event: &mut PreActing<'_>, _cx: &RuntimeContext) -> ActDecision {
        let key = event.call.args["key"].as_str().unwrap_or_default().to_owned();
        match self.0 {
            Some(one) => event.call.args["key"] = one.into(),
            None => assert_ne!(key, "break", "as scripted"),
        }
        ActDecision::Continue
    }
}

#[test]
fn calls_are_compared_by_the_arguments_they_run_with() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![call("a", "read_it", json!({"key": "x"}))]),
        1 => answer(vec![call("b", "read_it", json!({"key": "y"}))]),
        _ => text("done"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder.hook(Rewrite(Some("z"))));
    stage.post("t1", "go");
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["result", "duplicate"]);
    let ran_with: Vec<Value> = stage.records().into_iter().map(|r| r["ran_with"].clone()).collect();
    assert!(ran_with.contains(&json!({"key": "z"})));
}

#[test]
fn a_panicking_hook_fails_one_call() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(["good", "break", "fine"].map(|k| call(k, "read_it", json!({"key": k}))).into()),
        _ => text("done"),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder.hook(Rewrite(None)));
    stage.post("t1", "go");
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["result", "failure", "result"]);
    assert_eq!(stage.end("t1").status, TurnStatus::Completed);
}
