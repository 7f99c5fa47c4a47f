//! The archive of a session or run.

use crate::{
    context::Context,
    error::{InFile as _, Result},
};
use serde_json::json;
use std::{io::Write as _, path::Path};

/// Writes the archive of the session or run at this path. The file appears only when it is complete.
pub(in crate::commands) async fn write(context: &Context, path: &str, file: &Path) -> Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(folder).in_file(folder)?;
    let bytes = context.api()?.get(&format!("{path}/export")).bytes().await?;
    temporary.write_all(&bytes).in_file(file)?;
    temporary.persist(file).map_err(|e| e.error).in_file(file)?;
    let written = json!({ "file": file, "bytes": bytes.len() });
    context.out.value(&written, |_| format!("{}: {} bytes", file.display(), bytes.len()))
}
