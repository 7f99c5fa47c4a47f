//! Memory from messages to `MEMORY.md`, natively: despite failures each fact is added exactly once.

use crate::stage::{NOW, Stage, ms};
use edge_harness::agent::FollowUp;
use edge_harness::follow_ups::MemoryFlush;
use edge_harness::memory::{
    Flush, Memories, MemorySettings,
    consolidation::{Consolidated, LEASE, MAX_MEMORY, MIN_GAP},
    facts::NewFact,
};
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::ports::filesystem::Precondition;
use edge_harness::types::{FilePath, ModelRequest, Owner, Part, PathPrefix, Timestamp};
use futures::{FutureExt, executor::block_on};
use pretty_assertions::assert_eq;
use serde_json::json;
use std::time::Duration;
use std::{cell::RefCell, rc::Rc};

fn owner(user: &str) -> Owner {
    Owner { tenant: "t".into(), agent: "default".into(), user: user.into() }
}

fn fact(n: usize) -> NewFact {
    let (id, text) = (format!("f{n}"), format!("Fact {n}."));
    NewFact { id, text, at: NOW, session: None, speaker: None }
}

/// A model that keeps the file and adds all new facts, even those already in the file; and the requests to
/// it.
fn keeper() -> (Stage, Rc<RefCell<Vec<String>>>) {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let own = Rc::clone(&asked);
    let (stage, _) = Stage::scripted(
        move |request: &ModelRequest| {
            let text = request.messages.iter().map(|message| message.text()).collect::<String>();
            own.borrow_mut().push(text.clone());
            let lines = text.lines().filter(|line| line.starts_with("- "));
            let file: Vec<String> = lines.map(|line| line.replace("2026-11-20 ", "")).collect();
            answer(vec![Part::text(file.join("\n"))])
        },
        |builder| builder,
    );
    (stage, asked)
}

fn memories(stage: &Stage) -> Rc<Memories> {
    stage.memories(MemorySettings::default())
}

fn path(text: &str) -> FilePath {
    FilePath::parse(text).expect("a path")
}

fn memory_file(stage: &Stage, user: &str) -> String {
    block_on(memories(stage).read(&owner(user), &path("MEMORY.md"))).expect("a file")
}

fn backups(stage: &Stage, user: &str) -> Vec<String> {
    let files = stage.workspaces().open(&"t".into(), &"default".into(), &user.into(), None);
    let prefix = PathPrefix::parse("memory/backups/").expect("a prefix");
    let all = block_on(files.list(&prefix, None, 100)).expect("a list");
    all.into_iter().map(|(entry, _)| entry.path.to_string()).collect()
}

#[test]
fn each_fact_is_added_once_despite_crashes() {
    // More facts than one request holds.
    const FACTS: usize = 250;
    let expected: String = (0..FACTS).map(|n| format!("- Fact {n}.\n")).collect();
    let (mut survived, mut twice) = (0, 0);
    for calls in 0.. {
        let (stage, asked) = keeper();
        let own = memories(&stage);
        assert_eq!(block_on(own.learn(&owner("u"), (0..FACTS).map(fact).collect())), Ok(FACTS));
        stage.index.dies_after.set(Some(calls));
        let died = block_on(own.consolidate(&owner("u"))).is_err();
        stage.index.dies_after.set(None);
        stage.index.down.set(false);
        // The next consolidation, after the lease and the pause after a failure have expired.
        stage.clock.advance(LEASE + MIN_GAP);
        block_on(memories(&stage).consolidate_due(10)).expect("what is due");
        assert_eq!(memory_file(&stage, "u"), expected, "crashed after {calls} calls");
        assert!(asked.borrow().len() <= 3, "at most one request is repeated");
        twice += usize::from(asked.borrow().len() == 3);
        stage.clock.advance(MIN_GAP + ms(1));
        assert_eq!(block_on(memories(&stage).consolidate_due(10)).unwrap(), 0, "nothing is due");
        survived += usize::from(!died);
        if survived == 3 {
            // If it crashed between the response and the write.
            return assert!(calls > 10 && (1..calls as usize / 2).contains(&twice), "{twice} of {calls}");
        }
    }
}

