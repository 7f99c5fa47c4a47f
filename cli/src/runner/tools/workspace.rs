//! The file tools of the server, which work on the folder if it is the workspace of the session.

mod folder;
#[cfg(test)]
mod tests;

use super::{Kind, Tool, ToolError};
use crate::runner::root::{MAX_FILE, Root};
use edge_harness::{
    ports::{Clock, FileError},
    tools::files::{self, FileAccess, FileToolError, MAX_OUTPUT},
    types::Timestamp,
    workspace::{Workspace, pace::SearchLimits},
};
use folder::Folder;
use futures::{
    FutureExt as _,
    executor::block_on,
    future::{LocalBoxFuture, ready},
};
use serde_json::Value;
use std::{rc::Rc, time::Duration};

/// The file tools.
pub(super) const TOOLS: [Tool; files::TOOLS.len()] = {
    let mut tools = [Tool { name: "", kind: Kind::WriteWorkspace }; files::TOOLS.len()];
    let mut place = 0;
    while place < tools.len() {
        let (name, effect) = files::TOOLS[place];
        let kind = if effect.is_read() { Kind::ReadWorkspace } else { Kind::WriteWorkspace };
        tools[place] = Tool { name, kind };
        place += 1;
    }
    tools
};

/// Length of the longest result, in bytes.
pub(super) const MAX_RESULT: usize = 4 * MAX_OUTPUT;

/// The limits of a search on this machine, where it shares its process with nothing else. The time of a call is limited, too.
const LIMITS: SearchLimits = SearchLimits {
    listed: 200_000,
    files: 20_000,
    bytes: 256 << 20,
    file: MAX_FILE,
    work: 1 << 40,
    turn_work: 1 << 40,
};

/// Runs a call of a file tool on the folder.
pub(super) fn run(name: &str, args: Value, root: &Root) -> Result<String, ToolError> {
    let access = FileAccess {
        files: Workspace::of(Rc::new(Folder::new(root.try_clone()?))),
        clock: Rc::new(SystemClock),
        search_work: Rc::default(),
        limits: LIMITS,
    };
    let done = block_on(files::run(name, args, &access));
    let done = done.ok_or_else(|| ToolError::Other(format!("the runner has no tool {name}")))?;
    done.map_err(|error| match error {
        // The cause is about the user's own folder, so the model may read it.
        FileToolError::File { error: FileError::Unavailable(cause), .. } => ToolError::Other(cause),
        error => ToolError::Other(error.to_string()),
    })
}

/// The clock of this machine. A search that pauses goes on at once.
struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(chrono::Utc::now().timestamp_millis()).unwrap_or_default())
    }

    fn sleep(&self, _span: Duration) -> LocalBoxFuture<'static, ()> {
        ready(()).boxed_local()
    }
}
