//! Ways out of the runner's sandbox. Each of them must fail, and say why.
//!
//! A machine whose kernel lacks a protection skips the tests with a message.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    fs,
    io::Read as _,
    net::{TcpListener, UdpSocket},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

/// What must not leave its file or variable.
const SECRET: &str = "the-secret-of-the-test";

/// A folder for the runner, and files around it.
struct Place {
    all: tempfile::TempDir,
    root: PathBuf,
    home: PathBuf,
}

/// How a call ended.
#[derive(Debug)]
struct Ran {
    code: i32,
    text: String,
}

impl Place {
    /// Returns `None` on a machine without the sandbox.
    fn new() -> Option<Self> {
        let all = tempfile::tempdir().unwrap();
        let [root, home] = ["root", "home"].map(|name| all.path().join(name));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&home).unwrap();
        fs::write(home.join("secret"), SECRET).unwrap();
        fs::write(root.join("a.txt"), "a\n").unwrap();
        let place = Self { all, root, home };
        let ran = place.shell("true", &[]);
        if ran.text.contains("the sandbox of this machine") {
            eprintln!("SKIPPED: {}", ran.text);
            return None;
        }
        assert_eq!(ran.code, 0, "{ran:?}");
        Some(place)
    }

    fn command(&self, tool: &str, args: &serde_json::Value, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentctl"));
        command.args(["runner", "call", tool, &args.to_string(), "--root"]).arg(&self.root).args(options);
        command.env("HOME", &self.home).env("SECRET", SECRET);
        command
    }

    fn call(&self, tool: &str, args: &serde_json::Value, options: &[&str]) -> Ran {
        Ran::of(self.command(tool, args, options).output().unwrap())
    }

    fn shell(&self, command: &str, options: &[&str]) -> Ran {
        self.call("local_shell", &serde_json::json!({"command": command}), options)
    }

    /// Asserts that the file outside is as it was.
    fn check(&self, what: &str) {
        let secret = self.home.join("secret");
        assert_eq!(fs::read_to_string(&secret).unwrap(), SECRET, "{what}");
        assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o7777, 0o644, "{what}");
        assert_eq!(fs::read_dir(&self.home).unwrap().count(), 1, "{what}");
        assert_eq!(fs::read_dir(self.all.path()).unwrap().count(), 2, "{what}");
    }
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = [output.stdout, output.stderr].concat();
        Self { code: output.status.code().unwrap_or(-1), text: String::from_utf8_lossy(&text).into_owned() }
    }
}

/// Tries commands. Each must fail with one of the texts after it, and change nothing outside.
fn all_fail(ways: &[(&str, &[&str])]) {
    let Some(place) = Place::new() else { return };
    let outside = place.home.display().to_string();
    for (command, errors) in ways {
        let ran = place.shell(&command.replace("OUT", &outside), &[]);
        assert!(errors.iter().any(|error| ran.text.contains(error)), "{command}: {ran:?}");
        assert!(ran.code != 0 || ran.text.contains("[exit code "), "{command}: {ran:?}");
        assert!(!ran.text.contains(SECRET), "{command}: {ran:?}");
        place.check(command);
    }
}

const DENIED: &[&str] = &["Permission denied"];
const READ_ONLY: &[&str] = &["Permission denied", "Read-only file system"];
const FORBIDDEN: &[&str] = &["Operation not permitted"];

#[test]
fn files_outside_cannot_be_read() {
    all_fail(&[
        ("cat OUT/secret", DENIED),
        ("cat ../home/secret", DENIED),
        ("ls ..", DENIED),
        ("ls ~", DENIED),
        ("ln -s OUT/secret link && cat link", DENIED),
        ("ln -s .. up && cat up/home/secret", DENIED),
        ("cd .. && cat home/secret", DENIED),
        ("exec 5<OUT && cat /proc/self/fd/5/secret", DENIED),
        ("cat /proc/self/root/OUT/secret", DENIED),
        ("cat /proc/self/cwd/../home/secret", DENIED),
        ("ls /tmp", DENIED),
        ("ls /root /home", DENIED),
    ]);
}

