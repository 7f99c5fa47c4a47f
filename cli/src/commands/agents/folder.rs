//! The folder of an agent: its definition as files. docs/agents.md describes them.

use crate::error::{Error, InFile as _, Result};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use walkdir::WalkDir;

/// The fields of a definition.
type Fields = Map<String, Value>;

/// The files that make a folder the folder of an agent.
const MARKERS: &[&str] = &["agent.toml", "AGENTS.md"];
/// The folders whose files become files of the agent.
const FOLDERS: &[&str] = &["knowledge", "skills"];
/// What else may be in the folder of an agent.
const OTHERS: &[&str] = &["subagents", "tools.json"];
/// What the server adds to a definition.
const OF_THE_SERVER: &[&str] = &["id", "version", "created_at", "created_by"];

/// Returns the folders of agents at a path: the folder itself, or those in it.
pub(super) fn agents(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_agent = |folder: &Path| MARKERS.iter().any(|name| folder.join(name).is_file());
    if is_agent(folder) {
        return Ok(vec![folder.to_owned()]);
    }
    let entries = fs::read_dir(folder).in_file(folder)?;
    let mut found: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_agent(path)).collect();
    found.sort();
    if found.is_empty() {
        return Err(fault(folder, "has no agent: a folder with agent.toml or AGENTS.md"));
    }
    Ok(found)
}

/// Reads the folder of an agent as a definition.
pub(super) fn read(folder: &Path) -> Result<Value> {
    for entry in fs::read_dir(folder).in_file(folder)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_known = [MARKERS, FOLDERS, OTHERS].iter().any(|names| names.contains(&name.as_str()));
        // Some files are for people only.
        if !is_known && !name.starts_with('.') && name != "README.md" && !name.starts_with("LICENSE") {
            return Err(fault(&entry.path(), "is not a file of an agent"));
        }
    }
    let mut definition = Fields::new();
    let file = folder.join("agent.toml");
    if file.exists() {
        let fields = toml::from_str(&text(&file)?).map_err(|e| fault(&file, &e.to_string()))?;
        add(&mut definition, &file, fields)?;
    }
    let file = folder.join("AGENTS.md");
    if file.exists() {
        let (mut fields, body) = front_matter(&file)?;
        if !body.is_empty() {
            fields.insert("instructions".into(), body.into());
        }
        add(&mut definition, &file, fields)?;
    }
    let file = folder.join("tools.json");
    if file.exists() {
        add(&mut definition, &file, tools(&file)?)?;
    }
    let subagents = folder.join("subagents");
    if subagents.exists() {
        let kinds =
            subagent_files(&subagents)?.iter().map(|file| subagent(file)).collect::<Result<Vec<_>>>()?;
        add(&mut definition, &subagents, Fields::from_iter([("subagents".to_owned(), kinds.into())]))?;
    }
    let mut files = Fields::new();
    for name in FOLDERS {
        collect(folder, &folder.join(name), &mut files)?;
    }
    if !files.is_empty() {
        add(&mut definition, folder, Fields::from_iter([("files".to_owned(), files.into())]))?;
    }
    Ok(definition.into())
}

/// Returns the files of the folder of an agent with this definition, by their path in it. What has no file of its own is
/// in agent.toml.
pub(super) fn files(definition: Value) -> Result<BTreeMap<String, String>> {
    let Value::Object(mut fields) = without_nulls(definition) else {
        return Err(Error::Response("the definition is not an object".into()));
    };
    fields.retain(|name, _| !OF_THE_SERVER.contains(&name.as_str()));
    let mut files = BTreeMap::new();
    // A text that a Markdown file would not return unchanged stays in agent.toml.
    let is_plain = |text: &str| text == text.trim() && !text.is_empty() && !text.starts_with("---");
    if fields.get("instructions").and_then(Value::as_str).is_some_and(is_plain)
        && let Some(Value::String(text)) = fields.remove("instructions")
    {
        files.insert("AGENTS.md".to_owned(), text + "\n");
    }
    let has_folder = |path: &String| FOLDERS.iter().any(|name| path.starts_with(&format!("{name}/")));
    if fields.get("files").and_then(Value::as_object).is_some_and(|all| all.keys().all(has_folder))
        && let Some(Value::Object(all)) = fields.remove("files")
    {
        files
            .extend(all.into_iter().map(|(path, text)| (path, text.as_str().unwrap_or_default().to_owned())));
    }
    let kinds = fields.get("subagents").and_then(Value::as_array);
    let pages =
        kinds.map(|kinds| kinds.iter().map(|kind| subagent_page(kind, is_plain)).collect::<Option<Vec<_>>>());
    if let Some(Some(pages)) = pages {
        fields.remove("subagents");
        files.extend(pages);
    }
    if !fields.is_empty() {
        let text = toml::to_string_pretty(&fields).map_err(|e| Error::Response(e.to_string()))?;
        files.insert("agent.toml".to_owned(), text);
    }
    Ok(files)
}

