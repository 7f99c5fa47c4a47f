//! Information from `/proc` about the processes of a group.

use std::{fs, path::Path, time::Duration};

/// A running process.
pub struct Process {
    pub pid: u32,
    pub name: String,
    group: u32,
    /// User and system time consumed.
    pub cpu: Duration,
}

impl Process {
    /// Memory in use, in bytes.
    pub fn rss(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// Maximum memory in use since the start, or the last [`Process::reset_peak`], in bytes.
    pub fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// Sets the peak to the memory in use.
    pub fn reset_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.pid), "5").unwrap();
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|kb| kb.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may contain any character.
        let (head, tail) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        if matches!(fields[0], "Z" | "X") {
            return None;
        }
        let ticks = |field: usize| fields[field].parse::<u64>().ok();
        // Linux reports times to programs in hundredths of a second, regardless of its clock rate.
        let cpu = Duration::from_millis(10 * (ticks(11)? + ticks(12)?));
        Some(Self { pid, name, group: fields[2].parse().ok()?, cpu })
    }
}

/// Returns the running processes of a group.
pub fn group(group: u32) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Process::read(entry.file_name().to_str()?.parse().ok()?))
        .filter(|process| process.group == group)
        .collect()
}

/// Returns whether a process runs, or has ended and waits for its parent. Without `/proc`, all processes count as
/// running.
pub fn exists(pid: u32) -> bool {
    !Path::new("/proc/self").exists() || Path::new(&format!("/proc/{pid}")).exists()
}