#[test]
fn files_outside_cannot_be_changed() {
    all_fail(&[
        ("echo x > OUT/new", READ_ONLY),
        ("echo x >> OUT/secret", READ_ONLY),
        (": > OUT/secret", READ_ONLY),
        ("truncate -s 0 OUT/secret", READ_ONLY),
        ("rm -f OUT/secret", READ_ONLY),
        ("mv a.txt OUT/", READ_ONLY),
        ("ln OUT/secret hard", &["Permission denied", "cross-device", "Operation not permitted"]),
        ("chmod 777 OUT/secret", READ_ONLY),
        ("touch -d 2001-01-01 OUT/secret", READ_ONLY),
        ("touch /etc/agentctl-test", READ_ONLY),
        ("touch /tmp/agentctl-test", READ_ONLY),
        ("touch /dev/shm/agentctl-test", READ_ONLY),
        ("echo 1 > /proc/sys/kernel/printk", READ_ONLY),
        ("mkdir OUT/folder", READ_ONLY),
    ]);
}

#[test]
fn privileges_cannot_be_gained() {
    all_fail(&[
        ("chmod u+s a.txt", FORBIDDEN),
        ("chmod 2755 a.txt", FORBIDDEN),
        ("mknod device b 8 0", &["Operation not permitted", "Permission denied"]),
        ("chroot . /bin/true", FORBIDDEN),
        ("unshare -U true", FORBIDDEN),
        ("mount -t tmpfs none .", &["permission denied", "must be superuser", "not permitted"]),
        (
            "grep -q 'NoNewPrivs:.*0' /proc/self/status || { echo no new privileges; exit 1; }",
            &["no new privileges"],
        ),
        (
            "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status || { echo no capabilities; exit 1; }",
            &["no capabilities"],
        ),
        ("hostname elsewhere", &["must be root", "not permitted", "command not found"]),
    ]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn system_calls_for_administrators_and_debuggers_fail() {
    let Some(place) = Place::new() else { return };
    // ptrace, process_vm_readv, bpf, add_key, perf_event_open, setns, userfaultfd, mount and ptrace of x32.
    for number in [101, 310, 321, 248, 298, 308, 323, 0x4000_0000 + 165, 0x4000_0000 + 521] {
        let script = format!("perl -e '$r = syscall({number}, 2, 1, 0, 0, 0); print \"$r $!\"'");
        let ran = place.shell(&script, &[]);
        assert!(ran.text.contains("-1 Operation not permitted"), "{number}: {ran:?}");
    }
    // io_uring_setup, clone3, openat2
    for number in [425, 435, 437] {
        let script = format!("perl -e '$r = syscall({number}, 2, 0, 0, 0, 0); print \"$r $!\"'");
        let ran = place.shell(&script, &[]);
        assert!(ran.text.contains("-1 Function not implemented"), "{number}: {ran:?}");
    }
}

#[test]
fn the_environment_and_other_processes_are_hidden() {
    let Some(place) = Place::new() else { return };
    for command in ["env", "cat /proc/*/environ", "set", "export -p"] {
        let ran = place.shell(command, &[]);
        assert!(!ran.text.contains(SECRET), "{command}: {ran:?}");
    }
    let ran = place.shell("echo $SECRET", &["--env", "SECRET"]);
    assert_eq!((ran.code, ran.text.trim()), (0, SECRET));
    let other = std::process::id();
    let ran = place.shell(&format!("cat /proc/{other}/cmdline"), &[]);
    assert!(ran.text.contains("No such file") || ran.text.contains("Permission denied"), "{ran:?}");
    for command in [format!("kill -KILL {other}"), format!("kill -TERM -- -{other}")] {
        let ran = place.shell(&command, &[]);
        let is_refused = ran.text.contains("No such process") || ran.text.contains("not permitted");
        assert!(is_refused, "{command}: {ran:?}");
    }
    // This process would not survive it.
    place.shell("kill -KILL -1", &[]);
}

#[test]
fn an_open_file_of_the_caller_is_not_inherited() {
    let Some(place) = Place::new() else { return };
    let command = place.command("local_shell", &serde_json::json!({"command": "cat <&7"}), &[]);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let script = format!("exec 7<{}/secret; {}", place.home.display(), words.join(" "));
    let ran = Ran::of(Command::new("sh").args(["-c", &script]).env("HOME", &place.home).output().unwrap());
    assert!(ran.text.contains("Bad file descriptor") && !ran.text.contains(SECRET), "{ran:?}");
}

#[test]
fn there_is_no_network() {
    let Some(place) = Place::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (port, udp_port) = (listener.local_addr().unwrap().port(), receiver.local_addr().unwrap().port());
    let send = |kind: &str, address: &str| format!("bash -c 'echo x > /dev/{kind}/{address}'");
    let errors = ["refused", "unreachable", "not permitted", "Name or service", "name resolution"];
    for (kind, address) in [
        ("tcp", format!("127.0.0.1/{port}")),
        ("tcp", "192.0.2.1/80".into()),
        ("udp", "192.0.2.1/80".into()),
        ("tcp", "example.com/80".into()),
        ("udp", "example.com/80".into()),
    ] {
        let ran = place.shell(&send(kind, &address), &[]);
        assert!(errors.iter().any(|error| ran.text.contains(error)), "{kind} {address}: {ran:?}");
    }
    // A datagram to a local address without a receiver is no error, also in a network of its own.
    let local_udp = send("udp", &format!("127.0.0.1/{udp_port}"));
    place.shell(&local_udp, &[]);
    for socket in ["AF_UNIX, SOCK_STREAM, 0", "16, SOCK_RAW, 0", "17, SOCK_RAW, 0", "40, SOCK_STREAM, 0"] {
        let ran = place.shell(&format!("perl -MSocket -e 'socket(S, {socket}) or die $!'"), &[]);
        assert!(ran.text.contains("Operation not permitted"), "{socket}: {ran:?}");
    }
    listener.set_nonblocking(true).unwrap();
    receiver.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nothing has connected");
    assert!(receiver.recv(&mut [0; 8]).is_err(), "nothing has arrived");
    for command in [send("tcp", &format!("127.0.0.1/{port}")), local_udp] {
        let ran = place.shell(&command, &["--allow-network"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    assert!(listener.accept().is_ok());
    assert_eq!(receiver.recv(&mut [0; 8]).unwrap(), 2);
}

#[test]
fn a_command_cannot_start_endless_processes() {
    let Some(place) = Place::new() else { return };
    if place.shell("true", &[]).text.contains("start many processes") {
        eprintln!("SKIPPED: this kernel does not limit the processes of root");
        return;
    }
    let bomb = "bash -c 'bomb() { bomb | bomb & }; bomb; sleep 100'";
    let ran = place.shell(bomb, &["--processes", "64"]);
    assert!(ran.text.contains("it used more than 64 processes"), "{ran:?}");
}

#[test]
fn a_command_cannot_use_up_the_machine() {
    let Some(place) = Place::new() else { return };
    for (command, options, error) in [
        ("sleep 100", ["--timeout-s", "1"], "it ran out of time"),
        ("trap '' TERM INT HUP; while :; do :; done", ["--timeout-s", "1"], "it ran out of time"),
        ("yes", ["--timeout-s", "100"], "it wrote too much output"),
        (
            "for i in 1 2 3 4 5 6 7 8; do perl -e '$x = \"a\" x (50 << 20); sleep 100' & done; wait",
            ["--memory-mib", "200"],
            "it used more than 200 MiB of memory",
        ),
        ("perl -e '$x = \"a\" x (400 << 20)'", ["--memory-mib", "200"], "Out of memory"),
        (
            "perl -e 'truncate(\"a.txt\", 0); open(F, \">big\"); truncate(F, 5 << 30) or die $!'",
            ["--processes", "64"],
            "signal 25",
        ),
    ] {
        let ran = place.shell(command, &options);
        assert!(ran.text.contains(error), "{command}: {ran:?}");
    }
}

#[test]
fn what_a_command_leaves_behind_is_ended() {
    let Some(place) = Place::new() else { return };
    let pipe = place.root.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // The pipe is at its end as soon as no process has it open for writing.
    let reader = thread::spawn(move || {
        let mut text = String::new();
        fs::File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    let ran = place.shell(
        "exec 5>pipe; (setsid sh -c 'trap \"\" TERM HUP; echo left >&5; sleep 1000' &) ; sleep 0.2",
        &[],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(reader.join().unwrap(), "left\n");
}

#[test]
fn file_tools_stay_in_the_folder_also_in_a_race() {
    let Some(place) = Place::new() else { return };
    let call = |tool: &str, args: serde_json::Value| place.call(tool, &args, &[]);
    symlink(place.home.join("secret"), place.root.join("link")).unwrap();
    symlink("/etc/passwd", place.root.join("users")).unwrap();
    for path in
        ["link", "users", "../home/secret", "/etc/passwd", "a.txt/../../home/secret", "/proc/self/environ"]
    {
        let read = call("local_read", serde_json::json!({"path": path}));
        assert!(read.code == 1 && read.text.contains("outside of the folder"), "{path}: {read:?}");
        let write = call("local_write", serde_json::json!({"path": path, "content": "x"}));
        assert!(write.code == 1, "{path}: {write:?}");
        let found = call("local_search", serde_json::json!({"pattern": "secret|root", "path": path}));
        assert!(!found.text.contains(SECRET) && !found.text.contains("root:"), "{path}: {found:?}");
    }
    place.check("file tools");
    assert!(fs::read_to_string("/etc/passwd").unwrap().contains("root:"));

    // A folder turns into a link and back while the tool looks.
    fs::create_dir(place.root.join("real")).unwrap();
    fs::write(place.root.join("real/secret"), "harmless").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (real, link) = (place.root.join("real"), place.root.join("other"));
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let target: &Path = if link.exists() { &place.home } else { &real };
                let _ = fs::remove_file(&link);
                let _ = symlink(target, &link);
                thread::yield_now();
                let _ = fs::remove_file(&link);
                let _ = symlink("real", &link);
            }
        });
        for _ in 0..20 {
            let ran = call("local_read", serde_json::json!({"path": "other/secret"}));
            assert!(!ran.text.contains(SECRET), "{ran:?}");
            call("local_write", serde_json::json!({"path": "other/secret", "content": "harmless"}));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    place.check("a race");
}

#[test]
fn a_folder_with_the_whole_home_is_refused() {
    let Some(place) = Place::new() else { return };
    let ran = place
        .command("local_shell", &serde_json::json!({"command": "true"}), &[])
        .env("HOME", &place.root)
        .output();
    let ran = Ran::of(ran.unwrap());
    assert!(ran.code == 2 && ran.text.contains("whole home folder"), "{ran:?}");
}

#[test]
fn without_a_sandbox_there_is_a_warning_and_still_an_end() {
    let all = tempfile::tempdir().unwrap();
    let place = Place { root: all.path().to_owned(), home: all.path().to_owned(), all };
    let ran = place.shell("echo $SECRET; sleep 100", &["--no-sandbox", "--timeout-s", "1"]);
    assert!(ran.text.contains("warning: commands run without a sandbox"), "{ran:?}");
    assert!(ran.text.contains("it ran out of time") && !ran.text.contains(SECRET), "{ran:?}");
}
