//! `kill -9` of the Worker and of the runner at random points of a run: it comes to the same end, and no command runs twice
//! unless a retry asks for it.
//!
//! The tests play 50 points; `RUN_KILLS` sets another number. `SEED` repeats the points of a test, but not the timing.

#![cfg(target_os = "linux")]

use crate::{
    agentctl::Agentctl,
    support::{
        Client, PATIENCE, Script, World,
        log::{self, Random, of_type},
    },
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How many kills the life of one run has.
const KILLS_OF_A_RUN: usize = 5;
/// Longest time from a record to a kill, in milliseconds.
const MAX_DELAY_MS: u64 = 60;
const SPEC: &str = "# Goal\n\n`sh test.sh` passes.\n";
/// Passes if value.txt is 42.
const TEST: &str = "value=$(cat value.txt); test \"$value\" = 42 || { echo \"it is $value\"; exit 1; }\n";
/// Each check leaves a line, as each command does, in a file that Git ignores.
const VERIFY: &str = "echo verify >> ran; sleep 0.05; sh test.sh";

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Worker,
    Runner,
}

/// A kill after the log has a record of this number, and some time more.
#[derive(Clone, Copy, Debug)]
struct Kill {
    after: u64,
    delay: Duration,
    victim: Victim,
}

/// A run, the folder in which it works, and its runner.
struct Life<'a> {
    world: &'a mut World,
    client: Client,
    cli: Agentctl,
    id: String,
    runner: Child,
    /// How often the runner was killed during a call of this purpose: `verify`, or a step.
    interrupted: BTreeMap<String, usize>,
    /// The calls that were counted.
    counted: BTreeSet<String>,
}

/// The end of a run.
#[derive(Debug, PartialEq)]
struct Ended {
    run: Value,
    /// The planned steps with their status.
    steps: Vec<String>,
    /// How often each step was started.
    attempts: Vec<Value>,
    /// Number of calls during which the runner was killed.
    interrupted: usize,
    /// The lines of all commands, in their order.
    ran: Vec<String>,
    value: String,
    /// The report, without the id of the run.
    report: String,
    exported: Vec<String>,
}

fn command(id: &str, depends_on: &[&str]) -> Value {
    let command = format!("echo {id} >> ran; sleep 0.05");
    json!({"id": id, "title": id, "type": "command", "command": command, "depends_on": depends_on})
}

fn patch(id: &str, from: &str, to: &str) -> Value {
    let patch = format!("--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-{from}\n+{to}\n");
    json!({"id": id, "title": id, "type": "patch", "patch": patch})
}

/// Responds to a request of a run. The same request gets the same response, since a kill repeats it.
fn respond(request: &Value) -> Script {
    let request = request["messages"].to_string();
    let steps = if request.contains("Plan how to reach this goal") {
        let mut fix = patch("fix", "1", "41");
        fix["needs_approval"] = json!(true);
        let text = json!({"id": "text", "type": "model", "prompt": "Describe it.", "depends_on": ["fix"]});
        let note = json!({"id": "note", "type": "note", "content": "The value.", "depends_on": ["text"]});
        vec![fix, text, note, command("build", &["fix"]), command("last", &["note"])]
    } else if request.contains("Plan the steps that repair this") {
        if request.contains("the outcome is unknown") {
            // The model cannot know what to repair, so it has the checks run again.
            let id = (1..).map(|n| format!("again{n}")).find(|id| !request.contains(id.as_str())).unwrap();
            vec![json!({"id": id, "type": "note", "content": "Check again."})]
        } else {
            vec![patch("repair", "41", "42"), command("count", &["repair"])]
        }
    } else {
        return Script::text(["It is the value."]);
    };
    Script::text([json!({ "steps": steps }).to_string().as_str()])
}

impl<'a> Life<'a> {
    fn start(world: &'a mut World) -> Self {
        let cli = Agentctl::new(&world.server);
        let coder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agents/coder");
        cli.run(&["agents", "push", &coder.display().to_string()]).expect(0);
        let root = cli.folder().join("project");
        fs::create_dir(&root).unwrap();
        for (name, text) in [("value.txt", "1\n"), ("test.sh", TEST), (".gitignore", "ran\n"), ("ran", "")] {
            fs::write(root.join(name), text).unwrap();
        }
        assert!(Command::new("git").args(["init", "-q"]).current_dir(&root).status().unwrap().success());
        fs::write(cli.folder().join("fix.md"), SPEC).unwrap();
        let started = cli.run(&["run", "--spec", "fix.md", "--agent", "coder", "--detach"]).expect(0);
        let id = started.out.trim().to_owned();
        let (client, runner) = (world.server.client(), runner(&cli, &id));
        Self { world, client, cli, id, runner, interrupted: BTreeMap::new(), counted: BTreeSet::new() }
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/runs/{}{rest}", self.id)
    }

