//! The Worker under Miniflare, in separate processes that a test can kill.

use super::{Client, Folder, PATIENCE, process};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    sync::{
        Mutex, OnceLock,
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

/// The key of [`Server::client`]: tenant `dev`, all scopes.
pub const DEV_API_KEY: &str = "dev-key-of-the-tests";
/// The operator's key, with the 32 bytes that it needs.
pub const ADMIN_KEY: &str = "admin-key-of-the-tests-012345678";

/// Returns a server shared by tests that need neither their own state nor their own configuration.
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(json!({})))
}

/// How to start a Worker.
pub struct Launch {
    /// Path of the Worker's configuration, from the root of the repository.
    pub config: PathBuf,
    /// Path of its main module, from the configuration's folder.
    pub main: &'static str,
    /// Variables and secrets that override the configuration.
    pub bindings: Value,
    /// Number of its D1 databases to provide; all if absent.
    pub databases: Option<usize>,
    /// Whether [`Server::heap`] works.
    pub inspected: bool,
    /// Whether the page is served. The runtime then routes each request in a Worker of its own.
    pub page: bool,
}

/// A running Worker with its own folder, kept by restarts and deleted on drop.
pub struct Server {
    launch: Launch,
    /// Holds the state and the log.
    home: Folder,
    port: u16,
    running: Option<Running>,
}

struct Running {
    child: Child,
    /// Miniflare ends when its standard input closes, and so also when this process dies.
    pipes: Mutex<(ChildStdin, Receiver<String>)>,
}

impl Server {
    /// Starts the Worker with the test fixtures and these variables and secrets, such as `OPENAI_BASE_URL`.
    pub fn start(bindings: Value) -> Self {
        Self::start_with(bindings, None)
    }

    /// Starts the Worker with the first `databases` of its D1 databases.
    pub fn start_with(bindings: Value, databases: Option<usize>) -> Self {
        Self::start_worker(bindings, databases, false)
    }

    /// Starts the Worker so that [`Server::heap`] works.
    pub fn start_inspected(bindings: Value) -> Self {
        Self::start_worker(bindings, None, true)
    }

    fn start_worker(bindings: Value, databases: Option<usize>, inspected: bool) -> Self {
        // Many tests name the demo model beside that of another provider, and some name other agents.
        let mut all = json!({
            "DEV_API_KEY": DEV_API_KEY, "ADMIN_KEY": ADMIN_KEY, "DEMO_MODEL": "1", "AGENTS": "other, bikes",
        });
        for (name, value) in bindings.as_object().expect("an object of bindings") {
            all[name] = value.clone();
        }
        let main = "build-fixtures/index.js";
        assert!(root().join(main).exists(), "the Worker is not built; first run scripts/build.sh --fixtures");
        Self::launch(Launch {
            config: "wrangler.toml".into(),
            main,
            bindings: all,
            databases,
            inspected,
            page: true,
        })
    }

    /// Starts any Worker.
    pub fn launch(launch: Launch) -> Self {
        let mut server = Self { launch, home: Folder::create(), port: 0, running: None };
        server.run();
        server
    }

    /// A client with the development key.
    pub fn client(&self) -> Client {
        self.anonymous().with_key(DEV_API_KEY)
    }

    /// A client with the operator's key.
    pub fn admin(&self) -> Client {
        self.anonymous().with_key(ADMIN_KEY)
    }

