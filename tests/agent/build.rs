//! Building an agent: which hooks run at which event, and in which order.

use crate::stage::{NOW, standard};
use edge_harness::agent::{
    BuildError, HarnessAgent, HarnessBuilder, Hook, Settings, hook::HookEvent, toolkit::ToolNameError,
};
use edge_harness::platform::in_memory::{ManualClock, ScriptedModels, models::answer};
use edge_harness::standard::builder;
use edge_harness::tools::Echo;
use edge_harness::types::Mode;
use std::rc::Rc;

struct Everywhere(&'static str, i32);

impl Hook for Everywhere {
    fn name(&self) -> &'static str {
        self.0
    }
    fn events(&self) -> &'static [HookEvent] {
        &HookEvent::ALL
    }
    fn priority(&self) -> i32 {
        self.1
    }
}

fn bare() -> HarnessBuilder {
    let models = Rc::new(ScriptedModels::new(|_| answer(Vec::new())));
    builder(standard(models, &ManualClock::at(NOW), &Rc::default(), &Rc::default()))
}

fn names(agent: &HarnessAgent, event: HookEvent) -> Vec<&'static str> {
    agent.hooks().at(event).iter().map(|hook| hook.name()).collect()
}

/// The hooks of the standard agent by event.
#[test]
fn the_standard_agent_has_these_hooks() {
    let agent = bare().build().unwrap();
    let matrix: Vec<_> = HookEvent::ALL.into_iter().map(|event| (event, names(&agent, event))).collect();
    assert_eq!(
        matrix,
        [
            (HookEvent::PreCall, vec![]),
            (HookEvent::PreReasoning, vec!["workspace_tools", "workspace_context", "skills"]),
            (HookEvent::PostReasoning, vec!["agent_trace"]),
            (HookEvent::PreActing, vec![]),
            (HookEvent::PostActing, vec!["agent_trace", "tool_result_eviction"]),
            (
                HookEvent::PostCall,
                vec![
                    "agent_trace",
                    "session_files",
                    "turn_index",
                    "memory_flush",
                    "memory_maintenance",
                    "skill_usage",
                    "context_ahead",
                    "session_persistence"
                ]
            ),
            (
                HookEvent::Error,
                vec![
                    "agent_trace",
                    "turn_index",
                    "memory_flush",
                    "skill_usage",
                    "context_ahead",
                    "session_persistence"
                ]
            ),
        ]
    );
}

#[test]
fn users_hooks_run_before_built_in_ones_and_each_group_by_priority() {
    let agent = bare()
        .hook(Everywhere("late", 10_000))
        .hook(Everywhere("first of two", 5))
        .hook(Everywhere("second of two", 5))
        .hook(Everywhere("early", -1))
        .build()
        .unwrap();
    let own = ["early", "first of two", "second of two", "late"];
    for event in HookEvent::ALL {
        let built_in = names(&bare().build().unwrap(), event);
        assert_eq!(names(&agent, event), [&own[..], &built_in].concat(), "{event:?}");
    }
}

#[test]
fn hooks_are_removed_by_name() {
    let agent = bare()
        .hook(Everywhere("mine", 0))
        .without_hook("agent_trace")
        .without_hook("mine")
        .without_hook("unknown")
        .build()
        .unwrap();
    assert_eq!(names(&agent, HookEvent::PostReasoning), [""; 0]);
    let work =
        ["session_files", "turn_index", "memory_flush", "memory_maintenance", "skill_usage", "context_ahead"];
    assert_eq!(names(&agent, HookEvent::PostCall), [&work[..], &["session_persistence"]].concat());
    // A user's hook replaces the built-in one.
    let agent = bare().without_hook("agent_trace").without_hook("session_persistence").build().unwrap();
    assert_eq!(names(&agent, HookEvent::PostCall), work);
}

#[test]
fn names_must_not_clash() {
    let twice = bare().hook(Everywhere("agent_trace", 0)).build().err();
    assert_eq!(twice, Some(BuildError::HookName("agent_trace")));
    assert_eq!(bare().tool(Echo).build().err(), Some(BuildError::ToolName(ToolNameError("echo".into()))));
    assert_eq!(HarnessAgent::builder().build().err(), Some(BuildError::Missing("models")));
}

#[test]
fn modes_must_be_consistent_and_name_existing_tools() {
    let built = |modes: Vec<Mode>| {
        let agent = bare().settings(Settings { modes, ..Settings::default() }).build();
        agent.map(drop).map_err(|error| error.to_string())
    };
    let mode = |id: &str| Mode { id: id.into(), ..Mode::default() };
    let echo = || Some(vec!["echo".to_owned()]);
    assert_eq!(built(vec![]), Ok(()), "an agent may have no modes");
    assert_eq!(built(vec![mode("a"), Mode { tools: echo(), ..mode("b") }]), Ok(()));
    assert_eq!(built(vec![mode("a"), mode("a")]), Err("mode \"a\": another mode has the same id".into()));
    let both = Mode { tools: echo(), additional_tools: echo(), ..mode("a") };
    let expected = "mode \"a\": `tools` and `additional_tools` exclude each other";
    assert_eq!(built(vec![both]), Err(expected.into()));
    for lists in [
        Mode { tools: Some(vec!["ekko".into()]), ..mode("a") },
        Mode { additional_tools: Some(vec!["ekko".into()]), ..mode("a") },
        Mode { available_tools: Some(vec!["echo".into(), "ekko".into()]), ..mode("a") },
    ] {
        let expected = "mode \"a\": it names the tool \"ekko\", which does not exist";
        assert_eq!(built(vec![lists]), Err(expected.into()));
    }
}
