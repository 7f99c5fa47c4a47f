//! Further tasks for subagents, which keep their conversation.

use super::*;
use edge_harness::types::TurnStatus;
use pretty_assertions::assert_eq;

fn named(label: &str, task: &str, timeout_seconds: u64) -> Value {
    let args = json!({"agent_id": "general-purpose", "task": task, "label": label,
        "timeout_seconds": timeout_seconds});
    json!(["agent_spawn", args])
}

fn send(label: &str, message: &str, timeout_seconds: u64) -> Value {
    json!(["agent_send", {"label": label, "message": message, "timeout_seconds": timeout_seconds}])
}

/// What the subagents were asked in each of their requests, oldest first.
fn asked(models: &ScriptedModels) -> Vec<Vec<String>> {
    let theirs =
        models.requests().into_iter().filter(|request| request.system.contains("You are a subagent"));
    let said = |request: ModelRequest| {
        let users = request.messages.iter().filter(|message| message.role == Role::User);
        users.map(|message| message.text()).collect()
    };
    theirs.map(said).collect()
}

fn kinds_of(stage: &Stage, child: &str) -> Vec<String> {
    let log = stage.others.disk(child).log();
    let of_turns = log.iter().map(|record| record.kind.to_string()).filter(|kind| kind.starts_with("turn."));
    of_turns.collect()
}

#[test]
fn a_subagent_that_has_ended_continues_its_conversation() {
    for seconds in [0, 30] {
        let (stage, models) = stage_of(BackgroundTasks::On);
        stage.post("t1", &steps(&[named("reader", READ, seconds)]));
        stage.settle();
        stage.tick(ms(500));
        stage.post("t2", &steps(&[send("reader", WRITE, 30), json!(["agent_list", {}])]));
        stage.settle();
        let results = results(&stage, "t2");
        let child = child(&stage);
        assert_eq!(results[0]["reply"], "done: wrote a", "{results:?}");
        assert_eq!(
            (&results[0]["agent_key"], &results[0]["agent_id"]),
            (&json!(child), &json!("general-purpose"))
        );
        assert_eq!((&results[1][0]["agent_key"], &results[1][0]["label"]), (&json!(child), &json!("reader")));
        assert_eq!(results[1].as_array().unwrap().len(), 1, "the same subagent");
        assert_eq!(asked(&models).last().unwrap()[..], [READ, WRITE]);
        let turns = ["turn.started", "turn.completed", "turn.started", "turn.completed"];
        assert_eq!(kinds_of(&stage, &child), turns);
        stage.check();
        check(&stage.others.disk(&child).log());
    }
}

#[test]
fn a_subagent_that_works_reads_the_message_when_its_task_has_ended() {
    let (stage, models) = stage_of(BackgroundTasks::On);
    stage.post(
        "t1",
        &steps(&[named("reader", &reads(3), 0), send("reader", READ, 0), send("reader", WRITE, 1)]),
    );
    stage.settle();
    let promoted =
        results(&stage, "t1").iter().map(|result| result["timeout_promoted"].clone()).collect::<Vec<_>>();
    assert_eq!(promoted, [false, false, true], "the third call has waited for a second");
    stage.live(ms(3_000));
    assert_eq!(statuses(&stage), ["completed"; 3]);
    assert_eq!(asked(&models).last().unwrap()[..], [&reads(3), READ, WRITE]);
    let ended: Vec<_> = ends(&stage).iter().map(|end| end["session"].clone()).collect();
    assert_eq!(ended, vec![json!(child(&stage)); 3], "each task has its own end");
    let replies = tasks(&stage)
        .into_iter()
        .map(|task| get(&stage, &format!("/tasks/{}", task["id"].as_str().unwrap()))["reply"].clone());
    assert_eq!(replies.collect::<Vec<_>>(), ["done: read 2", "done: read x", "done: wrote a"]);
    stage.check();
}

#[test]
fn a_further_task_ends_once_wherever_sessions_are_evicted() {
    for (ticks, seconds) in (0..24).flat_map(|ticks| [(ticks, 0), (ticks, 1)]) {
        let (stage, models) = stage_of(BackgroundTasks::On);
        stage.post("t1", &steps(&[named("w", READ, seconds), send("w", WRITE, seconds)]));
        (0..ticks).for_each(|_| stage.tick(ms(25)));
        stage.crash();
        stage.wake();
        let id = child(&stage);
        drop(block_on(stage.others.host(&id).wake()));
        stage.settle();
        stage.live(ms(30_000));
        stage.check();
        let what = format!("after {ticks} ticks, {seconds} s");
        assert!(statuses(&stage).iter().all(|status| status == "completed"), "{what}");
        assert_eq!(ends(&stage).len(), tasks(&stage).len(), "{what}");
        assert_eq!(stage.runs.borrow().get("a"), Some(&1), "{what}");
        assert_eq!(asked(&models).last().unwrap()[..], [READ, WRITE], "{what}");
    }
}

