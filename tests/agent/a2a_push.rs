//! Push notifications of A2A.

use crate::a2a::{answers, ask, says, task_of, text};
use crate::stage::{Stage, ms};
use edge_harness::platform::in_memory::models::{answer, call};
use edge_harness::types::{ModelRequest, Part, Policy, Role};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

const URL: &str = "https://hooks.example.com/tasks";

fn stage() -> Stage {
    let script = |request: &ModelRequest| match request.messages.last().map(|last| last.role) {
        Some(Role::Tool) => answer(vec![Part::text("Done")]),
        _ => answer(vec![call("c1", "write_it", json!({"key": "k"}))]),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| {
        own.tools.insert("write_it".into(), Policy::Ask);
    });
    stage
}

/// Sends a message with a webhook for its task, with the secrets `t1` and `pw`.
fn send(stage: &Stage) -> Value {
    let mut params = says(text("write"));
    params["configuration"] = json!({"taskPushNotificationConfig": {
        "url": URL, "token": "t1", "authentication": {"scheme": "Bearer", "credentials": "pw"},
    }});
    task_of(&ask(stage, "SendMessage", &params)).clone()
}

/// The states in the notifications so far.
fn notified(stage: &Stage) -> Vec<String> {
    let bodies = stage.receivers.requests().into_iter().map(|request| request.body.unwrap_or_default());
    let updates = bodies.map(|body| serde_json::from_slice::<Value>(&body).unwrap()["statusUpdate"].take());
    updates.map(|update| update["status"]["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn notifications_are_sent_when_a_task_waits_continues_and_ends() {
    let stage = stage();
    (0..9).for_each(|_| stage.receivers.respond(204, ""));
    let task = send(&stage);
    stage.live(ms(500));
    assert_eq!(notified(&stage).last().unwrap(), "TASK_STATE_INPUT_REQUIRED");
    ask(&stage, "SendMessage", &answers(&task, text("yes")));
    stage.live(ms(500));
    assert_eq!(notified(&stage).last().unwrap(), "TASK_STATE_COMPLETED");
    let first = &stage.receivers.requests()[0];
    assert_eq!((first.method, first.url.as_str()), ("POST", URL));
    let header =
        |name: &str| first.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    assert_eq!(header("x-a2a-notification-token"), Some("t1"));
    assert_eq!(
        (header("authorization"), header("content-type")),
        (Some("Bearer pw"), Some("application/json"))
    );
    let body: Value = serde_json::from_slice(first.body.as_ref().unwrap()).unwrap();
    let update = &body["statusUpdate"];
    assert_eq!((&update["taskId"], &update["contextId"]), (&task["id"], &json!("s")));
    let before = notified(&stage).len();
    ask(&stage, "SendMessage", &says(text("another")));
    stage.live(ms(60_000));
    assert_eq!(notified(&stage).len(), before, "none about another task");
}

#[test]
fn a_notification_that_failed_is_sent_again_also_after_a_restart() {
    let stage = stage();
    stage.receivers.respond(500, "");
    let task = send(&stage);
    stage.live(Duration::from_secs(90));
    let failed = stage.receivers.requests().len();
    assert!((4..12).contains(&failed), "with growing delays: {failed}");
    stage.crash();
    stage.wake();
    stage.receivers.respond(200, "");
    stage.live(Duration::from_mins(1));
    assert_eq!(notified(&stage).last().unwrap(), "TASK_STATE_INPUT_REQUIRED");
    let sent = notified(&stage).len();
    stage.live(Duration::from_mins(30));
    assert_eq!(notified(&stage).len(), sent, "acknowledged once");
    stage.receivers.respond(200, "");
    ask(&stage, "CancelTask", &json!({"id": task["id"]}));
    stage.live(ms(500));
    assert_eq!(notified(&stage).last().unwrap(), "TASK_STATE_CANCELED");
}

#[test]
fn a_receiver_that_fails_for_a_day_is_given_up() {
    let stage = stage();
    let task = send(&stage);
    // An approval waits longer than that.
    stage.live(Duration::from_hours(25));
    let sent = stage.receivers.requests().len();
    let listed = ask(&stage, "ListTaskPushNotificationConfigs", &json!({"taskId": task["id"]}));
    assert_eq!(listed["result"]["configs"], json!([]));
    let failure =
        stage.records().into_iter().find(|record| record["type"] == "turn.sub_step_failed").unwrap();
    assert_eq!(failure["step"], json!("webhook"));
    assert!(failure["reason"].as_str().unwrap().contains("offline"), "{failure}");
    stage.live(Duration::from_hours(1));
    assert_eq!(stage.receivers.requests().len(), sent);
}

#[test]
fn the_current_status_is_sent_for_a_new_configuration() {
    let stage = stage();
    (0..9).for_each(|_| stage.receivers.respond(204, ""));
    let task = task_of(&ask(&stage, "SendMessage", &says(text("write")))).clone();
    stage.live(ms(500));
    assert_eq!(notified(&stage), Vec::<String>::new());
    ask(&stage, "CreateTaskPushNotificationConfig", &json!({"taskId": task["id"], "url": URL}));
    stage.live(ms(500));
    assert_eq!(notified(&stage), ["TASK_STATE_INPUT_REQUIRED"]);
    // Also one that comes with the answer.
    let mut params = answers(&task, text("yes"));
    let url = "https://other.example.com/";
    params["configuration"] = json!({"taskPushNotificationConfig": {"id": "other", "url": url}});
    ask(&stage, "SendMessage", &params);
    stage.live(ms(500));
    let others: Vec<_> =
        stage.receivers.requests().into_iter().filter(|request| request.url == url).collect();
    let last: Value = serde_json::from_slice(others.last().unwrap().body.as_ref().unwrap()).unwrap();
    assert_eq!(last["statusUpdate"]["status"]["state"], json!("TASK_STATE_COMPLETED"));
    assert_eq!(notified(&stage).iter().filter(|state| *state == "TASK_STATE_COMPLETED").count(), 2);
}

#[test]
fn a_restart_does_not_shorten_the_delay_after_failures() {
    let stage = stage();
    send(&stage);
    for _ in 0..40 {
        stage.live(Duration::from_secs(30));
        stage.crash();
        stage.wake();
    }
    // 1 + 2 + 4 + … seconds, up to ten minutes.
    let tried = stage.receivers.requests().len();
    assert!((8..=12).contains(&tried), "{tried} requests in 20 minutes");
}

#[test]
fn a_new_configuration_takes_the_place_of_one_that_failed() {
    let stage = Stage::demo();
    let with_push = |n: u32| {
        let mut params = says(text("/say Hello"));
        params["configuration"] = json!({"taskPushNotificationConfig": {"id": format!("n{n}"), "url": URL}});
        ask(&stage, "SendMessage", &params)
    };
    for n in 0..103 {
        let task = with_push(n);
        assert_eq!(task_of(&task)["status"]["state"], json!("TASK_STATE_COMPLETED"));
        stage.live(Duration::from_secs(20));
    }
    assert_eq!(stage.session().state().webhooks.len(), 100);
}

#[test]
fn configurations_are_created_read_and_removed() {
    let stage = stage();
    let task = send(&stage);
    let of = |more: Value| {
        let mut params = json!({"taskId": task["id"]});
        more.as_object().unwrap().iter().for_each(|(name, value)| params[name] = value.clone());
        params
    };
    let second = of(json!({"id": "second", "url": "https://hooks.example.com/2", "token": "t2"}));
    let created = ask(&stage, "CreateTaskPushNotificationConfig", &second);
    let shown = json!({"id": "second", "taskId": task["id"], "url": "https://hooks.example.com/2"});
    assert_eq!(created["result"], shown, "without the secret");
    let read = ask(&stage, "GetTaskPushNotificationConfig", &of(json!({"id": "second"})));
    assert_eq!(read["result"], shown);
    let first = ask(&stage, "GetTaskPushNotificationConfig", &of(json!({})));
    assert_eq!(first["result"]["url"], json!(URL));
    let list = || {
        let listed = ask(&stage, "ListTaskPushNotificationConfigs", &of(json!({})));
        listed["result"]["configs"].as_array().unwrap().len()
    };
    assert_eq!(list(), 2);
    let removed = ask(&stage, "DeleteTaskPushNotificationConfig", &of(json!({"id": "second"})));
    assert_eq!((&removed["error"], list()), (&Value::Null, 1));
    let unknown = ask(&stage, "GetTaskPushNotificationConfig", &of(json!({"id": "second"})));
    assert_eq!(unknown["error"]["code"], json!(-32001));
    for (field, value, pointer) in [
        ("url", json!("http://hooks.example.com/"), "/params/url"),
        ("url", json!("https://forbidden.example/"), "/params/url"),
        ("url", json!("https://127.0.0.1/"), "/params/url"),
        ("token", json!("a\nb"), "/params/token"),
        ("authentication", json!({"scheme": "Basic", "credentials": "a\r\nX: y"}), "/params/authentication"),
        ("id", json!("x".repeat(3_000)), "/params/id"),
    ] {
        let mut params = second.clone();
        params[field] = value;
        let refused = ask(&stage, "CreateTaskPushNotificationConfig", &params);
        assert_eq!(refused["error"]["code"], json!(-32602), "{params}");
        assert!(refused["error"]["message"].as_str().unwrap().starts_with(pointer), "{refused}");
    }
    for n in 0..99 {
        ask(&stage, "CreateTaskPushNotificationConfig", &of(json!({"id": format!("n{n}"), "url": URL})));
    }
    let too_many = ask(&stage, "CreateTaskPushNotificationConfig", &second);
    assert_eq!((&too_many["error"]["code"], list()), (&json!(-32602), 100));
    ask(&stage, "CancelTask", &json!({"id": task["id"]}));
    let late = ask(&stage, "CreateTaskPushNotificationConfig", &second);
    assert_eq!(late["error"]["code"], json!(-32004), "the task has ended");
}

#[test]
fn notifications_are_sent_for_a_queued_task() {
    let stage = Stage::demo();
    (0..9).for_each(|_| stage.receivers.respond(204, ""));
    // Posts a message to a session that is busy.
    let queue = |busy: &str| {
        let mut params = says(text(busy));
        params["configuration"] = json!({"returnImmediately": true});
        ask(&stage, "SendMessage", &params);
        let mut params = says(text("/say later"));
        params["configuration"] = json!({
            "returnImmediately": true, "taskPushNotificationConfig": {"url": URL},
        });
        let queued = task_of(&ask(&stage, "SendMessage", &params)).clone();
        assert_eq!(queued["status"]["state"], json!("TASK_STATE_SUBMITTED"));
        queued
    };
    queue("/slow 100 20");
    stage.live(ms(10_000));
    assert_eq!(notified(&stage).last().unwrap(), "TASK_STATE_COMPLETED");
    let removed = queue("/slow 100 900");
    ask(&stage, "CancelTask", &json!({"id": removed["id"]}));
    stage.live(ms(120_000));
    assert_eq!(notified(&stage).last().unwrap(), "TASK_STATE_CANCELED");
}
