//! `run` and `runs`: a folder with a failing test, a spec, and a run that repairs it.

#![cfg(target_os = "linux")]

use crate::{
    agentctl::Agentctl,
    support::{PATIENCE, Script, World},
    terminal::Terminal,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::{Duration, Instant},
};

const SPEC: &str = "# Goal\n`./test.sh` passes.\n# Constraints\n- Do not change the test.\n# Acceptance criteria\n- `./test.sh` ends with 0.\n";
/// Passes if value.txt is 42.
const TEST: &str =
    "test \"$(cat value.txt)\" = 42 || { echo \"value.txt is $(cat value.txt), expected 42\"; exit 1; }\n";

/// A project with a failing test, and a world whose model plans its repair: the first patch is wrong, the second one right.
struct Project {
    world: World,
    cli: Agentctl,
    root: PathBuf,
}

impl Project {
    fn new() -> Self {
        let world = World::start();
        let cli = Agentctl::new(&world.server);
        let coder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agents/coder");
        cli.run(&["agents", "push", &coder.display().to_string()]).expect(0);
        let root = cli.folder().join("project");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("value.txt"), "1\n").unwrap();
        fs::write(root.join("test.sh"), TEST).unwrap();
        fs::write(cli.folder().join("fix.md"), SPEC).unwrap();
        Self { world, cli, root }
    }

    /// Has the model plan a patch that needs an approval and does not help, and repair it when the check fails.
    fn script_plan_and_repair(&self) {
        let plan = json!({"steps": [
            {"id": "fix", "title": "Set the value", "type": "patch", "needs_approval": true, "patch": patch("1", "41")},
            {"id": "note", "title": "Say what was done", "type": "note", "depends_on": ["fix"], "content": "Set it."},
        ]});
        let fenced = format!("Here is the plan:\n```json\n{plan}\n```\nGood luck!");
        self.world.model.script("m", Script::text([fenced.as_str()]));
        let repair = json!({"steps": [
            {"id": "repair", "title": "Set the right value", "type": "patch", "patch": patch("41", "42")},
        ]});
        self.world.model.script("m", Script::text([repair.to_string().as_str()]));
    }

    fn run(&self, id: &str) -> Value {
        self.cli.run(&["runs", "show", id, "--json"]).expect(0).json()
    }

    /// Waits until a run has a status.
    fn until(&self, id: &str, status: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let run = self.run(id);
            if run["status"] == status {
                return run;
            }
            assert!(Instant::now() < deadline, "{run}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Approves the patch of a run, and follows the run to its end, at which the runner is no longer needed.
    fn finish(&self, id: &str, mut runner: Child) {
        self.until(id, "waiting");
        self.cli.run(&["runs", "approve", id, "fix"]).expect(0);
        self.cli.run(&["runs", "tail", id]).expect(0);
        runner.kill().unwrap();
        runner.wait().unwrap();
        self.assert_repaired(id);
    }

    /// Asserts what a run has done that was repaired.
    fn assert_repaired(&self, id: &str) {
        assert_eq!(fs::read_to_string(self.root.join("value.txt")).unwrap(), "42\n");
        let run = self.run(id);
        assert_eq!((&run["status"], &run["plan_source"]), (&json!("succeeded"), &json!("model")), "{run}");
        assert_eq!(run["repairs"], 1, "{run}");
        let steps = run["steps"].as_array().unwrap();
        assert!(steps.iter().all(|step| step["status"] == "succeeded"), "{run}");
        let report = run["report"].as_str().unwrap();
        let report = self.cli.run(&["files", "get", report, "--agent", "coder"]).expect(0).out;
        assert!(report.contains("Set the value"), "{report}");
    }

    /// Asserts that an export by this command has the parts of a run, and that each of its events parses.
    fn assert_exports(&self, command: &[&str], id: &str) {
        let args = [command, &[id, "-o", "run.zip", "--json"]].concat();
        let ran = self.cli.run(&args).expect(0).json();
        assert_eq!(ran["file"], "run.zip");
        let file = fs::File::open(self.cli.folder().join("run.zip")).unwrap();
        let mut archive = zip::ZipArchive::new(file).unwrap();
        let names: Vec<String> = archive.file_names().map(str::to_owned).collect();
        assert!(names.iter().any(|name| name.starts_with("artifacts/")), "{names:?}");
        let mut read = |name: &str| {
            let mut text = String::new();
            archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        let run: Value = serde_json::from_str(&read("run.json")).unwrap();
        assert_eq!(run["id"], id);
        let events = read("events.ndjson");
        let seqs = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].clone());
        let expected = (1..=events.lines().count()).map(|seq| json!(seq));
        assert_eq!(seqs.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

/// Returns a unified diff that changes value.txt.
fn patch(from: &str, to: &str) -> String {
    format!("--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-{from}\n+{to}\n")
}

const RUN: &[&str] = &["run", "--spec", "fix.md", "--agent", "coder"];
const ROOT: &[&str] = &["--root", "project", "--verify", "sh test.sh"];

#[test]
fn a_run_is_approved_on_the_terminal_repaired_verified_and_reported() {
    let project = Project::new();
    project.script_plan_and_repair();
    let mut terminal = Terminal::start(&project.cli, &[RUN, ROOT].concat());
    terminal.wait_for("y approve");
    assert_eq!(
        fs::read_to_string(project.root.join("value.txt")).unwrap(),
        "1\n",
        "nothing before the approval"
    );
    terminal.send("y");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    let runs = project.cli.run(&["runs", "list", "--agent", "coder", "--json"]).expect(0).lines();
    let id = runs[0]["id"].as_str().unwrap();
    assert!(id.starts_with("run_"), "{id}");
    project.assert_repaired(id);
    project.assert_exports(&["export"], id);
    project.assert_exports(&["runs", "export"], id);
}

#[test]
fn a_run_without_a_terminal_waits_and_is_continued() {
    let project = Project::new();
    project.script_plan_and_repair();
    let waiting = project.cli.run(&[RUN, ROOT, &["--json"]].concat()).expect(5);
    let run = waiting.json();
    let id = run["id"].as_str().unwrap();
    assert_eq!(run["status"], "waiting", "{run}");
    let shown = project.cli.run(&["runs", "show", id]).expect(0).out;
    assert!(shown.contains(&format!("agentctl runs approve {id} fix --args-hash ")), "{shown}");
    project.cli.run(&["runs", "tail", id]).expect(5);
    // A session notifies the inbox right after its call begins to wait.
    let command = format!("\n  agentctl runs approve {id} fix --args-hash ");
    let deadline = Instant::now() + PATIENCE;
    while !project.cli.run(&["inbox", "--kind", "step"]).expect(0).out.contains(&command) {
        assert!(Instant::now() < deadline, "the step is not in the inbox");
    }

    let args = ["runner", "--session", id, "--root", "project", "--verify", "sh test.sh"];
    let mut runner = project.cli.command(&args).spawn().unwrap();
    project.cli.run(&["runs", "approve", id, "fix", "--args-hash", "other"]).expect(3);
    project.cli.run(&["runs", "approve", id, "nothing"]).expect(4);
    project.cli.run(&["runs", "approve", id, "fix"]).expect(0);
    let tailed = project.cli.run(&["runs", "tail", id]).expect(0);
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert!(tailed.err.contains("plan (model):") && tailed.err.contains("✓ fix patch"), "{tailed:?}");
    project.assert_repaired(id);
    let events = project.cli.run(&["runs", "tail", id, "--events"]).expect(0).lines();
    assert!(events.iter().any(|event| event["type"] == "approval.decided"));
    project.cli.run(&["runs", "approve", id, "fix", "--decline"]).expect(3);
}

#[test]
fn a_runner_of_the_agent_serves_its_runs() {
    let project = Project::new();
    project.script_plan_and_repair();
    let args = ["runner", "--agent", "coder", "--root", "project", "--verify", "sh test.sh"];
    let runner = project.cli.command(&args).spawn().unwrap();
    let id = project.cli.run(&[RUN, &["--detach"]].concat()).expect(0).out;
    let id = id.trim();
    project.finish(id, runner);
}

/// Reads a file of a run from the workspace; `None` if there is none.
fn file(project: &Project, id: &str, name: &str) -> Option<String> {
    let path = format!("runs/{id}/{name}");
    let read = project.cli.run(&["files", "get", &path, "--agent", "coder"]);
    (read.code == 0).then_some(read.out)
}

#[test]
fn the_diagrams_of_a_run_are_rendered_by_its_runner() {
    let project = Project::new();
    // The second picture is too long for the conversation, and the third source is malformed.
    let edges: String = (0..60).map(|n| format!("N{n}[Node number {n}] --> N{}\n", n + 1)).collect();
    let large = format!("flowchart TD\n{edges}");
    let diagram =
        |id: &str, source: &str| json!({"id": id, "title": id, "type": "diagram", "content": source});
    let plan = json!({"steps": [
        diagram("small", "sequenceDiagram\nAnn->>Bob: Hello"), diagram("large", &large),
        diagram("broken", "flowchart TD\nA --"),
    ]});
    project.world.model.script("m", Script::text([plan.to_string().as_str()]));
    let run = ["run", "--goal", "Draw it.", "--agent", "coder", "--root", "project", "--json"];
    let run = project.cli.run(&run).expect(0).json();
    let id = run["id"].as_str().unwrap();
    assert_eq!(run["status"], "succeeded", "{run}");
    let files = |step: usize| run["steps"][step]["files"].as_array().unwrap().len();
    assert_eq!([files(0), files(1), files(2)], [2, 2, 1], "{run}");
    let small = file(&project, id, "small.svg").unwrap();
    assert!(small.starts_with("<svg") && small.contains("Hello"), "{small}");
    let picture = file(&project, id, "large.svg").unwrap();
    assert!(picture.len() > 20_000, "{}", picture.len());
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
    assert!(picture.contains("Node number 59") && !picture.contains("left out"), "{picture}");
    assert_eq!(file(&project, id, "large.mmd").as_deref(), Some(large.as_str()));
    assert_eq!(file(&project, id, "broken.svg"), None);
    let report = file(&project, id, "report.md").unwrap();
    assert!(report.contains("small.mmd` in the workspace, rendered as `small.svg`"), "{report}");
    assert!(report.contains("broken.mmd` in the workspace, not rendered: Error: cannot render"), "{report}");

    // A picture is never shown as a page of the server's origin.
    let read =
        project.world.server.client().get(&format!("/v1/workspace/files/runs/{id}/small.svg?agent=coder"));
    assert_eq!(read.header("content-security-policy"), Some("sandbox; default-src 'none'"));
    assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
    assert!(read.header("content-disposition").unwrap().starts_with("attachment"));
}

#[test]
fn a_step_whose_content_is_no_diagram_fails() {
    let project = Project::new();
    let plan =
        json!({"steps": [{"id": "shape", "title": "Draw it", "type": "diagram", "content": "A --> B"}]});
    project.world.model.script("m", Script::text([plan.to_string().as_str()]));
    let run = ["run", "--goal", "Draw it.", "--agent", "coder", "--root", "project", "--json"];
    let run = project.cli.run(&run).expect(1).json();
    assert_eq!((&run["status"], &run["error"]["step"]), (&json!("failed"), &json!("shape")), "{run}");
    let message = run["error"]["message"].as_str().unwrap();
    assert!(message.contains("does not begin with a type of diagram, such as `flowchart TD`"), "{message}");
}

#[test]
fn a_run_is_canceled_and_retried() {
    let project = Project::new();
    project.script_plan_and_repair();
    let id = project.cli.run(&[RUN, &["--detach"]].concat()).expect(0).out;
    let id = id.trim();
    // No runner serves the calls that read the folder.
    assert!(!project.run(id)["status"].is_null());
    let canceled = project.cli.run(&["runs", "cancel", id]).expect(0);
    assert_eq!(canceled.out, format!("canceled {id}\n"));
    project.until(id, "canceled");
    project.cli.run(&["runs", "tail", id]).expect(1);
    project.cli.run(&["runs", "retry", id, "--detach", "--json"]).expect(0);
    let args = ["runner", "--session", id, "--root", "project", "--verify", "sh test.sh"];
    let runner = project.cli.command(&args).spawn().unwrap();
    project.finish(id, runner);
}

#[test]
fn wrong_usage_starts_nothing() {
    let project = Project::new();
    for args in
        [&["run"][..], &["run", "--goal", "x", "--spec", "y"], &["run", "--goal", "x", "--approvals", "some"]]
    {
        project.cli.run(args).expect(2);
    }
    project.cli.run(&["run", "--goal", "x", "--detach", "--root", "project"]).expect(2);
    project.cli.run(&["run", "--spec", "none.md"]).expect(1);
    let absent = project.cli.run(&["run", "--spec", "none"]);
    assert!([3, 4].contains(&absent.code), "{absent:?}");
    project.cli.run(&["runs", "show", "run_none"]).expect(4);
    assert!(project.cli.run(&["runs", "list"]).expect(0).err.contains("nothing found"));
}

#[test]
fn a_run_works_in_the_folder_of_its_runner_and_keeps_its_own_files_on_the_server() {
    let project = Project::new();
    let agent = project.cli.folder().join("folder-coder");
    fs::create_dir(&agent).unwrap();
    let settings = r#"
subagents = []
workspace = { kind = "runner" }
verify = { tool = "local_verify" }
permissions = { tools = { local_verify = "allow" } }
"#;
    let coder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agents/coder/agent.toml");
    let coder = fs::read_to_string(coder).unwrap();
    let tools = coder.split_once("# Printed by `agentctl runner tools`.").unwrap().1;
    fs::write(agent.join("agent.toml"), format!("{settings}{tools}")).unwrap();
    project.cli.run(&["agents", "push", &agent.display().to_string()]).expect(0);

    let plan = json!({"steps": [
        {"id": "fix", "title": "Set the value", "type": "agent", "prompt": "Set value.txt to 42."},
        {"id": "note", "title": "Say what was done", "type": "note", "depends_on": ["fix"], "content": "Set it."},
    ]});
    project.world.model.script("m", Script::text([plan.to_string().as_str()]));
    let edit = json!({"path": "value.txt", "old_string": "1", "new_string": "42"});
    project.world.model.script("m", Script::new().tool("c1", "edit_file", edit));
    project.world.model.script("m", Script::text(["Set it."]));
    let run = [&["run", "--spec", "fix.md", "--agent", "folder-coder", "--json"], ROOT].concat();
    let run = project.cli.run(&run).expect(0).json();
    assert_eq!(run["status"], "succeeded", "{run}");
    assert_eq!(fs::read_to_string(project.root.join("value.txt")).unwrap(), "42\n");

    // The report and the note are the server's, and the folder has nothing else than before.
    let id = run["id"].as_str().unwrap();
    for (name, expected) in [("report.md", "Say what was done"), ("note.md", "Set it.")] {
        let read =
            project.cli.run(&["files", "get", &format!("runs/{id}/{name}"), "--agent", "folder-coder"]);
        assert!(read.expect(0).out.contains(expected), "{name}");
    }
    let mut names: Vec<_> =
        fs::read_dir(&project.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["test.sh", "value.txt"]);
}
