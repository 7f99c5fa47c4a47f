//! Temporary folders of the tests.

use super::process;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
};

/// Start of the names. The process id of the owner and a number follow.
const PREFIX: &str = "edge-harness-";

/// A temporary folder, deleted on drop. The name contains the id of the process, so that a later run can delete the
/// folders of a process that was killed.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder. The first call of a process deletes the folders of processes that have ended.
    pub fn create() -> Self {
        static SWEEP: Once = Once::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let parent = std::env::temp_dir();
        SWEEP.call_once(|| sweep(&parent));
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        // An earlier process with the same id may have left one.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Deletes the folders in `parent` whose process has ended.
pub fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(|pid| !process::exists(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the process id in the name of a folder.
fn owner(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}
