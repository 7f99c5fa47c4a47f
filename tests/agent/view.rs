//! A client that reads the view and follows the stream from its cursor sees the same as one that followed
//! from the start.

use crate::http::{ask, call, read, respond, set_header, stream, whole};
use crate::stage::{Stage, ms};
use edge_harness::agent::OnBusy;
use edge_harness::session::hub::ByteReceiver;
use edge_harness::types::BudgetPatch;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// The state of a user interface.
#[derive(Clone, Debug, Default, PartialEq)]
struct Picture {
    message: Option<(String, String)>,
    tools: Vec<(String, String)>,
    queue: Vec<String>,
    tasks: Value,
    turn: Option<String>,
    tokens: u64,
    failed: Value,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Picture {
    fn of_view(view: &Value) -> Self {
        let list = |name: &str| view[name].as_array().unwrap().clone();
        let message = &view["current_message"];
        Self {
            message: (!message.is_null()).then(|| (text(&message["id"]), text(&message["text"]))),
            tools: list("active_tools").iter().map(|t| (text(&t["call_id"]), text(&t["name"]))).collect(),
            queue: list("queue").iter().map(|queued| text(&queued["turn"])).collect(),
            tasks: view["tasks"].clone(),
            turn: view["current_turn"]["id"].as_str().map(str::to_owned),
            tokens: view["usage"]["total_tokens"].as_u64().unwrap(),
            failed: view["last_error"]["code"].clone(),
        }
    }

    fn apply(&mut self, event: &Value) {
        let turn = text(&event["turn"]);
        match event["type"].as_str().unwrap() {
            "turn.queued" if !self.queue.contains(&turn) => self.queue.push(turn),
            "turn.started" => {
                self.queue.retain(|queued| *queued != turn);
                self.turn = Some(turn);
                self.failed = Value::Null;
            }
            "message.delta" => {
                let id = text(&event["id"]);
                let message = self.message.get_or_insert_with(|| (id.clone(), String::new()));
                assert_eq!(message.0, id);
                message.1.push_str(&text(&event["delta"]));
            }
            "message.completed" => {
                if let Some((id, said)) = self.message.take() {
                    let parts = event["message"]["parts"].as_array().unwrap();
                    let whole: String = parts.iter().map(|part| text(&part["text"])).collect();
                    assert_eq!(
                        (text(&event["message"]["id"]), whole),
                        (id, said),
                        "each byte was received once"
                    );
                }
            }
            "turn.resumed" => self.message = None,
            "tool.started" => self.tools.push((text(&event["call_id"]), text(&event["name"]))),
            "tool.completed" => self.tools.retain(|(id, _)| *id != text(&event["call_id"])),
            "task.list_updated" => self.tasks = event["tasks"].clone(),
            "turn.completed" | "turn.failed" | "turn.canceled" => {
                self.queue.retain(|queued| *queued != turn);
                self.turn = self.turn.take().filter(|running| *running != turn);
                self.tokens += event["usage"]["total_tokens"].as_u64().unwrap();
                if event["type"] == "turn.failed" {
                    self.failed = event["error"]["code"].clone();
                }
            }
            _ => {}
        }
    }
}

/// A client with a user interface.
struct Reader {
    picture: Picture,
    stream: ByteReceiver,
}

impl Reader {
    fn from_start(stage: &Stage) -> Self {
        let stream = stream(ask(stage, "GET /events", "", &json!({})).unwrap());
        Self { picture: Picture { tasks: json!([]), ..Picture::default() }, stream }
    }

    fn from_view(stage: &Stage) -> Self {
        let view = view(stage);
        let mut call = call("GET /events", "", &json!({}));
        set_header(&mut call, "last-event-id", &text(&view["cursor"]));
        let stream = stream(respond(stage, &call).unwrap());
        Self { picture: Picture::of_view(&view), stream }
    }