/// Returns the file of a kind of subagent; `None` if it would not return the kind unchanged.
fn subagent_page(kind: &Value, is_plain: impl Fn(&str) -> bool) -> Option<(String, String)> {
    let mut fields = kind.as_object()?.clone();
    // A kind without instructions, such as a remote agent, has none.
    let body = fields.remove("instructions").unwrap_or_else(|| Value::String(String::new()));
    let (Value::String(id), Value::String(body)) = (fields.remove("id")?, body) else { return None };
    let is_name = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if !is_name || !(body.is_empty() || is_plain(&body)) {
        return None;
    }
    let matter = serde_saphyr::to_string(&Value::from(fields)).ok()?;
    Some((format!("subagents/{id}.md"), format!("---\n{}\n---\n{body}\n", matter.trim_end())))
}

/// Reads a kind of subagent: the name of its file is its id, and the text is its instructions.
fn subagent(file: &Path) -> Result<Value> {
    let (mut fields, body) = front_matter(file)?;
    let id = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // Two other names of the field are common in files of other programs.
    for name in ["steps", "maxIters"] {
        if let Some(steps) = fields.remove(name) {
            fields.entry("max_steps").or_insert(steps);
        }
    }
    fields.entry("id").or_insert(id.into());
    if !body.is_empty() {
        fields.insert("instructions".into(), body.into());
    }
    Ok(fields.into())
}

fn subagent_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).in_file(folder)?.flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    files.sort();
    Ok(files)
}

/// Reads what `tools.json` says as fields of a definition.
fn tools(file: &Path) -> Result<Fields> {
    let mut found: Fields = serde_json::from_str(&text(file)?).map_err(|e| fault(file, &e.to_string()))?;
    let (allow, deny, servers) = (found.remove("allow"), found.remove("deny"), found.remove("mcpServers"));
    if let Some(name) = found.keys().next() {
        return Err(fault(file, &format!("unknown field {name:?}; expected allow, deny and mcpServers")));
    }
    let mut fields = Fields::new();
    if allow.is_some() || deny.is_some() {
        let list = |names: Option<Value>| names.unwrap_or_else(|| json!([]));
        fields.insert("tools".into(), json!({"allow": list(allow), "deny": list(deny)}));
    }
    if let Some(servers) = servers {
        fields.insert("mcp_servers".into(), servers);
    }
    Ok(fields)
}

/// Adds the fields of a file, which no other file may set.
fn add(definition: &mut Fields, file: &Path, fields: Fields) -> Result<()> {
    for (name, value) in fields {
        if definition.contains_key(&name) {
            return Err(fault(file, &format!("sets {name}, which another file sets, too")));
        }
        definition.insert(name, value);
    }
    Ok(())
}

/// Reads the texts of a folder by their path from the agent's folder.
fn collect(root: &Path, folder: &Path, files: &mut Fields) -> Result<()> {
    let is_visible = |entry: &walkdir::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
    let walk = WalkDir::new(folder).sort_by_file_name().into_iter().filter_entry(is_visible);
    for entry in walk.take_while(|_| folder.exists()) {
        let entry = entry.map_err(|e| Error::Io(e.into()))?;
        if entry.file_type().is_file() {
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
            let names: Vec<_> = path.components().map(|name| name.as_os_str().to_string_lossy()).collect();
            files.insert(names.join("/"), text(entry.path())?.into());
        } else if !entry.file_type().is_dir() {
            return Err(fault(entry.path(), "is neither a file nor a folder"));
        }
    }
    Ok(())
}