#[test]
fn an_unknown_receiver_is_an_error() {
    let stage = stage();
    let to = |key: &str| json!(["agent_send", {"agent_key": key, "message": READ}]);
    stage.post(
        "t1",
        &steps(&[named("r", READ, 30), named("r", READ, 30), send("r", READ, 0), to("s"), to("ses_x")]),
    );
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["result", "result", "failure", "failure", "failure"]);
    let reasons = results(&stage, "t1");
    assert_eq!(reasons[2], "several of your subagents are called \"r\"; use `agent_key`");
    assert_eq!(reasons[3], "you have no subagent \"s\"; agent_list returns those that you have");
    assert_eq!(reasons[4], "you have no subagent \"ses_x\"; agent_list returns those that you have");
    stage.check();
}

#[test]
fn messages_count_among_the_subagents_at_a_time() {
    let stage = stage();
    stage.max_subagents.set(2);
    stage.crash();
    stage.post("t1", &steps(&[named("r", READ, 0), send("r", READ, 0), send("r", READ, 0)]));
    stage.settle();
    assert_eq!(stage.outcomes("t1"), ["result", "result", "budget"]);
}

#[test]
fn a_subagent_sends_no_messages() {
    let stage = stage();
    stage.post("t1", &steps(&[named("r", &steps(&[send("r", READ, 0)]), 30)]));
    stage.settle();
    let denied = "done: Not run: a subagent cannot use this tool: do the task yourself";
    assert_eq!(results(&stage, "t1")[0]["reply"], denied);
}

#[test]
fn a_canceled_message_never_reaches_the_subagent() {
    let (stage, models) = stage_of(BackgroundTasks::On);
    stage.post("t1", &steps(&[named("w", &reads(4), 0), send("w", WRITE, 0)]));
    stage.settle();
    let id = tasks(&stage)[1]["id"].as_str().unwrap().to_owned();
    post(&stage, &format!("/tasks/{id}/cancel"));
    stage.live(ms(3_000));
    assert_eq!(statuses(&stage), ["completed", "canceled"]);
    assert!(asked(&models).iter().all(|asked| asked[..] == [reads(4)]));
    assert_eq!(stage.runs.borrow().get("a"), None);
    stage.check();
}

#[test]
fn a_message_is_read_after_the_task_before_it_was_canceled() {
    let stage = stage();
    stage.post("t1", &steps(&[named("w", &reads(40), 0), send("w", WRITE, 0)]));
    stage.settle();
    let id = tasks(&stage)[0]["id"].as_str().unwrap().to_owned();
    post(&stage, &format!("/tasks/{id}/cancel"));
    stage.live(ms(3_000));
    assert_eq!(statuses(&stage), ["canceled", "completed"]);
    let turns = ["turn.started", "turn.canceled", "turn.started", "turn.completed"];
    assert_eq!(kinds_of(&stage, &child(&stage)), turns);
    stage.check();
}

#[test]
fn an_abort_ends_all_tasks_of_a_subagent() {
    let stage = stage();
    stage.post("t1", &steps(&[named("w", &reads(40), 0), send("w", WRITE, 30)]));
    stage.run();
    stage.tick(ms(400));
    post(&stage, "/abort");
    stage.live(ms(3_000));
    assert_eq!((statuses(&stage), ends(&stage).len()), (vec!["canceled".to_owned()], 1));
    assert_eq!(stage.end("t1").status, TurnStatus::Canceled);
    assert_eq!(stage.runs.borrow().get("a"), None);
    stage.check();
}

#[test]
fn the_rules_of_the_parent_hold_for_a_further_task() {
    let stage = stage();
    stage.post("t1", &steps(&[named("w", READ, 30)]));
    stage.settle();
    stage.permit(|permissions| permissions.tools.extend([("write_it".to_owned(), Policy::Deny)]));
    stage.post("t2", &steps(&[send("w", WRITE, 30)]));
    stage.settle();
    let reply = results(&stage, "t2")[0]["reply"].as_str().unwrap().to_owned();
    assert!(reply.starts_with("done: Not run:"), "{reply}");
    assert_eq!(stage.runs.borrow().get("a"), None);
}

