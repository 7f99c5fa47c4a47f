//! The archive of a session or run.

use crate::{
    context::Context,
    error::{InFile as _, Result},
};
use serde_json::json;
use std::path::Path;

/// Writes the archive of the session or run at this path. The file appears only when it is complete.
pub(in crate::commands) async fn write(context: &Context, path: &str, file: &Path) -> Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = tempfile::NamedTempFile::new_in(folder).in_file(folder)?;
    let bar = context.out.byte_counter("the archive");
    let api = context.api()?;
    let request = api.get(&format!("{path}/export"));
    let bytes = request.write_to(temporary.as_file(), |length| bar.set_position(length)).await?;
    bar.finish_and_clear();
    temporary.persist(file).map_err(|e| e.error).in_file(file)?;
    let written = json!({ "file": file, "bytes": bytes });
    context.out.value(&written, |_| format!("{}: {bytes} bytes", file.display()))
}
