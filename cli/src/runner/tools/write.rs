//! `local_write`.

use super::{ToolError, parse};
use crate::runner::root::Root;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Write {
    path: String,
    content: String,
}

pub(super) fn write(args: Value, root: &Root) -> Result<String, ToolError> {
    let Write { path, content } = parse(args)?;
    let path = root.relative(&path)?;
    let verb = if root.exists(&path) { "replaced" } else { "created" };
    root.prepare(&path, &content)?.commit()?;
    Ok(format!("{verb} {} ({} lines)", path.display(), content.lines().count()))
}
