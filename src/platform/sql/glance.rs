//! The query that reads what a prompt shows of several trees of files (`migrations/0002_workspace.sql`).

use super::{Rows, SqlError, Statement, Value, json};
use crate::ports::filesystem::{Content, Entry, Glance, GlanceResult, Heads};
use crate::types::{FilePath, TenantId, Timestamp};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

/// The parameters that all trees share; then follow their scopes.
const SHARED_ARGS: usize = 11;

/// A file of a tree. If `kind` is null, only its path was selected.
#[derive(Deserialize)]
struct GlanceRow {
    part: f64,
    path: FilePath,
    etag: String,
    bytes: f64,
    updated_at: f64,
    kind: Option<String>,
    content: Option<String>,
}

/// Returns the statement that queries trees of one database, each with the number of its part of the result; see
/// [`read_glance`].
///
/// # Errors
/// If a parameter cannot be written as JSON.
pub fn glance<'a>(
    tenant: &'a TenantId,
    scopes: &[(usize, &'a str)],
    glance: &Glance<'a>,
) -> Result<Statement<'a>, SqlError> {
    let of_tree = |(place, (part, _)): (usize, &(usize, &str))| {
        let own = format!("FROM files WHERE tenant = ?1 AND scope = ?{}", SHARED_ARGS + 1 + place);
        let heads = glance.heads.map(|heads| format!(" UNION ALL {}", head_paths(&own, &heads)));
        // D1 allows five terms in a compound select, so both kinds of files are one term.
        format!(
            "SELECT {part} AS part, path, etag, bytes, updated_at, kind, CASE \
             WHEN path IN (SELECT value FROM json_each(?2)) THEN \
               CASE WHEN etag IN (SELECT value FROM json_each(?3)) THEN NULL \
               WHEN kind = 'text' THEN substr(content, 1, ?4) ELSE content END \
             WHEN etag IN (SELECT value FROM json_each(?9)) THEN NULL \
             WHEN kind = 'text' THEN substr(content, 1, ?10) ELSE '' END AS content \
             {own} AND path IN (SELECT value FROM json_each(?2){}) \
             UNION ALL SELECT * FROM (SELECT {part}, path, '', 0, 0, NULL, NULL \
             {own} AND path >= ?5 AND path < ?6 ORDER BY path LIMIT {})",
            heads.unwrap_or_default(),
            glance.limit
        )
    };
    let sql = scopes.iter().enumerate().map(of_tree).collect::<Vec<_>>().join(" UNION ALL ");
    let wanted: Vec<&str> = glance.wanted.iter().map(FilePath::as_str).collect();
    let end = |folder: Option<String>| folder.unwrap_or_else(|| "\u{10ffff}".to_owned());
    let folder = glance.heads.map(|heads| heads.folder);
    let known = glance.heads.map(|heads| heads.known).unwrap_or_default();
    let mut args: Vec<Value<'a>> = vec![
        tenant.as_str().into(),
        json(&wanted)?.into(),
        json(&glance.known)?.into(),
        (glance.max_chars as u64).into(),
        glance.folder.as_str().into(),
        end(glance.folder.end()).into(),
        folder.map_or("", |folder| folder.as_str()).into(),
        end(folder.and_then(|folder| folder.end())).into(),
        json(&known)?.into(),
        glance.heads.map_or(0, |heads| heads.max_chars as u64).into(),
        glance.heads.map_or("", |heads| heads.file).into(),
    ];
    args.extend(scopes.iter().map(|(_, scope)| Value::from(*scope)));
    Ok(Statement::new(sql, args))
}

/// Returns a query for the paths of the heads. It seeks from one subfolder to the next, so it reads one row for each,
/// however many files they have, and one for the head. The
/// recursion returns them by name, so the limit keeps the first ones.
fn head_paths(own: &str, heads: &Heads<'_>) -> String {
    let first =
        |from: &str| format!("(SELECT path {own} AND path {from} AND path < ?8 ORDER BY path LIMIT 1)");
    // The position of the slash after the name of the subfolder; 0 for a file of the folder.
    let slash = "instr(substr(folders.path, length(?7) + 1), '/')";
    let subfolder = format!("substr(folders.path, 1, length(?7) + {slash})");
    let next =
        first(&format!("> CASE {slash} WHEN 0 THEN folders.path ELSE {subfolder} || '\u{10ffff}' END"));
    format!(
        "SELECT * FROM (WITH RECURSIVE folders(path, number) AS (SELECT {}, 1 UNION ALL \
         SELECT {next}, number + 1 FROM folders WHERE folders.path IS NOT NULL AND number < {}) \
         SELECT head FROM (SELECT {subfolder} || ?11 AS head FROM folders WHERE {slash} > 0) \
         WHERE EXISTS (SELECT 1 {own} AND path = head AND bytes > 0) LIMIT {})",
        first(">= ?7"),
        heads.folders,
        heads.limit
    )
}

/// Reads the result of [`glance`], which has `parts` parts, into `seen`.
///
/// # Errors
/// If a row has another form.
pub fn read_glance(rows: &impl Rows, wanted: &[FilePath], seen: &mut [GlanceResult]) -> Result<(), SqlError> {
    for row in rows.read::<GlanceRow>()? {
        let GlanceRow { part, path, etag, bytes, updated_at, kind, content } = row;
        let Some(glimpse) = seen.get_mut(part as usize) else { continue };
        let Some(kind) = kind else {
            glimpse.listed.push(path);
            continue;
        };
        let is_wanted = wanted.contains(&path);
        let entry = Entry { path, etag, bytes: bytes as u64, updated_at: Timestamp(updated_at as u64) };
        match is_wanted {
            true => glimpse.files.push((entry, content.map(|text| content_of(&kind, text)).transpose()?)),
            false => glimpse.heads.push((entry, content.map(Into::into))),
        }
    }
    Ok(())
}

/// Reads the columns `kind` and `content`.
///
/// # Errors
/// If the content is not base64 though `kind` says so.
pub fn content_of(kind: &str, content: String) -> Result<Content, SqlError> {
    Ok(match kind {
        "blob" => Content::Blob(content),
        "text" => Content::Inline(content.into()),
        _ => Content::Inline(STANDARD.decode(content).map_err(SqlError::new)?.into()),
    })
}
