//! Runs the commands of README.md and docs/ against the real Worker.
//!
//! Every block that is fenced as `sh` is run, unless the fence says `sh no-run`. The blocks of a page run in one
//! shell, in order, with `URL`, `KEY` and `ADMIN_KEY` set; the first command that fails ends the page.
//! docs/extending.md calls the Worker that it shows how to create. docs/agentctl.md calls the client, which Cargo has put
//! next to this program.

use crate::my_agent;
use crate::support::{ADMIN_KEY, DEV_API_KEY, Folder, Server};
use serde_json::json;
use std::{
    env,
    ffi::OsString,
    fmt::Write,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Maximum time for all commands of a page.
const PATIENCE: Duration = Duration::from_secs(180);
/// Options of every `curl`: an error response is a failure, and nothing hangs.
const CURLRC: &str = "fail-with-body\nshow-error\nmax-time = 60\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and the pages of docs/, from the root.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().flatten().map(|entry| entry.path());
    let mut pages: Vec<_> = docs.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// Returns the commands of a page as one script that names each block on stderr.
fn script(page: &Path) -> String {
    let (name, text) = (page.strip_prefix(root()).unwrap().display(), fs::read_to_string(page).unwrap());
    let mut script = String::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some("sh") => {
                inside = true;
                writeln!(script, "echo '== {name}:{}' >&2", number + 2).unwrap();
            }
            Some(_) => inside = false,
            None if inside => writeln!(script, "{line}").unwrap(),
            None => {}
        }
    }
    script
}

/// Returns a PATH that begins with the folder of the built programs.
fn search_path() -> OsString {
    let test = env::current_exe().unwrap();
    let programs = test.parent().and_then(Path::parent).unwrap();
    let is_built = programs.join("agentctl").exists();
    assert!(is_built, "the client is not built; first run: cargo build -p edge-harness-cli");
    let old = env::var_os("PATH").unwrap_or_default();
    env::join_paths([programs.to_owned()].into_iter().chain(env::split_paths(&old))).unwrap()
}

/// Runs a script. Returns its output if it fails or times out.
fn run(server: &Server, home: &Path, script: &str) -> Result<(), String> {
    let output = home.join("output");
    let file = fs::File::create(&output).unwrap();
    let mut child = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(root())
        .env("URL", format!("http://{}", server.address()))
        .env("KEY", DEV_API_KEY)
        .env("ADMIN_KEY", ADMIN_KEY)
        .env("CURL_HOME", home)
        .env("XDG_CONFIG_HOME", home)
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .process_group(0)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    let said = fs::read_to_string(&output).unwrap_or_default();
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("{status}\n{said}")),
        None => {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).status();
            let _ = child.wait();
            Err(format!("the commands did not end\n{said}"))
        }
    }
}

#[test]
fn the_commands_of_the_docs_work() {
    let server = Server::start(json!({}));
    let own = my_agent::start(json!({ "SUBAGENTS": "[]" }));
    let home = Folder::create();
    fs::write(home.path().join(".curlrc"), CURLRC).unwrap();
    let mut failed = Vec::new();
    for page in pages() {
        let server = if page.ends_with("docs/extending.md") { &own } else { &server };
        if let Err(why) = run(server, home.path(), &script(&page)) {
            failed.push(format!("{}: {why}", page.display()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