    fn root(&self) -> PathBuf {
        self.cli.folder().join("project")
    }

    /// Plays the person and the kills until the run has succeeded.
    fn play(mut self, kills: &[Kill]) -> Ended {
        let (mut kills, mut seq) = (kills.iter(), 0);
        let mut next = kills.next();
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "{:#}", self.client.get(&self.path("")).expect(200));
            let ended = self.runner.try_wait().unwrap();
            assert_eq!(
                ended,
                None,
                "the runner has ended: {}",
                fs::read_to_string(errors(&self.cli)).unwrap()
            );
            let records = log::lines(&self.client, &self.path(&format!("/events?after={seq}")));
            seq = records.last().map_or(seq, |record| record["seq"].as_u64().unwrap());
            if let Some(kill) = next.filter(|kill| kill.after <= seq) {
                thread::sleep(kill.delay);
                self.kill(kill.victim);
                next = kills.next();
                continue;
            }
            let run = self.client.get(&self.path("")).expect(200);
            match run["status"].as_str().unwrap() {
                // It may have ended since its records were read, and the other kills then come after its end.
                "succeeded" if next.is_none() => break,
                "failed" => self.retry(&run),
                "waiting" => self.approve(&run),
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
        self.end()
    }

    fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::Worker => self.world.server.restart(),
            Victim::Runner => {
                self.runner.kill().unwrap();
                self.runner.wait().unwrap();
                for call in self.begun() {
                    // The next runner may have been killed before it had answered the call.
                    if !self.counted.insert(call.clone()) {
                        continue;
                    }
                    let purpose = call.split('.').nth(1).unwrap();
                    let purpose = if purpose == "step" { call.rsplit('.').next().unwrap() } else { purpose };
                    *self.interrupted.entry(purpose.to_owned()).or_default() += 1;
                }
                self.runner = runner(&self.cli, &self.id);
            }
        }
    }

    /// Returns the calls that the journal of the runner has as begun and not as ended.
    fn begun(&self) -> Vec<String> {
        let journals = fs::read_dir(self.cli.folder().join("state/agentctl/runner"));
        let texts =
            journals.into_iter().flatten().flatten().map(|file| fs::read_to_string(file.path()).unwrap());
        let mut begun = Vec::new();
        for entry in texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()) {
            let Ok(entry) = serde_json::from_str::<Value>(&entry) else { continue };
            let call = |of: &str| entry[of][0]["call"].as_str().map(str::to_owned);
            begun.extend(call("started"));
            let left = [call("ended"), call("posted")];
            begun.retain(|begun| !left.contains(&Some(begun.clone())));
        }
        begun
    }

    fn approve(&self, run: &Value) {
        for step in run["steps"].as_array().unwrap() {
            if step["status"] == "waiting_approval" {
                let path = self.path(&format!("/steps/{}/approval", step["id"].as_str().unwrap()));
                let body = json!({"decision": "approve", "args_hash": step["args_hash"]});
                self.client.post(&path, body).expect(200);
            }
        }
    }

    /// Retries a run that has failed because its runner was killed during a call, after looking at what the call has done.
    fn retry(&self, run: &Value) {
        let step = run["error"]["step"].as_str();
        let purpose = step.unwrap_or("verify");
        assert!(self.interrupted.contains_key(purpose), "{run:#}");
        let failed = run["steps"].as_array().unwrap().iter().find(|step| step["status"] == "failed");
        match failed {
            Some(failed) => {
                assert_eq!((failed["id"].as_str(), &run["error"]["code"]), (step, &json!("step_failed")));
                assert!(failed["error"].as_str().unwrap().contains("the outcome is unknown"), "{run:#}");
            }
            None => assert_eq!(run["error"]["code"], "verification_failed"),
        }
        let before = match purpose {
            "fix" => Some("1\n"),
            "repair" => Some("41\n"),
            _ => None,
        };
        if let Some(value) = before {
            fs::write(self.root().join("value.txt"), value).unwrap();
        }
        self.client.post(&self.path("/retry"), json!({})).expect(202);
    }

    fn end(mut self) -> Ended {
        self.runner.kill().unwrap();
        self.runner.wait().unwrap();
        let file = |name: &str| fs::read_to_string(self.root().join(name)).unwrap();
        let ran: Vec<String> = file("ran").lines().map(str::to_owned).collect();
        let records = log::records(&self.client, &self.id);
        log::check(&records);
        self.check_commands(&records, &ran);

        let run = self.client.get(&self.path("")).expect(200);
        let report = run["report"].as_str().expect("a report");
        let report = self.cli.run(&["files", "get", report, "--agent", "coder"]).expect(0).out;
        let steps = run["steps"].as_array().unwrap();
        let line =
            |step: &Value| format!("{} {}", step["id"].as_str().unwrap(), step["status"].as_str().unwrap());
        Ended {
            steps: steps.iter().map(line).filter(|step| !step.starts_with("again")).collect(),
            attempts: steps.iter().map(|step| step["attempts"].clone()).collect(),
            interrupted: self.interrupted.values().sum(),
            ran,
            value: file("value.txt"),
            report: report.replace(&self.id, "RUN"),
            exported: self.export(&records),
            run,
        }
    }

    /// Checks that each call of a runner has had at most one effect, and that only interrupted steps have several calls.
    fn check_commands(&self, records: &[Value], ran: &[String]) {
        let calls = of_type(records, "tool.started").into_iter().filter_map(|call| call["call_id"].as_str());
        let calls: Vec<&str> = calls.collect();
        for command in ["build", "count", "last", "verify"] {
            let is_own = |call: &&&str| {
                call.ends_with(&format!(".{command}")) || call.contains(&format!(".{command}."))
            };
            let calls = calls.iter().filter(is_own).count();
            let lines = ran.iter().filter(|line| *line == command).count();
            let interrupted = self.interrupted.get(command).copied().unwrap_or_default();
            assert!(
                (calls - interrupted..=calls).contains(&lines),
                "{command}: {calls} calls, {interrupted} interrupted, {lines} lines"
            );
            assert!(command == "verify" || calls == 1 + interrupted, "{command} has {calls} calls");
        }
    }

    /// Opens the export, and returns the names of its files.
    fn export(&self, records: &[Value]) -> Vec<String> {
        let exported = self.client.get(&self.path("/export"));
        assert_eq!(exported.status, 200);
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(exported.body)).unwrap();
        let mut events = String::new();
        archive.by_name("events.ndjson").unwrap().read_to_string(&mut events).unwrap();
        let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events, records);
        archive.file_names().filter(|name| !name.contains("again")).map(str::to_owned).collect()
    }
}