    fn look(&mut self) -> &Picture {
        for line in read(&mut self.stream).lines() {
            if let Some(data) = line.strip_prefix("data: ") {
                self.picture.apply(&serde_json::from_str(data).unwrap());
            }
        }
        &self.picture
    }
}

fn view(stage: &Stage) -> Value {
    whole(ask(stage, "GET /view", "", &json!({})).unwrap())
}

const WORK: &str = "/slow 10 5\n/tool task_write {\"tasks\": [{\"content\": \"A\"}, {\"content\": \"B\"}]}\n\
    /tool read_it {\"key\": \"k\"}\n/tool write_it {\"key\": \"k\"}\n/then\n/slow 10 7\n\
    /tool task_complete {\"id\": \"task_a\"}\n/then\n/slow 10 9";

#[test]
fn a_view_plus_the_stream_equals_the_whole_stream() {
    let stage = Stage::demo();
    ask(&stage, "POST /v1/sessions", "", &json!({})).unwrap();
    let (mut first, mut others) = (Reader::from_start(&stage), Vec::new());
    let (mut apart, mut streamed, mut called) = (0, 0, 0);
    stage.post("t1", WORK);
    for step in 0..160 {
        match step {
            5 => drop(stage.post("t2", "/fail cut")),
            7 => drop(stage.post("t3", WORK)),
            9 => drop(stage.post("t4", "hello")),
            11 => assert!(stage.host().remove_queued(&stage.session(), &"t4".into()).unwrap()),
            90 => {
                let steer = stage.try_post("t5", WORK, OnBusy::Steer, BudgetPatch::default());
                steer.expect("accepted");
            }
            _ => {}
        }
        stage.tick(ms(7));
        let reader = Reader::from_view(&stage);
        streamed += usize::from(reader.picture.message.is_some());
        called += usize::from(!reader.picture.tools.is_empty());
        let waits = !stage.session().state().activity.deferred.is_empty();
        let now = first.look().clone();
        if waits {
            apart += 1;
        } else {
            assert_eq!(reader.picture, now, "at step {step}");
        }
        // A session has at most 100 readers.
        if step % 2 == 0 {
            others.push(reader);
        }
        if !waits {
            for (from, other) in others.iter_mut().enumerate() {
                assert_eq!(other.look(), &now, "from step {from} to step {step}");
            }
        }
    }
    stage.settle();
    stage.check();
    let last = first.look().clone();
    for (from, other) in others.iter_mut().enumerate() {
        assert_eq!(other.look(), &last, "from step {from} to the end");
    }
    assert_eq!(Reader::from_view(&stage).picture, last);
    assert_eq!((last.turn, last.queue.len(), last.tasks[0]["status"].clone()), (None, 0, json!("completed")));
    assert!(apart > 2 && streamed > 20 && called > 20, "{apart} {streamed} {called}");
}

#[test]
fn a_view_shows_the_running_turn() {
    let stage = Stage::demo();
    stage.post("t1", "/tool read_it {\"key\": \"a\"}\n/tool write_it {\"key\": \"b\"}");
    stage.run();
    let now = view(&stage);
    assert_eq!((&now["running"], &now["session"]["status"]), (&json!(true), &json!("running")));
    let tools: Vec<_> =
        now["active_tools"].as_array().unwrap().iter().map(|t| (&t["name"], &t["status"])).collect();
    let (reads, writes) = (json!("read_it"), json!("write_it"));
    assert_eq!(tools, [(&reads, &json!("running")), (&writes, &json!("pending"))]);
    assert_eq!(now["active_tools"][1]["args"], json!({"key": "b"}));
    let turn = &now["current_turn"];
    assert_eq!((&turn["id"], &turn["status"], &turn["steps"]), (&json!("t1"), &json!("running"), &json!(1)));
    assert_eq!((&now["seq"], &now["cursor"]), (&json!(5), &json!("5")));
    let memory = json!({"summarized_to": 0, "observed_to": 0, "chunks": 0, "buffered": 0, "generation": 0});
    assert_eq!(now["memory"], memory);
    assert!(
        now["window"]["messages"] == 2 && now["window"]["tokens"].as_u64() > Some(5),
        "{}",
        now["window"]
    );
    stage.settle();
    let now = view(&stage);
    assert_eq!(
        (&now["running"], &now["current_turn"], &now["active_tools"]),
        (&json!(false), &Value::Null, &json!([]))
    );
    assert_eq!(now.get("last_error"), None);
    stage.post("t2", "/fail cut");
    stage.settle();
    assert_eq!(view(&stage)["last_error"]["retryable"], true);
}
