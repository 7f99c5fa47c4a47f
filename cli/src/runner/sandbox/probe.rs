//! Tries from inside what the sandbox must prevent. What counts is what happens, not what a kernel says that it supports.

use rustix::process::{Pid, Resource, getrlimit, getuid, test_kill_process};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions},
    net::UdpSocket,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

/// What a confined process can do nevertheless.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "a list of findings")]
pub struct Holes {
    /// Read files that it may not read.
    pub reads: bool,
    /// Change files that it may only read.
    pub changes: bool,
    /// Change the mode and the times of files that it may only read.
    pub modes: bool,
    /// Send signals to processes outside.
    pub signals: bool,
    /// Use the network.
    pub network: bool,
    /// Start more processes than the limit before the supervisor ends them.
    pub processes: bool,
}

/// Highest number of a process in a namespace with a limit.
const MAX_PROCESS: u32 = 10_000;

/// Tries each of them.
pub fn probe(readable: &Path, hidden: &Path, process: u32) -> Holes {
    let truncate = || OpenOptions::new().read(true).custom_flags(libc::O_TRUNC).open(readable);
    let signal = || test_kill_process(i32::try_from(process).ok().and_then(Pid::from_raw)?).ok();
    // Connecting sends nothing, but needs a route to the address, which is one for examples.
    let connect = || UdpSocket::bind("0.0.0.0:0")?.connect("192.0.2.1:9");
    let mode = fs::metadata(readable).map_or(0o600, |data| data.permissions().mode());
    Holes {
        reads: File::open(hidden).is_ok(),
        changes: OpenOptions::new().append(true).open(readable).is_ok() || truncate().is_ok(),
        modes: fs::set_permissions(readable, fs::Permissions::from_mode(mode)).is_ok(),
        signals: signal().is_some(),
        network: connect().is_ok(),
        processes: !is_limited(),
    }
}

/// Returns whether the kernel limits the number of processes. Its limit for users does not apply to root.
fn is_limited() -> bool {
    let for_user = getrlimit(Resource::Nproc).current.is_some_and(|limit| limit <= MAX_PROCESS.into());
    let highest = fs::read_to_string("/proc/sys/kernel/pid_max").ok();
    let for_all = highest
        .and_then(|number| number.trim().parse().ok())
        .is_some_and(|number: u32| number <= MAX_PROCESS);
    for_all || for_user && !getuid().is_root()
}
