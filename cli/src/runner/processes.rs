//! The processes that a process has started, as `/proc` shows them.

use rustix::process::{Pid, Signal, kill_process};
use std::{fs, path::PathBuf};

/// What processes use up together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Number of processes and threads.
    pub processes: u32,
    /// Memory that belongs to them alone, in bytes.
    pub memory: u64,
}

/// Children, their children, and so on.
pub struct Tree(Vec<u32>);

impl Tree {
    /// Returns the descendants of this process.
    pub fn of_this_process() -> Self {
        let mut found = children(std::process::id());
        let mut at = 0;
        while let Some(id) = found.get(at) {
            let more = children(*id);
            found.extend(more);
            at += 1;
        }
        Self(found)
    }

    /// Returns what they use up.
    pub fn usage(&self) -> Usage {
        self.0.iter().fold(Usage::default(), |sum, id| Usage {
            processes: sum.processes + threads(*id),
            memory: sum.memory + memory(*id),
        })
    }

    /// Kills all of them.
    pub fn kill(&self) {
        for id in &self.0 {
            if let Some(id) = Pid::from_raw(id.cast_signed()) {
                // It may have ended by itself.
                let _ = kill_process(id, Signal::KILL);
            }
        }
    }
}

/// Returns the children of all threads of a process.
fn children(id: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn threads(id: u32) -> u32 {
    let threads = fs::read_dir(format!("/proc/{id}/task")).map_or(0, Iterator::count);
    u32::try_from(threads).unwrap_or(u32::MAX)
}

/// Returns the memory of a process without what it shares, such as the files of its program.
fn memory(id: u32) -> u64 {
    let path = PathBuf::from(format!("/proc/{id}/statm"));
    let text = fs::read_to_string(path).unwrap_or_default();
    let pages: Vec<u64> = text.split(' ').map_while(|field| field.parse().ok()).collect();
    let [_, resident, shared, ..] = pages[..] else { return 0 };
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_tree_has_grandchildren() {
        let script = "sleep 60 & echo started; wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let output = shell.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        let sleeping = children(shell.id());
        assert_eq!(sleeping.len(), 1);
        // A list of threads can lack some while another one ends, as those of other tests do. A supervisor has one thread.
        let mut trees = (0..1_000).map(|_| Tree::of_this_process().0);
        let is_whole = |found: &Vec<u32>| found.contains(&shell.id()) && found.contains(&sleeping[0]);
        assert!(trees.any(|found| is_whole(&found)));
        assert!(Tree(vec![shell.id()]).usage().memory > 0);
        Tree([vec![shell.id()], sleeping].concat()).kill();
        shell.wait().unwrap();
    }
}
