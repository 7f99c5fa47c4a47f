//! The verification of what a turn has changed, before it ends.

use crate::discipline::Cite;
use crate::questions::{reply, say};
use crate::scripts::{ruling, step_of};
use crate::stage::{Stage, meta};
use edge_harness::agent::{
    ExternalTool, HarnessBuilder, Settings, Tool, ToolContext, ToolError, Verify, external_tool::Declared,
    host::suspensions::CallAnswer,
};
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{answer, call},
};
use edge_harness::types::{
    BudgetPatch, CallId, Category, Decision, Effect, ModelRequest, Part, Policy, Role, StopReason, Thinking,
    ToolOutcome, TurnOptions, TurnStatus, Verification, WaitKind,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::rc::Rc;

/// A tool of a client that checks the files.
fn check() -> Rc<ExternalTool> {
    let declared: Declared = serde_json::from_value(json!({
        "name": "check", "description": "Checks the files.", "effect": "local_write", "category": "execute",
    }))
    .unwrap();
    Rc::new(ExternalTool::new(declared).unwrap())
}

fn verifying(builder: HarnessBuilder) -> HarnessBuilder {
    let verify = Some(Verify { tool: "check".into(), attempts: 2 });
    builder.settings(Settings { verify, ..Settings::default() })
}

fn write(path: &str) -> Part {
    call(path, "write_file", json!({"path": path, "content": "text"}))
}

/// A turn whose model gives these responses.
fn stage(steps: Vec<Vec<Part>>) -> (Stage, Rc<ScriptedModels>) {
    staged(steps, |builder| verifying(builder).dyn_tool(check()))
}

fn staged(
    steps: Vec<Vec<Part>>,
    extend: impl Fn(HarnessBuilder) -> HarnessBuilder + 'static,
) -> (Stage, Rc<ScriptedModels>) {
    let response = move |step: usize| steps.get(step).cloned().unwrap_or(vec![Part::text("Too much.")]);
    let (stage, models) = Stage::scripted(move |request| answer(response(step_of(request))), extend);
    stage.host().create(meta(stage.host().now())).unwrap();
    (stage, models)
}

fn begin(steps: Vec<Vec<Part>>) -> (Stage, Rc<ScriptedModels>) {
    let (stage, models) = stage(steps);
    stage.post("t1", "go");
    (stage, models)
}

/// Waits for the call of the verification.
fn verification(stage: &Stage) -> CallId {
    stage.settle_waiting();
    let pending = stage.session().pending().unwrap();
    let [call] = &pending[..] else { panic!("{pending:?}") };
    assert_eq!((call.name.as_str(), call.kind, &call.args), ("check", WaitKind::External, &json!({})));
    call.call_id.clone()
}

fn pass(stage: &Stage) {
    say(stage, &verification(stage), json!("All tests pass.")).unwrap();
}

fn fail(stage: &Stage) {
    reply(stage, &verification(stage), CallAnswer::Failure("One test fails.".into())).unwrap();
}

/// The reply and the fault of the turn, after it has ended as usual.
fn ended(stage: &Stage) -> (String, Option<Verification>) {
    stage.settle();
    stage.check();
    let end = stage.end("t1");
    assert_eq!((end.status, end.stop_reason), (TurnStatus::Completed, StopReason::End));
    (end.reply.unwrap().text, end.verification)
}

/// The names of the turn's calls.
fn calls(stage: &Stage) -> Vec<String> {
    let started = stage.records().into_iter().filter(|record| record["type"] == "tool.started");
    started.map(|record| record["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_turn_that_has_changed_files_ends_after_a_verification_with_what_the_model_said() {
    let (stage, models) = begin(vec![vec![write("a.txt")], vec![Part::text("Done.")]]);
    pass(&stage);
    assert_eq!(ended(&stage), ("Done.".into(), None));
    assert_eq!(calls(&stage), ["write_file", "check"]);
    assert_eq!((stage.end("t1").steps, models.requests().len()), (2, 2));
    // The call belongs to the model's message, as providers require.
    let messages = stage.session().messages();
    let parts: Vec<_> = messages.iter().map(|message| (message.role, message.parts.len())).collect();
    let (assistant, tool) = (Role::Assistant, Role::Tool);
    assert_eq!(parts, [(Role::User, 1), (assistant, 1), (tool, 1), (assistant, 2), (tool, 1)]);
}

#[test]
fn the_model_repairs_what_fails() {
    let steps =
        vec![vec![write("a")], vec![Part::text("Done.")], vec![write("b")], vec![Part::text("Repaired.")]];
    let (stage, models) = begin(steps);
    fail(&stage);
    pass(&stage);
    assert_eq!(ended(&stage), ("Repaired.".into(), None));
    assert_eq!(calls(&stage), ["write_file", "check", "write_file", "check"]);
    let third = &models.requests()[2];
    let Part::ToolResult { outcome, .. } = &third.messages.last().unwrap().parts[0] else {
        panic!("{third:?}")
    };
    assert_eq!(*outcome, ToolOutcome::failure("One test fails."));
}

#[test]
fn the_number_of_verifications_is_limited() {
    let steps = (0..4).flat_map(|step| {
        let path = format!("{step}.txt");
        [vec![write(&path)], vec![Part::text(format!("Done {step}."))]]
    });
    let (stage, _) = begin(steps.collect());
    fail(&stage);
    fail(&stage);
    // The last change is not verified any more.
    assert_eq!(ended(&stage), ("Done 2.".into(), Some(Verification::Failed)));
    assert_eq!(calls(&stage).iter().filter(|name| *name == "check").count(), 2);
}

#[test]
fn a_model_that_repairs_nothing_is_not_verified_again() {
    let steps = vec![vec![write("a")], vec![Part::text("Done.")], vec![Part::text("I cannot repair this.")]];
    let (stage, _) = begin(steps);
    fail(&stage);
    assert_eq!(ended(&stage), ("I cannot repair this.".into(), Some(Verification::Failed)));
}

#[test]
fn a_reply_is_kept_when_nothing_follows_a_failed_verification() {
    let steps = || vec![vec![write("a")], vec![Part::text("Done.")]];
    let silent = (0..4).map(|_| Vec::new());
    let (silent, _) = begin(steps().into_iter().chain(silent).collect());
    fail(&silent);
    assert_eq!(ended(&silent), ("Done.".into(), Some(Verification::Failed)));

    let (over, _) = stage(steps());
    let budget = BudgetPatch { max_tokens: Some(5), ..BudgetPatch::default() };
    over.post_with("t1", "go", budget, TurnOptions::default());
    fail(&over);
    over.settle();
    over.check();
    let end = over.end("t1");
    assert_eq!((end.stop_reason, end.reply.unwrap().text), (StopReason::Tokens, "Done.".to_owned()));
    assert_eq!(end.verification, Some(Verification::Failed));
}

#[test]
fn a_command_that_fails_may_have_changed_files() {
    let run = json!({"name": "run", "description": "Runs.", "effect": "destructive", "category": "execute"});
    let run = Rc::new(ExternalTool::new(serde_json::from_value(run).unwrap()).unwrap());
    let steps = vec![vec![call("r", "run", json!({}))], vec![Part::text("Done.")]];
    let (stage, _) =
        staged(steps, move |builder| verifying(builder).dyn_tool(check()).dyn_tool(Rc::clone(&run) as Rc<_>));
    stage.permit(|own| {
        own.categories.insert(Category::Execute, Policy::Allow);
    });
    stage.post("t1", "go");
    stage.settle_waiting();
    reply(&stage, &CallId::from("r"), CallAnswer::Failure("It ran out of time.".into())).unwrap();
    pass(&stage);
    assert_eq!(ended(&stage), ("Done.".into(), None));
}

#[test]
fn a_turn_that_a_critique_ends_is_verified() {
    let script = |request: &ModelRequest| {
        let said = match step_of(request) {
            _ if request.tail.contains("Look back") => Part::text("STOP, it is done."),
            0 => write("a"),
            _ => Part::text("Done."),
        };
        answer(vec![said])
    };
    let (stage, _) = Stage::scripted(script, |builder| {
        let verify = Some(Verify { tool: "check".into(), attempts: 2 });
        let settings = Settings { verify, think: Thinking::Low, reflect_every: 1, ..Settings::default() };
        builder.settings(settings).dyn_tool(check())
    });
    stage.host().create(meta(stage.host().now())).unwrap();
    stage.post("t1", "go");
    pass(&stage);
    assert_eq!(ended(&stage), ("Done.".into(), None));
}

#[test]
fn the_models_own_verification_counts() {
    let steps = vec![vec![write("a")], vec![call("own", "check", json!({}))], vec![Part::text("Done.")]];
    let (stage, _) = begin(steps.clone());
    pass(&stage);
    assert_eq!(ended(&stage), ("Done.".into(), None));
    assert_eq!(calls(&stage), ["write_file", "check"]);
    let (stage, _) = begin(steps);
    fail(&stage);
    assert_eq!(ended(&stage), ("Done.".into(), Some(Verification::Failed)));
}

#[test]
fn a_turn_without_changes_is_not_verified() {
    let read = || call("r", "read_it", json!({"key": "a"}));
    let failed = || call("f", "edit_file", json!({"path": "none", "old": "a", "new": "b"}));
    let saved = || call("m", "memory_save", json!({"text": "The user likes tests."}));
    for parts in [vec![], vec![read()], vec![failed()], vec![saved()]] {
        let steps = [parts, vec![Part::text("Done.")]].into_iter().filter(|step| !step.is_empty());
        let (stage, _) = begin(steps.collect());
        assert_eq!(ended(&stage), ("Done.".into(), None));
    }
}

#[test]
fn without_the_tool_nothing_is_verified() {
    let steps = || vec![vec![write("a")], vec![Part::text("Done.")]];
    let (absent, _) = staged(steps(), verifying);
    let (off, _) = staged(steps(), |builder| builder.dyn_tool(check()));
    let (denied, _) = stage(steps());
    denied.permit(|own| {
        own.tools.insert("check".into(), Policy::Deny);
    });
    for stage in [absent, off, denied] {
        stage.post("t1", "go");
        assert_eq!(ended(&stage), ("Done.".into(), None));
        assert_eq!(calls(&stage), ["write_file"]);
    }
    let (hidden, _) = stage(steps());
    let options = TurnOptions { tools: Some(vec!["write_file".into()]), ..TurnOptions::default() };
    hidden.post_with("t1", "go", BudgetPatch::default(), options);
    assert_eq!(ended(&hidden), ("Done.".into(), None));
}

#[test]
fn a_verification_that_is_denied_ends_the_turn() {
    let steps = || vec![vec![write("a")], vec![Part::text("Done.")]];
    let (declined, _) = stage(steps());
    declined.permit(|own| {
        own.categories.insert(Category::Execute, Policy::Ask);
    });
    declined.post("t1", "go");
    declined.settle_waiting();
    let pending = declined.session().pending().unwrap();
    assert_eq!((pending[0].kind, pending.len()), (WaitKind::Approval, 1));
    declined
        .host()
        .decide(&declined.session(), &pending[0].call_id, ruling(Decision::Decline), Default::default())
        .unwrap();
    assert_eq!(ended(&declined), ("Done.".into(), Some(Verification::NotRun)));

    let (over, _) = stage(steps());
    let budget = BudgetPatch { max_tool_calls: Some(1), ..BudgetPatch::default() };
    over.post_with("t1", "go", budget, TurnOptions::default());
    assert_eq!(ended(&over), ("Done.".into(), Some(Verification::NotRun)));
    assert_eq!(over.outcomes("t1"), ["result", "budget"]);
}

#[test]
fn an_aborted_verification_is_not_one() {
    let (stage, _) = begin(vec![vec![write("a")], vec![Part::text("Done.")]]);
    verification(&stage);
    stage.host().abort(&stage.session(), Vec::new()).unwrap();
    stage.settle();
    let end = stage.end("t1");
    assert_eq!((end.status, end.verification), (TurnStatus::Canceled, Some(Verification::NotRun)));
}

#[test]
fn the_reply_keeps_its_output_and_its_sources() {
    let (stage, _) = stage(vec![vec![write("a")], vec![Part::text("{\"done\": true}")]]);
    let output_schema = Some(json!({"type": "object", "required": ["done"]}));
    stage.post_with(
        "t1",
        "go",
        BudgetPatch::default(),
        TurnOptions { output_schema, ..TurnOptions::default() },
    );
    pass(&stage);
    assert_eq!(stage.end("t1").reply.unwrap().output, Some(json!({"done": true})));

    let cite = || call("c", "cite", json!({"local": 1, "web": 1}));
    let (stage, _) = staged(vec![vec![write("a"), cite()], vec![Part::text("Done.")]], |builder| {
        verifying(builder).dyn_tool(check()).tool(Cite)
    });
    stage.post("t1", "go");
    pass(&stage);
    let end = stage.end("t1");
    let text = end.reply.unwrap().text;
    assert_eq!((end.citations.len(), text.matches("Sources").count()), (2, 1), "{text}");
}

/// A tool of the server that finds a fault.
struct Check;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArgs {}

impl Tool for Check {
    type Args = NoArgs;
    type Output = String;
    const NAME: &'static str = "check";
    const DESCRIPTION: &'static str = "Checks.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Execute;

    async fn run(&self, _args: NoArgs, _cx: ToolContext) -> Result<String, ToolError> {
        Err(ToolError::new("One test fails."))
    }
}

#[test]
fn a_crash_after_any_commit_changes_nothing() {
    let steps = || {
        vec![
            vec![write("a")],
            vec![Part::text("Done.")],
            vec![write("b")],
            vec![Part::text("Done again.")],
            vec![Part::text("I tried.")],
        ]
    };
    let run = |last: Option<u32>| {
        let (stage, _) = staged(steps(), |builder| verifying(builder).tool(Check));
        let created = stage.store.commits();
        stage.store.die_after(last);
        stage.post("t1", "go");
        if last.is_some() {
            stage.run();
            stage.crash();
            stage.store.die_after(None);
            stage.wake();
        }
        let ended = ended(&stage);
        let outcomes: Vec<Value> = stage
            .records()
            .into_iter()
            .filter(|record| record["type"] == "tool.completed")
            .map(|record| json!([record["name"], record["outcome"]]))
            .collect();
        (ended, outcomes, stage.store.commits() - created)
    };
    let (end, outcomes, commits) = run(None);
    assert_eq!(end, ("I tried.".into(), Some(Verification::Failed)));
    assert_eq!(outcomes.len(), 4);
    for last in 1..commits {
        let (ended, repeated, _) = run(Some(last));
        assert_eq!((ended, repeated), (end.clone(), outcomes.clone()), "after commit {last}");
    }
}
