//! `local_repo_tree`.

use super::{ToolError, parse, walk::walk};
use crate::runner::root::Root;
use serde::Deserialize;
use serde_json::Value;

/// Number of paths in a listing.
const MAX_PATHS: usize = 800;
/// Number of levels in a listing.
const MAX_DEPTH: usize = 8;

#[derive(Deserialize)]
struct Tree {
    path: Option<String>,
    depth: Option<usize>,
}

pub(super) fn tree(args: Value, root: &Root) -> Result<String, ToolError> {
    let Tree { path, depth } = parse(args)?;
    let depth = depth.unwrap_or(MAX_DEPTH).clamp(1, MAX_DEPTH);
    let files = walk(root, path.as_deref(), None, Some(depth))?.files;
    if files.is_empty() {
        return Ok("[the folder is empty]".into());
    }
    let mut text: String = files.iter().take(MAX_PATHS).map(|path| format!("{}\n", path.display())).collect();
    if files.len() > MAX_PATHS {
        text += &format!("[{} more; list a subfolder, or fewer levels]\n", files.len() - MAX_PATHS);
    }
    Ok(text)
}