#[test]
fn late_and_concurrent_facts_are_consolidated() {
    let (stage, _) = keeper();
    let own = memories(&stage);
    block_on(own.learn(&owner("u"), vec![fact(1)])).expect("learned");
    assert_eq!(block_on(own.consolidate(&owner("u"))).unwrap(), Consolidated::Done(1));
    // An old fact that is stored now.
    let old = NewFact { at: Timestamp(1_000), ..fact(2) };
    block_on(own.learn(&owner("u"), vec![old])).expect("learned");
    assert_eq!(block_on(own.consolidate_due(10)).unwrap(), 0, "too soon after the last one");
    stage.clock.advance(MIN_GAP + ms(1));
    assert_eq!(block_on(own.consolidate_due(10)).unwrap(), 1);
    assert!(memory_file(&stage, "u").contains("Fact 2."));
}

#[test]
fn a_memory_that_is_erased_during_its_consolidation_is_busy() {
    let own: Rc<RefCell<Option<Rc<Memories>>>> = Rc::default();
    let erased = Rc::clone(&own);
    let (stage, _) = Stage::scripted(
        move |_: &ModelRequest| {
            let own = erased.borrow().clone().expect("a memory");
            assert_eq!(own.erase(&"t".into(), Some(&"u".into())).now_or_never(), Some(Ok(true)));
            answer(vec![Part::text("- Fact 1.\n")])
        },
        |builder| builder,
    );
    let memories = memories(&stage);
    own.replace(Some(Rc::clone(&memories)));
    block_on(memories.learn(&owner("u"), vec![fact(1)])).expect("learned");
    assert_eq!(block_on(memories.consolidate(&owner("u"))).unwrap(), Consolidated::Busy);
}

#[test]
fn a_concurrent_edit_is_kept() {
    type Edit = Box<dyn Fn()>;
    let edit: Rc<RefCell<Option<Edit>>> = Rc::default();
    let hook = Rc::clone(&edit);
    let (stage, models) = Stage::scripted(
        move |request: &ModelRequest| {
            if let Some(edit) = hook.borrow_mut().take() {
                edit();
            }
            let text = request.messages.iter().map(|message| message.text()).collect::<String>();
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("- ")).collect();
            answer(vec![Part::text(lines.join("\n"))])
        },
        |builder| builder,
    );
    let own = memories(&stage);
    block_on(own.learn(&owner("u"), vec![fact(1)])).expect("learned");
    let files = stage.workspaces();
    *edit.borrow_mut() = Some(Box::new(move || {
        let files = files.open(&"t".into(), &"default".into(), &"u".into(), None);
        let (path, any) = (path("MEMORY.md"), Precondition::Any);
        let written = files.write(&path, "- My own line.\n".into(), &any).now_or_never();
        written.expect("nothing to wait for").expect("written");
    }));
    assert_eq!(block_on(own.consolidate(&owner("u"))).unwrap(), Consolidated::Done(1));
    let file = memory_file(&stage, "u");
    assert!(file.contains("My own line.") && file.contains("Fact 1."), "{file}");
    assert_eq!(models.requests().len(), 2, "the request was repeated with the edited file");
}