    /// A client without a key.
    pub fn anonymous(&self) -> Client {
        Client::new(self.address())
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns what the Worker has logged since its first start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Waits until the Worker has logged this text: a response may arrive before the lines of its request.
    #[track_caller]
    pub fn expect_log(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "`{text}` is not in the log: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns whether the stored state, in databases and objects, contains these bytes.
    pub fn state_holds(&self, bytes: &[u8]) -> bool {
        let mut folders = vec![self.home.path().join("state")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if fs::read(path).is_ok_and(|file| file.windows(bytes.len()).any(|w| w == bytes)) {
                    return true;
                }
            }
        }
        false
    }

    /// Returns every row of every database, as lines of JSON.
    pub fn rows(&self) -> String {
        self.script("dump.mjs", &[])
    }

    /// Stops the Worker, and searches its state for texts, without these tables. Starts it again, and returns what was
    /// found, as lines of JSON.
    pub fn scan(&mut self, without_tables: &str, texts: &[&str]) -> String {
        self.kill();
        let found = self.script("scan.mjs", &[&[without_tables], texts].concat());
        self.run();
        found
    }

    /// Stops the Worker, runs a statement in each of its D1 databases, and starts it again.
    pub fn edit(&mut self, sql: &str) {
        self.kill();
        self.script("edit.mjs", &[sql]);
        self.run();
    }

    /// Like [`Server::edit`], for a statement that a database refuses. Returns the error.
    pub fn edit_refused(&mut self, sql: &str) -> String {
        self.kill();
        let output = self.run_script("edit.mjs", &[sql]);
        assert!(!output.status.success(), "the statement is accepted");
        self.run();
        String::from_utf8(output.stderr).unwrap()
    }

    /// Runs a script of `tests/support` on the state and returns its output.
    fn script(&self, name: &str, args: &[&str]) -> String {
        let output = self.run_script(name, args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn run_script(&self, name: &str, args: &[&str]) -> Output {
        Command::new(root().join("node_modules/.bin/node"))
            .arg("--no-warnings")
            .arg(root().join("tests/support").join(name))
            .arg(self.home.path().join("state"))
            .args(args)
            .output()
            .unwrap()
    }

    /// Runs the scheduled handler to completion, as the cron trigger does.
    pub fn scheduled(&self) -> Value {
        let running = self.running.as_ref().expect("a running server");
        let mut pipes = running.pipes.lock().unwrap();
        writeln!(pipes.0, "scheduled * * * * *").unwrap();
        answer(&pipes.1).unwrap_or_else(|| panic!("the scheduled handler failed:\n{}", self.log()))
    }

    /// Returns the bytes in use by JavaScript, garbage included.
    pub fn heap(&self) -> u64 {
        let running = self.running.as_ref().expect("a running server");
        let mut pipes = running.pipes.lock().unwrap();
        writeln!(pipes.0, "heap").unwrap();
        let answer = answer(&pipes.1).unwrap_or_else(|| panic!("no heap size:\n{}", self.log()));
        answer["heap"].as_u64().expect("a size")
    }

    /// Starts the scheduled handler without waiting for it. Afterwards the server can only be killed.
    pub fn begin_scheduled(&self) {
        let running = self.running.as_ref().expect("a running server");
        writeln!(running.pipes.lock().unwrap().0, "scheduled * * * * *").unwrap();
    }

    /// Kills the whole process tree with SIGKILL, as a machine failure would. The state is kept.
    pub fn kill(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let group = running.child.id();
        signal_group("KILL", group);
        let _ = running.child.wait();
        let deadline = Instant::now() + PATIENCE;
        while !process::group(group).is_empty() {
            assert!(Instant::now() < deadline, "processes of group {group} are still running");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the Worker if it runs, and starts it again with the same state and port.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// Restarts the Worker with additional variables and secrets.
    pub fn restart_with(&mut self, bindings: Value) {
        for (name, value) in bindings.as_object().expect("an object of bindings") {
            self.launch.bindings[name] = value.clone();
        }
        self.restart();
    }

    /// Restarts the Worker with the first `count` of its D1 databases.
    pub fn restart_with_databases(&mut self, count: usize) {
        self.launch.databases = Some(count);
        self.restart();
    }

    /// Returns the user and system time of the runtime, without Miniflare's own process.
    pub fn cpu(&self) -> Duration {
        self.runtime().iter().map(|process| process.cpu).sum()
    }

    /// Returns the memory in use by the runtime, in bytes.
    pub fn rss(&self) -> u64 {
        self.runtime().iter().map(process::Process::rss).sum()
    }

    /// Returns by how many bytes the memory of the runtime grew at most during `work`.
    pub fn growth(&self, work: impl FnOnce()) -> u64 {
        let before = self.rss();
        self.runtime().iter().for_each(process::Process::reset_peak);
        work();
        self.runtime().iter().map(process::Process::peak).sum::<u64>().saturating_sub(before)
    }

    fn runtime(&self) -> Vec<process::Process> {
        let group = self.running.as_ref().expect("a running server").child.id();
        process::group(group).into_iter().filter(|process| process.name == "workerd").collect()
    }

    fn run(&mut self) {
        let options = json!({
            "config": root().join(&self.launch.config),
            "main": self.launch.main,
            "home": self.home.path(),
            "port": self.port,
            "bindings": self.launch.bindings,
            "databases": self.launch.databases,
            "inspected": self.launch.inspected,
            "page": self.launch.page,
        });
        let log = File::options().create(true).append(true).open(self.home.path().join("log")).unwrap();
        let mut child = Command::new(root().join("node_modules/.bin/node"))
            .arg(root().join("tests/support/mf.mjs"))
            .arg(options.to_string())
            // Miniflare's own temporary files are removed with the rest, even after a kill.
            .env("TMPDIR", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // One signal reaches the runtime too, because it is in the group.
            .process_group(0)
            .spawn()
            .expect("Node is missing; first run make setup");
        let output = lines(child.stdout.take().unwrap());
        let pipes = Mutex::new((child.stdin.take().unwrap(), output));
        let running = self.running.insert(Running { child, pipes });
        let ready = answer(&running.pipes.lock().unwrap().1);
        let ready = ready.unwrap_or_else(|| panic!("the Worker did not start:\n{}", self.log()));
        self.port = ready["port"].as_u64().and_then(|port| port.try_into().ok()).expect("a port");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the Worker's log ---\n{}", self.log());
        }
        self.kill();
    }
}

/// Returns the folder of the repository, which has the only lock file: the tests of several packages use this module.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().find(|folder| folder.join("Cargo.lock").exists()).expect("the repository")
}

/// Reads the lines of a pipe into a channel, so that a wait for one can have a deadline.
fn lines(pipe: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

/// Returns Miniflare's next line; `None` if it died or timed out.
fn answer(lines: &Receiver<String>) -> Option<Value> {
    serde_json::from_str(&lines.recv_timeout(PATIENCE).ok()?).ok()
}

fn signal_group(signal: &str, group: u32) {
    let group = format!("-{group}");
    let _ = Command::new("kill").args(["-s", signal, "--", &group]).stderr(Stdio::null()).status();
}
