//! Cron consolidates dirty spaces: each once among concurrent runs, and continuing after a kill.

use crate::support::{Client, Received, Script, World};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

const SPACES: usize = 200;
/// Longer than a lease, in milliseconds.
const LATER_MS: u64 = 15 * 60 * 1_000;

fn world() -> World {
    let world = World::with(json!({ "MEMORY_MODEL": "openai/keeper" }));
    // The consolidating model keeps everything: the file, followed by the facts.
    world.model.choose(|request| {
        let asked = request["messages"].as_array()?.iter().rfind(|line| line["role"] == "user")?;
        let text = asked["content"].as_str()?;
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("- ")).collect();
        (request["model"] == "keeper").then(|| Script::text([lines.join("\n").as_str()]))
    });
    world
}

fn user(n: usize) -> String {
    format!("user-{n:03}")
}

/// Makes every space dirty with one fact.
fn soil(client: &Client) {
    for n in 0..SPACES {
        let facts = json!({ "user": user(n), "facts": [{ "text": format!("Fact of {}.", user(n)) }] });
        client.post("/v1/memory", facts).expect(201);
    }
}

/// Returns how often each user's facts were consolidated.
fn worked(received: &[Received]) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for request in received.iter().filter(|request| request.model() == "keeper") {
        let text = request.body.to_string();
        let at = text.find("Fact of ").expect("a fact") + "Fact of ".len();
        *times.entry(text[at..at + user(0).len()].to_owned()).or_default() += 1;
    }
    times
}

#[track_caller]
fn memory(client: &Client, n: usize) -> Value {
    let file = client.get(&format!("/v1/workspace/files/MEMORY.md?user={}", user(n)));
    assert_eq!(file.status, 200, "{}: {}", user(n), file.text());
    file.text().into()
}

#[test]
fn two_concurrent_runs_consolidate_each_space_once() {
    let world = world();
    let client = world.server.client();
    soil(&client);
    thread::scope(|scope| {
        // One run by cron, the others by request: the later ones are refused or find nothing to do.
        scope.spawn(|| world.server.scheduled());
        let by_hand = scope.spawn(|| {
            (0..SPACES)
                .rev()
                .map(|n| client.post("/v1/memory/consolidate", json!({ "user": user(n) })).status)
                .collect::<BTreeSet<_>>()
        });
        assert!(by_hand.join().unwrap().is_subset(&BTreeSet::from([200, 409])));
    });
    let worked = worked(&world.model.received());
    assert_eq!(worked.len(), SPACES);
    assert!(worked.values().all(|times| *times == 1), "{worked:?}");
    for n in 0..SPACES {
        assert!(memory(&client, n).as_str().unwrap().contains(&format!("Fact of {}.", user(n))));
    }
    world.server.scheduled();
    assert_eq!(self::worked(&world.model.received()).values().sum::<usize>(), SPACES, "no space is dirty");
}

#[test]
fn a_killed_run_is_continued() {
    let mut world = world();
    soil(&world.server.client());
    world.server.begin_scheduled();
    world.model.wait_for(SPACES / 4);
    world.server.kill();
    let before = worked(&world.model.received()).len();
    assert!(before < SPACES, "the run completed before the kill");
    // The leases of the killed run must expire first.
    world.server.restart_with(json!({ "CLOCK_OFFSET_MS": LATER_MS.to_string() }));
    world.server.scheduled();
    let client = world.server.client();
    for n in 0..SPACES {
        let text = memory(&client, n);
        assert_eq!(text.as_str().unwrap().matches("Fact of").count(), 1, "{text}");
    }
    let worked = worked(&world.model.received());
    let again = worked.values().filter(|times| **times > 1).count();
    // At most the spaces in progress at the kill: five objects with four spaces each.
    assert!(worked.len() == SPACES && again <= 20, "{again} spaces were consolidated again");
}
