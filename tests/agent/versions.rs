//! Sessions keep the version of their agent until a client moves them.

use crate::http::{ask, request, respond, whole};
use crate::questions::say;
use crate::stage::{NOW, Stage, standard};
use async_trait::async_trait;
use edge_harness::agent::{AgentVersions, HarnessAgent, Settings, ToolFilter};
use edge_harness::platform::in_memory::{
    ManualClock, MemoryLog, ScriptedModels, SeededEntropy,
    models::{answer, call},
};
use edge_harness::ports::Models;
use edge_harness::standard::{Standard, builder};
use edge_harness::types::{
    AgentId, AgentRef, AgentVersion, ErrorCode, ModelRequest, Owner, Part, Policy, Problem, Rules, Scope,
    Scopes, SubagentKind, TenantId, TenantLimits, UserId,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

/// Versions that are built from settings. Version N says `version N` in its instructions.
struct Versions {
    active: Cell<u32>,
    is_gone: Cell<bool>,
    is_down: Cell<bool>,
    loads: Cell<u32>,
    settings: RefCell<BTreeMap<u32, (Settings, ToolFilter)>>,
    models: Rc<ScriptedModels>,
}

#[async_trait(?Send)]
impl AgentVersions for Versions {
    async fn active(&self, _: &TenantId, _: &AgentId) -> Result<AgentVersion, Problem> {
        match self.is_gone.get() {
            true => Err(Problem::new(ErrorCode::AgentGone, "deleted")),
            false => Ok(AgentVersion(self.active.get())),
        }
    }

    async fn is_gone(&self, _: &TenantId, _: &AgentId) -> Result<bool, Problem> {
        Ok(self.is_gone.get())
    }

    async fn version(&self, _: &TenantId, _: &UserId, of: &AgentRef) -> Result<Rc<HarnessAgent>, Problem> {
        let AgentRef { version, .. } = of;
        if self.is_down.get() {
            return Err(Problem::unavailable("down", "down"));
        }
        self.loads.set(self.loads.get() + 1);
        let models: Rc<dyn Models> = self.models.clone();
        let parts = standard(
            models,
            &ManualClock::at(NOW),
            &Rc::<SeededEntropy>::default(),
            &Rc::<MemoryLog>::default(),
        );
        let (settings, tools) = self.settings.borrow().get(&version.0).cloned().unwrap_or_default();
        let parts = Standard { settings, instructions: Some(format!("version {version}")), ..parts };
        Ok(Rc::new(builder(parts).only_tools(tools).build().expect("an agent")))
    }

    async fn version_of_session(
        &self,
        tenant: &TenantId,
        user: &UserId,
        of: &AgentRef,
    ) -> Result<Rc<HarnessAgent>, Problem> {
        self.version(tenant, user, of).await
    }
}

/// A stage with versions 1 and 2, of which 1 is active. The model replies with the version in its instructions.
fn stage(script: impl Fn(&ModelRequest) -> Vec<Part> + 'static) -> (Stage, Rc<Versions>) {
    let script = move |request: &ModelRequest| answer(script(request));
    let (stage, models) = Stage::scripted(script, |builder| builder);
    let versions = Rc::new(Versions {
        active: Cell::new(1),
        is_gone: Cell::default(),
        is_down: Cell::default(),
        loads: Cell::default(),
        settings: RefCell::default(),
        models,
    });
    stage.versions.replace(Some(versions.clone()));
    stage.crash();
    (stage, versions)
}

fn version_of(request: &ModelRequest) -> String {
    request.system.lines().next().unwrap_or_default().to_owned()
}

fn echo_version(request: &ModelRequest) -> Vec<Part> {
    vec![Part::text(version_of(request))]
}

fn post(stage: &Stage, body: &Value) -> Result<(), Problem> {
    let headers = [("prefer", "respond-async")];
    respond(stage, &request("POST /messages", "", &headers, body.to_string())).map(drop)
}

fn send(stage: &Stage, content: &str) -> Result<(), Problem> {
    post(stage, &json!({"content": content}))?;
    stage.settle();
    Ok(())
}

fn reply(stage: &Stage, content: &str) -> String {
    send(stage, content).expect("accepted");
    let last = stage.session().conversation(0, 100).unwrap().0.pop().expect("a message");
    last.text()
}

#[test]
fn a_session_keeps_its_version_and_moves_on_request() {
    let (stage, versions) = stage(echo_version);
    assert_eq!(reply(&stage, "a"), "version 1");
    versions.active.set(2);
    assert_eq!(reply(&stage, "b"), "version 1");
    // Also in a new process.
    stage.crash();
    assert_eq!(reply(&stage, "c"), "version 1");
    assert_eq!(versions.loads.get(), 2);
    let moved = ask(&stage, "PATCH ", "", &json!({"agent_version": "latest"})).expect("moved");
    assert_eq!(whole(moved)["agent_version"], 2);
    assert_eq!(reply(&stage, "d"), "version 2");
    stage.crash();
    assert_eq!(reply(&stage, "e"), "version 2");
    ask(&stage, "PATCH ", "", &json!({"agent_version": 1})).expect("moved");
    assert_eq!(reply(&stage, "f"), "version 1");
    let changes: Vec<_> =
        stage.records().into_iter().filter(|record| record["type"] == "agent.changed").collect();
    let changes: Vec<_> = changes.iter().map(|record| (&record["version"], &record["previous"])).collect();
    assert_eq!(changes, [(&json!(2), &json!(1)), (&json!(1), &json!(2))]);
}

#[test]
fn a_new_session_never_runs_the_agent_of_another_user() {
    let (stage, _) = stage(echo_version);
    let host = stage.host();
    let owner = |user: &str| Owner { tenant: "t".into(), agent: "default".into(), user: user.into() };
    let load = |of: &Owner| block_on(host.load_new_agent(&of.tenant, &of.user, &of.agent)).expect("loaded");
    let (ann, bob) = (owner("ann"), owner("bob"));
    load(&ann);
    assert!(host.loaded_version(&ann).is_ok());
    // A concurrent request for the same session.
    load(&bob);
    assert_eq!(host.loaded_version(&ann).expect_err("refused").code, ErrorCode::Unavailable);
    assert!(host.loaded_version(&bob).is_ok());
}

#[test]
fn only_an_administrator_chooses_another_version_than_that_of_new_sessions() {
    let (stage, versions) = stage(echo_version);
    assert_eq!(reply(&stage, "a"), "version 1");
    let patch = |version: Value| {
        let mut asked = request("PATCH ", "", &[], json!({ "agent_version": version }).to_string());
        asked.principal.scopes = Scopes::new(vec![Scope::Chat, Scope::Read]);
        respond(&stage, &asked)
    };
    versions.active.set(2);
    for version in [1, 2, 3] {
        assert_eq!(patch(json!(version)).err().expect("refused").code, ErrorCode::MissingScope);
    }
    assert_eq!(whole(patch(json!("latest")).expect("moved"))["agent_version"], 2);
}

#[test]
fn a_new_session_gets_the_active_version_with_its_defaults() {
    let (stage, versions) = stage(echo_version);
    let mut settings = Settings { model: Some("scripted/other".into()), ..Settings::default() };
    settings.budget.max_steps = Some(3);
    settings.ceilings = TenantLimits { max_tool_calls: Some(5), ..TenantLimits::default() };
    settings.initial_state.insert("step".into(), json!(7));
    versions.settings.borrow_mut().insert(2, (settings, ToolFilter::default()));
    versions.active.set(2);
    send(&stage, "a").expect("accepted");
    let made = whole(ask(&stage, "GET ", "", &json!({})).expect("a session"));
    assert_eq!((&made["agent_version"], &made["budget"]["max_steps"]), (&json!(2), &json!(3)));
    assert_eq!(made["state"]["step"], 7);
    let requests = versions.models.requests();
    assert_eq!(requests.last().unwrap().model, "other");
    let turn = stage.records().into_iter().find(|record| record["type"] == "turn.started").unwrap();
    let shown = whole(
        ask(&stage, &format!("GET /turns/{}", turn["turn"].as_str().unwrap()), "", &json!({})).unwrap(),
    );
    assert_eq!((&shown["budget"]["max_steps"], &shown["budget"]["max_tool_calls"]), (&json!(3), &json!(5)));
    // A message cannot exceed the agent's limits.
    let over = json!({"content": "b", "budget": {"max_tool_calls": 6}});
    assert_eq!(post(&stage, &over).expect_err("accepted").code, ErrorCode::ValidationFailed);
}

#[test]
fn a_running_turn_is_not_moved() {
    let wait = json!({"question": "Which?"});
    let (stage, versions) = stage(move |request| match request.messages.len() {
        1 => vec![call("q", "ask_user", wait.clone())],
        _ => vec![Part::text("done")],
    });
    post(&stage, &json!({"content": "a"})).expect("accepted");
    stage.settle_waiting();
    versions.active.set(2);
    let refused = ask(&stage, "PATCH ", "", &json!({"agent_version": "latest"})).err().expect("refused");
    assert_eq!(refused.code, ErrorCode::SessionBusy);
    stage.crash();
    stage.wake();
    say(&stage, "q", json!("Either")).expect("answered");
    stage.settle();
    let seen: Vec<_> = versions.models.requests().iter().map(version_of).collect();
    assert_eq!(seen, ["version 1", "version 1"]);
    ask(&stage, "PATCH ", "", &json!({"agent_version": "latest"})).expect("moved");
}

#[test]
fn the_filter_and_the_rules_of_a_version_hold() {
    let write = |_: &ModelRequest| {
        vec![
            call("w", "write_file", json!({"path": "a.md", "content": "x"})),
            call("r", "read_file", json!({"path": "a.md"})),
        ]
    };
    let (stage, versions) =
        stage(
            move |request| if request.messages.len() < 3 { write(request) } else { vec![Part::text("done")] },
        );
    let deny = ToolFilter { deny: vec!["read_file".into()], ..ToolFilter::default() };
    let denies = Rules { tools: BTreeMap::from([("write_file".into(), Policy::Deny)]), ..Rules::default() };
    let settings = Settings { own_permissions: denies, ..Settings::default() };
    versions.settings.borrow_mut().insert(1, (settings, deny));
    send(&stage, "go").expect("accepted");
    let turn = stage.records().into_iter().find(|record| record["type"] == "turn.started").unwrap();
    assert_eq!(stage.outcomes(turn["turn"].as_str().unwrap()), ["permission", "unknown_tool"]);
    let offered =
        versions.models.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    assert!(!offered.contains(&"read_file".into()) && !offered.contains(&"write_file".into()), "{offered:?}");
    assert!(offered.contains(&"edit_file".into()));
}

#[test]
fn a_session_of_a_deleted_agent_can_only_be_read() {
    let (stage, versions) = stage(echo_version);
    assert_eq!(reply(&stage, "a"), "version 1");
    versions.is_gone.set(true);
    let refused = post(&stage, &json!({"content": "b"})).expect_err("accepted");
    assert_eq!(refused.code, ErrorCode::AgentGone);
    assert_eq!(
        ask(&stage, "POST /steer", "", &json!({"content": "b"})).err().expect("refused").code,
        ErrorCode::AgentGone
    );
    assert_eq!(
        whole(ask(&stage, "GET /messages", "", &json!({})).unwrap())["data"].as_array().unwrap().len(),
        2
    );
    let other = ask(&stage, "GET ", "", &json!({})).expect("readable");
    assert_eq!(whole(other)["agent"], "default");
}

#[test]
fn a_version_that_cannot_be_loaded_changes_nothing() {
    let (stage, versions) = stage(echo_version);
    assert_eq!(reply(&stage, "a"), "version 1");
    versions.is_down.set(true);
    stage.crash();
    assert_eq!(post(&stage, &json!({"content": "b"})).expect_err("accepted").code, ErrorCode::Unavailable);
    assert!(block_on(stage.host().wake()).is_err());
    versions.is_down.set(false);
    assert_eq!(reply(&stage, "c"), "version 1");
}

#[test]
fn a_subagent_runs_the_version_of_its_parent() {
    let spawn = json!({"agent": "helper", "task": "say it"});
    let (stage, versions) = stage(move |request| {
        let is_child = request.system.contains("You are a subagent");
        match request.messages.len() {
            1 if !is_child => vec![call("s", "subagent", spawn.clone())],
            _ => echo_version(request),
        }
    });
    let kind = SubagentKind { id: "helper".into(), description: "Helps.".into(), ..SubagentKind::default() };
    for version in [1, 2] {
        let settings = Settings { subagents: Some(vec![kind.clone()]), ..Settings::default() };
        versions.settings.borrow_mut().insert(version, (settings, ToolFilter::default()));
    }
    versions.active.set(2);
    send(&stage, "go").expect("accepted");
    let of_child =
        versions.models.requests().into_iter().find(|request| request.system.contains("You are a subagent"));
    assert_eq!(version_of(&of_child.expect("a child")), "version 2");
}
