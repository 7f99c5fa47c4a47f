//! The list of runs.

use crate::stage::{DEV, Stage, get};
use bytes::Bytes;
use edge_harness::ports::PeerError;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Returns the id of a run.
fn id(n: u8) -> String {
    format!("run_{n:032}")
}

impl Stage {
    /// Puts a run of the tenant `dev` into the list, and has its object respond with this.
    fn run(&self, n: u8, status: u16, body: Result<Bytes, PeerError>) {
        let id = id(n);
        self.session("dev", &id, "ann", u64::from(n));
        let name = format!("dev/{id}/v1/runs/{id}");
        self.objects.responses.borrow_mut().insert(name, (status, vec![body]));
    }

    fn listed(&self, query: &str) -> Vec<Value> {
        let answer = self.answer(get(&format!("/v1/runs{query}")).bearer(DEV));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["data"].as_array().unwrap().clone()
    }
}

#[test]
fn a_run_that_cannot_be_read_is_listed_as_unknown_beside_the_others() {
    let stage = Stage::new();
    let read = json!({"id": id(1), "status": "waiting", "goal": "Reach it."});
    stage.run(1, 200, Ok(read.to_string().into()));
    stage.run(2, 503, Ok("{\"code\": \"newer_session\"}".into()));
    stage.run(3, 200, Err(PeerError("the object is overloaded".into())));
    stage.run(4, 200, Ok("no JSON".into()));
    // The list may still have a run that was erased.
    stage.run(5, 404, Ok("{}".into()));

    let mut listed = stage.listed("");
    listed.sort_by_key(|run| run["id"].to_string());
    assert_eq!(listed.len(), 4, "{listed:#?}");
    assert_eq!(listed[0], read);
    for (run, n) in listed[1..].iter().zip(2..) {
        let shown = ["id", "status", "phase", "agent", "user", "steps"].map(|name| run[name].clone());
        let expected =
            [json!(id(n)), json!("unknown"), json!("unknown"), json!("default"), json!("ann"), json!([])];
        assert_eq!(shown, expected);
    }
    let of = |status: &str| stage.listed(&format!("?status={status}")).len();
    assert_eq!((of("waiting"), of("unknown"), of("failed")), (1, 3, 0));
    assert!(stage.logged("run.unreadable") && stage.logged("overloaded"));
}
