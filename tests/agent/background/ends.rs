//! Each task ends once, whatever happens to it.

use super::*;
use pretty_assertions::assert_eq;

#[test]
fn a_task_ends_once_wherever_sessions_are_evicted() {
    for (ticks, seconds) in (0..18).flat_map(|ticks| [(ticks, 0), (ticks, 1)]) {
        let stage = stage();
        stage.post("t1", &json!([[spawn(WRITE, seconds), spawn(READ, seconds)]]).to_string());
        for _ in 0..ticks {
            stage.tick(ms(25));
        }
        stage.crash();
        stage.wake();
        let ids: Vec<String> =
            tasks(&stage).iter().map(|task| task["session"].as_str().unwrap().into()).collect();
        ids.iter().for_each(|id| drop(block_on(stage.others.host(id).wake())));
        stage.settle();
        stage.live(ms(30_000));
        stage.check();
        let what = format!("after {ticks} ticks, {seconds} s");
        assert_eq!(ends(&stage).len(), tasks(&stage).len(), "{what}");
        assert!(statuses(&stage).iter().all(|status| status == "completed"), "{what}");
        assert!(stage.runs.borrow().get("a").is_none_or(|runs| *runs == 1), "{what}");
    }
}

#[test]
fn a_status_that_arrives_twice_ends_the_task_once() {
    let stage = stage();
    stage.post("t1", &steps(&[spawn(READ, 0)]));
    stage.settle();
    let task = stage.session().state().subagents.tasks[0].clone();
    let running = ChildStatus::running(task.session, task.call_id);
    let done =
        ChildStatus { text: "early".into(), status: edge_harness::types::TurnStatus::Completed, ..running };
    let send = || block_on(stage.host().child_status(done.clone())).unwrap();
    assert_eq!([send(), send()], [Acknowledgement::Recorded, Acknowledgement::NotWanted]);
    stage.tick(ms(500));
    assert_eq!((ends(&stage).len(), reply(&stage)), (1, json!("early")));
}

