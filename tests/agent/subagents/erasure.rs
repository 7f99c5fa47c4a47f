//! Erasing sessions that have subagents, and subagents themselves.

use super::*;
use edge_harness::ports::directory::SessionKinds;
use pretty_assertions::assert_eq;

#[test]
fn erasing_a_parent_erases_its_children() {
    let stage = stage();
    stage.post("t1", "both:read:x");
    stage.settle();
    let ids = children(&stage);
    block_on(stage.host().erase(&"t".into(), &"s".into())).unwrap();
    for id in ids {
        assert!(!stage.others.disk(&id).exists().unwrap());
    }
    assert!(
        block_on(stage.directory.sessions(SessionKinds::All, &"t".into(), None, None, None, 10))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn children_missing_from_the_directory_are_erased_too() {
    let stage = stage();
    stage.directory.down.set(true);
    stage.post("t1", "delegate:read:x");
    stage.settle();
    let id = child(&stage);
    stage.directory.down.set(false);
    block_on(stage.host().erase(&"t".into(), &"s".into())).unwrap();
    assert!(!stage.others.disk(&id).exists().unwrap());
    // Also one that is created during the erasure.
    let stage = sending("read:x", ms(500));
    stage.others.delay.set(Duration::ZERO);
    let id = child(&stage);
    block_on(stage.host().erase(&"t".into(), &"s".into())).unwrap();
    stage.tick(ms(1_000));
    stage.tick(ms(1_000));
    assert!(!stage.others.disk(&id).exists().unwrap());
}

#[test]
fn children_not_yet_listed_or_created_late_are_erased() {
    let stage = stage();
    stage.directory.down.set(true);
    stage.post("t1", "delegate:read:x");
    stage.tick(ms(50));
    let id = child(&stage);
    stage.directory.down.set(false);
    block_on(stage.host().erase(&"t".into(), &"s".into())).unwrap();
    assert!(!stage.others.disk(&id).exists().unwrap());
    // As if the spawn message had been delayed for long.
    stage.post("t2", "delegate:read:x");
    stage.tick(ms(50));
    let id = child(&stage);
    stage.store.erase().unwrap();
    stage.crash();
    assert!(stage.others.disk(&id).exists().unwrap());
    block_on(stage.others.host(&id).wake()).unwrap();
    (0..10).for_each(|_| stage.tick(ms(100)));
    assert!(!stage.others.disk(&id).exists().unwrap());
}

#[test]
fn a_child_that_died_with_the_start_of_its_task_is_erased_after_its_parent() {
    let stage = sending("read:x", ms(500));
    stage.others.delay.set(Duration::ZERO);
    let id = child(&stage);
    block_on(stage.host().erase(&"t".into(), &"s".into())).unwrap();
    // The task arrives after the erasure. The process ends with the commit of its start.
    let disk = stage.others.disk(&id);
    disk.die_after(Some(1));
    stage.tick(ms(500));
    disk.die_after(None);
    assert_eq!(disk.log().len(), 2);
    stage.tick(ms(20_000));
    block_on(stage.others.host(&id).wake()).unwrap();
    (0..10).for_each(|_| stage.tick(ms(100)));
    assert!(!disk.exists().unwrap());
}

#[test]
fn a_session_acknowledges_no_status_while_it_is_erased() {
    let stage = stage();
    stage.post("t1", "delegate:read:x");
    stage.tick(ms(50));
    let (host, tenant, id) = (stage.host(), "t".into(), "s".into());
    let status = || {
        let status = ChildStatus::not_started("ses_1".into(), "c1".into());
        block_on(host.child_status(status)).map_err(|problem| problem.code)
    };
    stage.others.delay.set(ms(100));
    let mut erased = Box::pin(host.erase(&tenant, &id));
    assert!(erased.as_mut().now_or_never().is_none());
    // A child that is created after the others were erased would otherwise stay.
    assert_eq!(status(), Err(ErrorCode::Unavailable));
    let done = (0..100).find_map(|_| {
        stage.clock.advance(ms(100));
        erased.as_mut().now_or_never()
    });
    assert_eq!(done, Some(Ok(())));
    assert_eq!(status(), Ok(Acknowledgement::NoSession));
}

#[test]
fn an_evicted_session_frees_its_memory_while_a_job_runs() {
    let stage = sending("read:x", ms(1_000));
    let host = Rc::downgrade(&stage.host());
    stage.crash();
    assert!(host.upgrade().is_none());
}

#[test]
fn a_child_with_an_unsent_status_cannot_be_deleted_and_is_counted_once() {
    let stage = stage();
    let id = cut_off(&stage);
    let delete = |stage: &Stage| {
        let mut call = request("DELETE /v1/sessions/s", "", &json!({}));
        call.session = id.as_str().into();
        block_on(session::respond(&stage.others.host(&id), &call)).map(|answer| status(&answer))
    };
    assert_eq!(delete(&stage).unwrap_err().code.as_str(), "subagent_session");
    stage.others.down.set(false);
    let used = session(&stage, &id).1.state().activity.totals.usage.total_tokens;
    // The status and the response to a cancellation are the same.
    let recall = ask(stage.host(), request("POST /abort", "", &json!({})), "s");
    recall.unwrap();
    stage.tick(ms(10_000));
    block_on(stage.others.host(&id).wake()).unwrap();
    stage.settle();
    let updates = stage.records().into_iter().filter(|r| r["type"] == "usage.updated").count();
    assert_eq!(updates, 2, "its own step and the child's");
    assert!(stage.end("t1").usage.total_tokens > used);
    assert_eq!(delete(&stage).unwrap(), 204);
}

#[test]
fn a_task_fails_if_its_session_was_deleted() {
    let stage = ruled("write_it", Policy::Ask);
    stage.post("t1", "delegate:write:a");
    stage.settle_waiting();
    let id = child(&stage);
    // Only a lost disk causes this.
    stage.others.disk(&id).erase().unwrap();
    stage.crash();
    stage.wake();
    stage.settle();
    stage.check();
    assert!(reply(&stage, "t1").contains("its session was deleted"));
}