#[test]
fn a_rewrite_is_bounded_backed_up_and_never_empty() {
    let say = Rc::new(RefCell::new(String::new()));
    let own = Rc::clone(&say);
    let (stage, _) =
        Stage::scripted(move |_| answer(vec![Part::text(own.borrow().clone())]), |builder| builder);
    let own = memories(&stage);
    let step = |n: usize, text: &str| {
        stage.clock.advance(ms(1_000));
        *say.borrow_mut() = text.to_owned();
        block_on(own.learn(&owner("u"), vec![fact(n)])).expect("learned");
        block_on(own.consolidate(&owner("u")))
    };
    assert_eq!(step(0, &"- long line of facts\n".repeat(2_000)).unwrap(), Consolidated::Done(1));
    assert!(memory_file(&stage, "u").len() <= MAX_MEMORY);
    let whole = memory_file(&stage, "u");
    for n in 1..30 {
        assert_eq!(step(n, &format!("{whole}- {n}\n")[21..]).unwrap(), Consolidated::Done(1));
    }
    let kept = || backups(&stage, "u").into_iter().filter(|path| path.contains("/kept/")).collect::<Vec<_>>();
    assert_eq!(backups(&stage, "u").len() - kept().len(), 20, "only the newest");
    assert_eq!(kept().len(), 1, "the response that was too large");
    let before = memory_file(&stage, "u");
    assert_eq!(step(30, "- short\n").unwrap(), Consolidated::Done(1));
    let last = kept().pop().expect("a file that lost more than half is kept permanently");
    assert_eq!(block_on(own.read(&owner("u"), &path(&last))).as_deref(), Ok(before.as_str()));
    // An empty response is not written, and the facts stay due.
    assert!(step(31, " \n```\n```").is_err());
    assert_eq!(memory_file(&stage, "u"), "- short\n");
    *say.borrow_mut() = "- short\n- Fact 31.\n".to_owned();
    assert_eq!(block_on(own.consolidate(&owner("u"))).unwrap(), Consolidated::Done(1));
}

#[test]
fn each_user_is_throttled_separately_across_evictions() {
    let flush = |stage: &Stage| {
        let flush = Flush::Every(ms(60_000));
        stage.memories(MemorySettings { flush, ..MemorySettings::default() })
    };
    let stage = Stage::demo();
    let wait = |user: &str| block_on(flush(&stage).claim_flush(&owner(user), ms(60_000))).expect("an index");
    assert_eq!(wait("ann"), None);
    assert_eq!(wait("s"), None, "a user named like the session");
    assert_eq!(wait("bob"), None);
    stage.crash();
    assert_eq!(wait("ann"), Some(NOW + ms(60_000)));
    stage.clock.advance(ms(60_000));
    assert_eq!(wait("ann"), None);
    assert_eq!(
        block_on(flush(&stage).claim_flush(&owner("ann"), Duration::ZERO)).unwrap(),
        None,
        "no wait without a gap"
    );
    assert_eq!(FollowUp::name(&MemoryFlush(flush(&stage))), "memory_flush");
}

#[test]
fn a_repeated_fact_is_stored_once() {
    let stage = Stage::demo();
    stage.flush.set(Flush::default());
    stage.crash();
    for (turn, said) in
        [("t1", "My name is Ann."), ("t2", "As I said: hello.\nMy name is Ann."), ("t3", "I prefer tea.")]
    {
        stage.post(turn, said);
        stage.settle();
        assert!(
            !stage.kinds().contains(&"memory.flushed".to_owned()) || turn != "t1",
            "not on the reply's path"
        );
        stage.live(ms(5_000));
    }
    let log = block_on(memories(&stage).day(&owner("u"), "2026-11-20")).expect("an index").expect("a log");
    assert_eq!(log, "# 2026-11-20\n\n- 12:00 The user's name is Ann.\n- 12:00 The user prefers tea.\n");
    assert_eq!(stage.kinds().iter().filter(|kind| *kind == "memory.flushed").count(), 2);
    stage.check();
}

#[test]
fn a_search_finds_what_was_said_a_moment_ago() {
    let script = |request: &ModelRequest| {
        let said = request.messages.last().map(|message| message.text()).unwrap_or_default();
        match said.split_once(' ') {
            _ if request.tools.is_empty() => answer(vec![Part::text("- The code is swordfish.")]),
            Some((name @ ("memory_search" | "session_search"), query)) => {
                answer(vec![call("c", name, json!({ "query": query }))])
            }
            _ => answer(vec![Part::text("Noted.")]),
        }
    };
    for tool in ["session_search", "memory_search"] {
        let (stage, _) = Stage::scripted(script, |builder| builder);
        stage.flush.set(Flush::default());
        stage.crash();
        stage.post("t1", "The code is swordfish.");
        stage.settle();
        stage.post("t2", &format!("{tool} swordfish"));
        stage.settle();
        let records = stage.records();
        let found = records.iter().find(|record| record["type"] == "tool.completed").expect("a result");
        assert!(found["result"].as_str().unwrap().contains("swordfish"), "{tool}: {found}");
    }
}