#[test]
fn a_message_to_a_subagent_that_is_gone_fails() {
    let stage = stage();
    stage.post("t1", &steps(&[named("w", READ, 30)]));
    stage.settle();
    let id = child(&stage);
    block_on(stage.others.host(&id).erase(&"t".into(), &id.as_str().into())).unwrap();
    stage.post("t2", &steps(&[send("w", WRITE, 30)]));
    stage.settle();
    assert_eq!(results(&stage, "t2")[0], "the subagent failed: its session was deleted");
    stage.check();
}

#[test]
fn a_message_waits_for_a_subagent_that_cannot_be_reached() {
    let stage = stage();
    stage.post("t1", &steps(&[named("w", READ, 30)]));
    stage.settle();
    stage.others.down.set(true);
    stage.post("t2", &steps(&[send("w", WRITE, 0)]));
    stage.settle();
    stage.live(ms(1_000_000));
    assert_eq!(statuses(&stage), ["running"]);
    stage.others.down.set(false);
    stage.tick(ms(601_000));
    stage.wake();
    stage.live(ms(2_000));
    assert_eq!(
        (statuses(&stage), stage.runs.borrow().get("a").copied()),
        (vec!["completed".into()], Some(1))
    );
    stage.check();
}

#[test]
fn a_delayed_message_about_an_earlier_task_changes_nothing() {
    let stage = stage();
    stage.post("t1", &steps(&[named("w", READ, 30)]));
    stage.settle();
    let id = child(&stage);
    let first = stage.others.host(&id).open().unwrap().unwrap().state().meta.parent.clone().unwrap();
    stage.post("t2", &steps(&[send("w", &reads(10), 0)]));
    stage.settle();
    let host = stage.others.host(&id);
    let late = block_on(async { host.cancel_task(&id.as_str().into(), &first.call_id) }).unwrap();
    assert_eq!(late.status, TurnStatus::Canceled);
    stage.live(ms(5_000));
    assert_eq!(statuses(&stage), ["completed"], "only the earlier task was canceled");
}

#[test]
fn a_fork_works_in_the_background_and_reads_messages() {
    let (stage, models) = stage_of(BackgroundTasks::On);
    stage.post("t1", &steps(&[json!(["read_it", {"key": "y"}])]));
    stage.settle();
    let fork = json!(["agent_spawn", {"agent_id": "general-purpose", "task": READ, "label": "f", "forked": true,
        "timeout_seconds": 0}]);
    let said = steps(&[fork, json!(["read_it", {"key": "z"}])]);
    stage.post("t2", &said);
    stage.settle();
    stage.live(ms(2_000));
    assert_eq!((statuses(&stage), reply(&stage)), (vec!["completed".into()], json!("done: read x")));
    stage.post("t3", &steps(&[send("f", WRITE, 30)]));
    stage.settle();
    assert_eq!(results(&stage, "t3")[0]["reply"], "done: wrote a");
    let of_fork = models.requests().into_iter().rfind(|request| {
        request.messages.iter().any(|message| message.role == Role::User && message.text() == WRITE)
    });
    let users: Vec<_> =
        of_fork.unwrap().messages.iter().filter(|m| m.role == Role::User).map(|m| m.text()).collect();
    let first = steps(&[json!(["read_it", {"key": "y"}])]);
    assert_eq!(users, [&first, &said, READ, WRITE]);
    stage.check();
    check(&stage.others.disk(&child(&stage)).log());
}

#[test]
fn a_canceled_message_stays_canceled_while_an_earlier_one_is_read() {
    let stage = stage();
    stage.post("t1", &steps(&[named("w", &reads(3), 0), send("w", READ, 0), send("w", WRITE, 0)]));
    stage.settle();
    let child = child(&stage);
    let call = tasks(&stage)[2]["call_id"].as_str().unwrap().into();
    // The parent is evicted before it has stored the confirmation.
    stage.others.host(&child).cancel_task(&child.as_str().into(), &call).unwrap();
    stage.live(ms(3_000));
    assert_eq!(statuses(&stage), ["completed", "completed", "canceled"]);
    assert_eq!(stage.runs.borrow().get("a"), None);
    stage.check();
}