#[test]
fn a_canceled_task_keeps_the_partial_text() {
    let stage = stage();
    stage.post("t1", &steps(&[spawn(READ, 0)]));
    stage.settle();
    stage.tick(ms(50));
    let id = tasks(&stage)[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(post(&stage, &format!("/tasks/{id}/cancel"))["canceled"], true);
    stage.run();
    assert_eq!((statuses(&stage), reply(&stage)), (vec!["canceled".into()], json!("half")));
    assert_eq!(post(&stage, &format!("/tasks/{id}/cancel"))["status"], "canceled", "once more");
    assert_eq!(ends(&stage)[0]["type"], "task.canceled");
    let log = stage.others.disk(&child(&stage)).log();
    assert_eq!(log.last().unwrap().kind, "turn.canceled");
    let missing = ask(&stage.host(), request("POST /tasks/trn_x/cancel", "", &json!({})), "s").unwrap_err();
    assert_eq!(missing.code, ErrorCode::NotFound);
}

#[test]
fn the_model_cancels_a_task() {
    let stage = stage();
    // The id of a task follows from its call.
    let id = edge_harness::types::ChildTask::session_of(&"s".into(), &"t1".into(), &"c1.0".into());
    let id = id.replacen("ses_", "trn_", 1);
    let cancel = json!(["task_cancel", {"task_id": id}]);
    let output = json!(["task_output", {"task_id": id}]);
    stage.post("t1", &steps(&[spawn(READ, 0), cancel, output]));
    stage.settle();
    let results = results(&stage, "t1");
    assert_eq!(results[2]["status"], "canceled", "{results:?}");
    assert_eq!(statuses(&stage), ["canceled"]);
    stage.check();
}

#[test]
fn a_task_is_canceled_although_its_child_cannot_be_reached() {
    let stage = stage();
    stage.others.down.set(true);
    stage.post("t1", &steps(&[spawn(WRITE, 0)]));
    stage.settle();
    let id = tasks(&stage)[0]["id"].as_str().unwrap().to_owned();
    post(&stage, &format!("/tasks/{id}/cancel"));
    stage.live(ms(400_000));
    assert_eq!((statuses(&stage), ends(&stage).len()), (vec!["canceled".into()], 1));
    stage.others.down.set(false);
    stage.live(ms(700_000));
    assert_eq!(stage.runs.borrow().len(), 0, "the child never gets the task");
}

#[test]
fn a_task_that_never_reaches_its_child_fails() {
    let stage = stage();
    stage.others.down.set(true);
    stage.post("t1", &steps(&[spawn(WRITE, 0)]));
    stage.settle();
    stage.live(ms(1_000_000));
    let task = tasks(&stage).remove(0);
    assert_eq!(task["status"], "failed");
    assert!(task["error"].as_str().unwrap().starts_with("it could not be reached"), "{task}");
}

#[test]
fn a_task_whose_child_is_gone_fails() {
    let stage = stage();
    stage.post("t1", &steps(&[spawn(WRITE, 0)]));
    stage.settle();
    stage.tick(ms(50));
    // The object of the child loses everything.
    let id = child(&stage);
    block_on(stage.others.host(&id).erase(&"t".into(), &id.as_str().into())).unwrap();
    // The parent looks for a silent child every ten minutes.
    stage.tick(ms(601_000));
    stage.wake();
    let task = tasks(&stage).remove(0);
    assert_eq!((&task["status"], &task["error"]), (&json!("failed"), &json!("its session was deleted")));
    assert_eq!(ends(&stage).len(), 1);
}

#[test]
fn an_abort_reaches_all_tasks() {
    let stage = stage();
    stage.post("t1", &json!([[spawn(READ, 0), spawn(READ, 0)]]).to_string());
    stage.settle();
    stage.tick(ms(50));
    assert_eq!(post(&stage, "/abort")["aborted"], true);
    stage.run();
    assert_eq!(statuses(&stage), ["canceled", "canceled"]);
    assert_eq!(post(&stage, "/abort")["aborted"], false);
}

#[test]
fn an_abort_is_followed_by_no_turn() {
    let (stage, _) = stage_of(BackgroundTasks::Wake);
    // One task ends during the turn, and the other is canceled.
    let calls = json!([[spawn(READ, 0), spawn(&reads(20), 0)], [["read_it", {"key": "1"}]], [["read_it", {"key": "2"}]]]);
    stage.post("t1", &calls.to_string());
    stage.run();
    (0..3).for_each(|_| stage.tick(ms(100)));
    assert_eq!(post(&stage, "/abort")["aborted"], true);
    stage.live(ms(60_000));
    assert_eq!(stage.kinds().iter().filter(|kind| *kind == "turn.started").count(), 1, "{:?}", stage.kinds());
    assert_eq!(statuses(&stage)[1], "canceled");
}

#[test]
fn an_interrupted_step_keeps_the_task_that_it_has_started() {
    let stage = stage();
    let calls = json!([[spawn(&reads(8), 0), ["ask_user", {"question": "Which?"}]]]);
    stage.post("t1", &calls.to_string());
    stage.settle_waiting();
    stage.tick(ms(50));
    post(&stage, "/abort");
    assert_eq!(results(&stage, "t1")[0]["task_id"], tasks(&stage)[0]["id"]);
    stage.settle();
}

#[test]
fn a_fork_has_no_task_without_an_end() {
    let stage = stage();
    stage.post("t1", &json!([[spawn(READ, 0), spawn(&reads(20), 0)]]).to_string());
    stage.settle();
    stage.tick(ms(500));
    let other = Rc::new(Stage::demo());
    let fork = respond_beside(&stage, &other, &request("POST /fork", "", &json!({}))).unwrap();
    assert_eq!(status(&fork), 201);
    let ended = ends(&other);
    assert_eq!((&ended[0]["type"], &ended[1]["type"]), (&json!("task.completed"), &json!("task.canceled")));
    assert_eq!((tasks(&other), statuses(&stage)), (vec![], vec!["completed".into(), "running".into()]));
}

#[test]
fn an_erasure_reaches_all_tasks() {
    let stage = stage();
    stage.post("t1", &steps(&[spawn(WRITE, 0)]));
    stage.settle();
    let id = child(&stage);
    block_on(stage.host().erase(&"t".into(), &"s".into())).unwrap();
    stage.tick(ms(500));
    assert_eq!(stage.others.disk(&id).log(), []);
    assert!(stage.store.list("").unwrap().is_empty());
}

#[test]
fn rules_that_change_later_apply_to_background_tasks() {
    let stage = stage();
    stage.host().create(meta(stage.host().now())).unwrap();
    stage.permit(|permissions| permissions.tools.extend([("write_it".to_owned(), Policy::Ask)]));
    stage.post("t1", &steps(&[spawn(WRITE, 0)]));
    stage.settle();
    stage.tick(ms(50));
    let task = tasks(&stage).remove(0);
    assert_eq!((&task["status"], &task["pending"][0]["kind"]), (&json!("waiting"), &json!("approval")));
    assert!(stage.kinds().contains(&"task.progress".to_owned()));
    assert_eq!(stage.session().state().status(), SessionStatus::Idle, "the session itself does not wait");
    let patch = json!({"permissions": {"tools": {"write_it": "deny"}}});
    ask(&stage.host(), request("PATCH /v1/sessions/s", "", &patch), "s").unwrap();
    stage.run();
    let id = child(&stage);
    let host = stage.others.host(&id);
    let own = host.open().unwrap().unwrap();
    let pending = task["pending"][0]["call_id"].as_str().unwrap();
    host.decide(&own, &pending.into(), ruling(Decision::Approve), ResolvedBy::default()).unwrap();
    stage.tick(ms(500));
    assert_eq!(stage.runs.borrow().len(), 0, "no approval lifts a denial");
    assert_eq!(statuses(&stage), ["completed"]);
}