/// Starts a runner of a run.
fn runner(cli: &Agentctl, id: &str) -> Child {
    let args = ["runner", "--session", id, "--root", "project", "--verify", VERIFY];
    let errors = File::create(errors(cli)).unwrap();
    cli.command(&args).stdout(Stdio::null()).stderr(errors).spawn().unwrap()
}

/// Returns the file to which the runner writes its errors.
fn errors(cli: &Agentctl) -> PathBuf {
    cli.folder().join("errors")
}

#[test]
fn a_run_with_kills_at_any_point_comes_to_the_same_end() {
    let mut world = World::start();
    world.model.choose(|request| Some(respond(request)));
    let undisturbed = Life::start(&mut world).play(&[]);
    assert_eq!(undisturbed.ran, ["verify", "count", "verify", "build", "last", "verify"]);
    assert_eq!((undisturbed.value.as_str(), &undisturbed.run["repairs"]), ("42\n", &json!(1)));
    let id = undisturbed.run["id"].as_str().unwrap();
    let records = log::records(&world.server.client(), id).len() as u64;

    let total = env::var("RUN_KILLS").map_or(50, |total| total.parse().expect("RUN_KILLS is a number"));
    let mut random = Random::new();
    let mut victims = [Victim::Worker, Victim::Runner].into_iter().cycle();
    let mut interrupted = 0;
    for first in (0..total).step_by(KILLS_OF_A_RUN) {
        let mut kills: Vec<Kill> = (first..total.min(first + KILLS_OF_A_RUN))
            .map(|_| Kill {
                after: 1 + random.below(records - 2),
                delay: Duration::from_millis(random.below(MAX_DELAY_MS)),
                victim: victims.next().unwrap(),
            })
            .collect();
        kills.sort_by_key(|kill| kill.after);
        println!("{kills:?}");
        let ended = Life::start(&mut world).play(&kills);
        assert_eq!(
            (&ended.steps, &ended.value, &ended.exported, &ended.run["plan_source"]),
            (&undisturbed.steps, &undisturbed.value, &undisturbed.exported, &json!("model"))
        );
        if ended.interrupted == 0 {
            assert_eq!((&ended.ran, &ended.report), (&undisturbed.ran, &undisturbed.report));
            assert_eq!(ended.attempts, undisturbed.attempts);
        } else {
            // It has further calls, which its report and the lines of the commands show.
            interrupted += 1;
            assert!(ended.report.starts_with("# Report\n\nSucceeded.\n"), "{}", ended.report);
        }
    }
    println!("{total} kills; {interrupted} runs had a call of unknown outcome");
}