/// Splits a Markdown file into its front matter and the text below it.
fn front_matter(file: &Path) -> Result<(Fields, String)> {
    let source = text(file)?.replace("\r\n", "\n");
    let Some((matter, body)) = source.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---")) else {
        return Ok((Fields::new(), source.trim().to_owned()));
    };
    let fields = serde_saphyr::from_str::<Fields>(matter).map_err(|e| fault(file, &e.to_string()))?;
    Ok((fields, body.trim().to_owned()))
}

fn text(file: &Path) -> Result<String> {
    fs::read_to_string(file).in_file(file)
}

/// Returns the value with sorted fields and without nulls, which TOML does not have, and which mean the same as an
/// absent field.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            // Sorted, so that the same definition always gives the same files.
            let sorted: BTreeMap<_, _> = kept.map(|(name, value)| (name, without_nulls(value))).collect();
            sorted.into_iter().collect::<Fields>().into()
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect::<Vec<_>>().into(),
        other => other,
    }
}

fn fault(file: &Path, why: &str) -> Error {
    Error::Usage(format!("{}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn write(folder: &Path, files: &BTreeMap<String, String>) {
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_definition_survives_the_way_through_a_folder() {
        let definition = json!({
            "name": "Support", "instructions": "Be kind.\n\n- Be brief.", "thinking": "low",
            "tools": {"allow": [], "deny": ["web_fetch"]},
            "budget": {"defaults": {"max_steps": 10, "max_cost_usd": 0.5}},
            "files": {"knowledge/KNOWLEDGE.md": "# Shop\n", "skills/refund/SKILL.md": "---\nname: refund\n---\nx"},
            "subagents": [{"id": "reader", "description": "Reads: files.", "tools": ["read_file"], "max_steps": 8,
                "instructions": "Report."},
                {"id": "remote", "description": "Knows.", "remote": {"url": "https://example.com/a2a"}}],
        });
        let mut stored = definition.clone();
        stored["id"] = "support".into();
        stored["version"] = 7.into();
        stored["description"] = Value::Null;
        let folder = tempfile::tempdir().unwrap();
        let files = files(stored).unwrap();
        let names: Vec<_> = files.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "AGENTS.md",
                "agent.toml",
                "knowledge/KNOWLEDGE.md",
                "skills/refund/SKILL.md",
                "subagents/reader.md",
                "subagents/remote.md"
            ]
        );
        write(folder.path(), &files);
        assert_eq!(read(folder.path()).unwrap(), definition);
    }

    #[test]
    fn what_a_file_of_its_own_would_change_stays_in_agent_toml() {
        let definition = json!({
            "instructions": "  indented", "files": {"notes/a.md": "x"},
            "subagents": [{"id": "a b", "instructions": "x"}],
        });
        let folder = tempfile::tempdir().unwrap();
        let files = files(definition.clone()).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["agent.toml"]);
        write(folder.path(), &files);
        assert_eq!(read(folder.path()).unwrap(), definition);
    }

    #[test]
    fn the_examples_are_agents() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agents");
        let found = agents(&folder).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["coder", "researcher", "support"]);
        let researcher = read(&found[1]).unwrap();
        assert_eq!(researcher["subagents"][0]["max_steps"], 8);
        assert!(researcher["instructions"].as_str().unwrap().starts_with("You answer questions in depth."));
    }

    #[test]
    fn faults_name_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let fails = |name: &str, text: &str| {
            write(folder.path(), &BTreeMap::from([(name.to_owned(), text.to_owned())]));
            let error = read(folder.path()).unwrap_err().to_string();
            fs::remove_file(folder.path().join(name)).unwrap();
            error
        };
        assert!(fails("agnet.toml", "").contains("agnet.toml: is not a file of an agent"));
        assert!(fails("agent.toml", "name = ").contains("agent.toml: "));
        assert!(fails("tools.json", "{\"permit\": []}").contains("unknown field \"permit\""));
        write(folder.path(), &BTreeMap::from([("agent.toml".to_owned(), "instructions = 'a'".to_owned())]));
        assert!(fails("AGENTS.md", "b").contains("sets instructions, which another file sets, too"));
    }
}
