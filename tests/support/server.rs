//! The Worker under Miniflare, in processes of its own that a test can kill.

use super::{Client, PATIENCE, process};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

/// The key that [`Server::client`] sends: tenant `dev`, every scope.
pub const DEV_API_KEY: &str = "dev-key-of-the-tests";
/// The operator's key.
pub const ADMIN_KEY: &str = "admin-key-of-the-tests";

/// A server for the tests that need neither their own state nor their own configuration.
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(json!({})))
}

/// What to run.
pub struct Launch {
    /// The Worker's configuration, from the root of the repository.
    pub config: &'static str,
    /// Its main module, from the configuration's folder.
    pub main: &'static str,
    /// Variables and secrets over those of the configuration.
    pub bindings: Value,
    /// How many of its D1 databases there are; all unless this says fewer.
    pub databases: Option<usize>,
}

/// A running Worker with a folder of its own, which a restart keeps and a drop erases.
pub struct Server {
    launch: Launch,
    /// Holds the state and the log.
    home: PathBuf,
    port: u16,
    running: Option<Running>,
}

struct Running {
    child: Child,
    /// Miniflare ends when its input does, so also when this process dies.
    pipes: Mutex<(ChildStdin, Receiver<String>)>,
}

impl Server {
    /// Starts the Worker with the tests' fixtures and these variables and secrets, such as
    /// `OPENAI_BASE_URL`.
    pub fn start(bindings: Value) -> Self {
        Self::start_with(bindings, None)
    }

    /// Starts it with the first so many of its D1 databases.
    pub fn start_with(bindings: Value, databases: Option<usize>) -> Self {
        let mut all = json!({ "DEV_API_KEY": DEV_API_KEY, "ADMIN_KEY": ADMIN_KEY });
        for (name, value) in bindings.as_object().expect("an object of bindings") {
            all[name] = value.clone();
        }
        let main = "build-fixtures/index.js";
        assert!(root().join(main).exists(), "no Worker to test; first: scripts/build.sh --fixtures");
        Self::launch(Launch { config: "wrangler.toml", main, bindings: all, databases })
    }

    /// Starts any Worker.
    pub fn launch(launch: Launch) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("edge-harness-{}-{number}", std::process::id());
        let home = std::env::temp_dir().join(name);
        fs::create_dir_all(&home).unwrap();
        let mut server = Self { launch, home, port: 0, running: None };
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

    /// What the Worker wrote to its log since the first start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.join("log")).unwrap_or_default()
    }

    /// Whether these bytes stand anywhere in the state that is stored: databases and objects.
    pub fn state_holds(&self, bytes: &[u8]) -> bool {
        let mut folders = vec![self.home.join("state")];
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

    /// Every row of every database, as lines of JSON.
    pub fn rows(&self) -> String {
        self.script("dump.mjs", &[])
    }

    /// Kills it, runs a statement in each of its D1 databases, and starts it again.
    pub fn edit(&mut self, sql: &str) {
        self.kill();
        self.script("edit.mjs", &[sql]);
        self.run();
    }

    /// What a script of `tests/support` says about the state.
    fn script(&self, name: &str, args: &[&str]) -> String {
        let output = Command::new(root().join("node_modules/.bin/node"))
            .arg("--no-warnings")
            .arg(root().join("tests/support").join(name))
            .arg(self.home.join("state"))
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the scheduled handler to its end, as the cron trigger does.
    pub fn scheduled(&self) -> Value {
        let running = self.running.as_ref().expect("a running server");
        let mut pipes = running.pipes.lock().unwrap();
        writeln!(pipes.0, "scheduled */10 * * * *").unwrap();
        answer(&pipes.1).unwrap_or_else(|| panic!("the scheduled handler failed:\n{}", self.log()))
    }

    /// Starts the scheduled handler and does not wait for it. Nothing else can be asked of this server but to
    /// be killed.
    pub fn begin_scheduled(&self) {
        let running = self.running.as_ref().expect("a running server");
        writeln!(running.pipes.lock().unwrap().0, "scheduled */10 * * * *").unwrap();
    }

    /// SIGKILL to the whole process tree, as when the machine fails. The state stays as it is.
    pub fn kill(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let group = running.child.id();
        signal_group("KILL", group);
        let _ = running.child.wait();
        let deadline = Instant::now() + PATIENCE;
        while !process::group(group).is_empty() {
            assert!(Instant::now() < deadline, "processes of group {group} do not die");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills it, if it still runs, and starts it again: same state, same port.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// Restarts it with these variables and secrets over those that it had.
    pub fn restart_with(&mut self, bindings: Value) {
        for (name, value) in bindings.as_object().expect("an object of bindings") {
            self.launch.bindings[name] = value.clone();
        }
        self.restart();
    }

    /// Restarts it with the first so many of its D1 databases.
    pub fn restart_with_databases(&mut self, count: usize) {
        self.launch.databases = Some(count);
        self.restart();
    }

    /// User and system time of the runtime so far, without Miniflare's own process.
    pub fn cpu(&self) -> Duration {
        self.runtime().iter().map(|process| process.cpu).sum()
    }

    /// Memory in use by the runtime, in bytes.
    pub fn rss(&self) -> u64 {
        self.runtime().iter().map(process::Process::rss).sum()
    }

    fn runtime(&self) -> Vec<process::Process> {
        let group = self.running.as_ref().expect("a running server").child.id();
        process::group(group).into_iter().filter(|process| process.name == "workerd").collect()
    }

    fn run(&mut self) {
        let options = json!({
            "config": root().join(self.launch.config),
            "main": self.launch.main,
            "home": self.home,
            "port": self.port,
            "bindings": self.launch.bindings,
            "databases": self.launch.databases,
        });
        let log = File::options().create(true).append(true).open(self.home.join("log")).unwrap();
        let mut child = Command::new(root().join("node_modules/.bin/node"))
            .arg(root().join("tests/support/mf.mjs"))
            .arg(options.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // The runtime is in the group too: one signal reaches all.
            .process_group(0)
            .spawn()
            .expect("no Node; first: make setup");
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
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The lines of a pipe, behind a channel so that waiting for one can have a deadline.
fn lines(pipe: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

/// Miniflare's next line; `None` when it died or takes too long.
fn answer(lines: &Receiver<String>) -> Option<Value> {
    serde_json::from_str(&lines.recv_timeout(PATIENCE).ok()?).ok()
}

fn signal_group(signal: &str, group: u32) {
    let group = format!("-{group}");
    let _ = Command::new("kill").args(["-s", signal, "--", &group]).stderr(Stdio::null()).status();
}
