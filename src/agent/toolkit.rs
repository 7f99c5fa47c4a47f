//! The tools of an agent.

use super::DynTool;
use crate::session::tokens;
use crate::turn::selector::ToolIndex;
use crate::types::{ToolSpec, Tools, WaitKind};
use sha2::{Digest, Sha256};
use std::{cell::OnceCell, collections::BTreeSet, rc::Rc};
use thiserror::Error;

/// The name of a tool is used twice, reserved or invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the tool name `{0}` is used twice, reserved, or not 1–64 characters of A–Z a–z 0–9 _ -")]
pub struct ToolNameError(pub String);

/// The names of the tools that find and call those which are not offered; see `find_tools`.
pub(super) const RESERVED: [&str; 2] = ["find_tools", "call_tool"];

/// The names of the tools for what servers of MCP offer besides tools: resources and prompts.
pub const OF_SERVERS: [&str; 2] = ["mcp_read_resource", "mcp_get_prompt"];

/// Returns whether a tool can have this name: 1–64 characters of `A–Z a–z 0–9 _ -`, which all providers accept, and not
/// a reserved one: `find_tools`, `call_tool`, `mcp_read_resource` or `mcp_get_prompt`.
pub fn is_tool_name(name: &str) -> bool {
    !RESERVED.contains(&name) && !OF_SERVERS.contains(&name) && is_well_formed(name)
}

/// Returns whether servers of MCP whose tools have these prefixes may have a tool with this name.
pub fn is_of_servers(name: &str, prefixes: &[String]) -> bool {
    let is_shared = !prefixes.is_empty() && OF_SERVERS.contains(&name);
    is_shared || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn is_well_formed(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Tools sorted by name, so that the prompt is stable.
#[derive(Clone, Default)]
pub struct Toolkit {
    tools: Vec<Entry>,
    /// The specs of all tools, cached for turns without restrictions.
    all: OnceCell<Tools>,
    /// Built when a turn first selects some of the tools.
    index: OnceCell<ToolIndex>,
}

#[derive(Clone)]
struct Entry {
    spec: Rc<ToolSpec>,
    tool: Rc<dyn DynTool>,
    /// Computed once, because schemas are long.
    digest: OnceCell<SpecDigest>,
}

/// The size and the hash of one spec or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpecDigest {
    /// Estimated tokens.
    pub(super) tokens: u64,
    /// SHA-256 of what the model is shown, in the order of the specs.
    pub(super) hash: [u8; 32],
}

impl SpecDigest {
    pub(super) fn of(spec: &ToolSpec) -> Self {
        let shown = (&spec.name, &spec.description, &spec.parameters);
        let hash = Sha256::digest(serde_json::to_vec(&shown).unwrap_or_default()).into();
        Self { tokens: tokens::of_tool(spec), hash }
    }
}

impl FromIterator<SpecDigest> for SpecDigest {
    fn from_iter<I: IntoIterator<Item = SpecDigest>>(specs: I) -> Self {
        let (mut tokens, mut hash) = (0, Sha256::new());
        for spec in specs {
            tokens += spec.tokens;
            hash.update(spec.hash);
        }
        Self { tokens, hash: hash.finalize().into() }
    }
}

impl Toolkit {
    /// Adds a tool.
    ///
    /// # Errors
    /// If the name of the tool is taken, reserved or invalid.
    pub(super) fn add(&mut self, tool: Rc<dyn DynTool>) -> Result<(), ToolNameError> {
        let spec = tool.spec();
        match is_tool_name(&spec.name) {
            true => self.insert(spec, tool),
            false => Err(ToolNameError(spec.name)),
        }
    }

    /// Adds a tool that a server has listed, or one for what servers offer besides tools.
    ///
    /// # Errors
    /// If the name of the tool is taken, reserved for others or invalid.
    pub(super) fn add_listed(&mut self, tool: Rc<dyn DynTool>) -> Result<(), ToolNameError> {
        match OF_SERVERS.contains(&tool.spec().name.as_str()) {
            true => self.add_reserved(tool),
            false => self.add(tool),
        }
    }

    /// Adds a tool whose name may be reserved.
    ///
    /// # Errors
    /// If the name of the tool is taken or invalid.
    pub(super) fn add_reserved(&mut self, tool: Rc<dyn DynTool>) -> Result<(), ToolNameError> {
        self.insert(tool.spec(), tool)
    }

    fn insert(&mut self, spec: ToolSpec, tool: Rc<dyn DynTool>) -> Result<(), ToolNameError> {
        match self.tools.binary_search_by(|entry| entry.spec.name.cmp(&spec.name)) {
            Err(place) if is_well_formed(&spec.name) => {
                self.tools.insert(place, Entry { spec: Rc::new(spec), tool, digest: OnceCell::new() });
                self.forget();
                Ok(())
            }
            _ => Err(ToolNameError(spec.name)),
        }
    }

    /// Removes all tools that do not meet a condition.
    pub(super) fn retain(&mut self, keeps: impl Fn(&ToolSpec) -> bool) {
        self.tools.retain(|entry| keeps(&entry.spec));
        self.forget();
    }

    /// Drops what was computed from the tools.
    fn forget(&mut self) {
        self.all.take();
        self.index.take();
    }

    /// Finds a tool by name.
    pub fn get(&self, name: &str) -> Option<(&ToolSpec, &Rc<dyn DynTool>)> {
        self.entry(name).map(|entry| (&*entry.spec, &entry.tool))
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let place = self.tools.binary_search_by(|entry| entry.spec.name.as_str().cmp(name)).ok()?;
        self.tools.get(place)
    }

    /// Finds the spec of a tool by name.
    pub fn spec(&self, name: &str) -> Option<&ToolSpec> {
        self.get(name).map(|(spec, _)| spec)
    }

    /// Returns the specs of the tools that a turn may use, sorted by name. `None` allows all.
    pub fn specs(&self, allowed: Option<&[String]>) -> Tools {
        let specs = || self.tools.iter().map(|entry| &entry.spec);
        match allowed {
            Some(names) => {
                let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                specs().filter(|spec| names.contains(spec.name.as_str())).cloned().collect()
            }
            None => Rc::clone(self.all.get_or_init(|| specs().cloned().collect())),
        }
    }

    /// Returns the words of all tools.
    pub(super) fn index(&self) -> &ToolIndex {
        self.index.get_or_init(|| self.tools.iter().map(|entry| &entry.spec).collect())
    }

    /// Returns the digest of these specs: of tools of the toolkit, which are unchanged, and of the client.
    pub(super) fn digest(&self, specs: &[Rc<ToolSpec>]) -> SpecDigest {
        // A tool that the client runs may replace one of the toolkit.
        let is_own = |entry: &&Entry, spec: &Rc<ToolSpec>| {
            spec.suspends != Some(WaitKind::External) || entry.spec == *spec
        };
        let digest = |spec: &Rc<ToolSpec>| match self.entry(&spec.name).filter(|entry| is_own(entry, spec)) {
            Some(entry) => *entry.digest.get_or_init(|| SpecDigest::of(&entry.spec)),
            None => SpecDigest::of(spec),
        };
        specs.iter().map(digest).collect()
    }

    /// Returns the names of all tools.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|entry| entry.spec.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ExternalTool;
    use crate::tools::{CurrentTime, Echo};
    use serde_json::json;

    #[test]
    fn all_specs_are_copied_once() {
        let names = |specs: &[Rc<ToolSpec>]| specs.iter().map(|spec| spec.name.clone()).collect::<Vec<_>>();
        let mut toolkit = Toolkit::default();
        toolkit.add(Rc::new(Echo)).unwrap();
        assert_eq!(names(&toolkit.specs(None)), ["echo"]);
        toolkit.add(Rc::new(CurrentTime)).unwrap();
        let all = toolkit.specs(None);
        assert_eq!(names(&all), ["current_time", "echo"]);
        assert!(Rc::ptr_eq(&all, &toolkit.specs(None)));
        assert_eq!(names(&toolkit.specs(Some(&["echo".into()]))), ["echo"]);
    }

    #[test]
    fn names_of_tools_for_servers_are_reserved() {
        let named = |name: &str| -> Rc<dyn DynTool> {
            let declared = serde_json::from_value(json!({"name": name, "description": ""})).unwrap();
            Rc::new(ExternalTool::new(declared).unwrap())
        };
        let mut toolkit = Toolkit::default();
        for name in RESERVED.into_iter().chain(OF_SERVERS) {
            assert!(!is_tool_name(name));
            toolkit.add(named(name)).unwrap_err();
            assert_eq!(toolkit.add_listed(named(name)).is_ok(), OF_SERVERS.contains(&name));
        }
        toolkit.add_listed(named("crm__add")).unwrap();
        toolkit.add_listed(named("crm__add")).unwrap_err();
    }

    #[test]
    fn the_digest_is_that_of_the_named_specs() {
        let mut toolkit = Toolkit::default();
        toolkit.add(Rc::new(Echo)).unwrap();
        toolkit.add(Rc::new(CurrentTime)).unwrap();
        for names in [&["echo"][..], &["current_time", "echo"]] {
            let allowed: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let specs = toolkit.specs(Some(&allowed));
            assert_eq!(toolkit.digest(&specs), specs.iter().map(|spec| SpecDigest::of(spec)).collect());
        }
        let suspends = Some(WaitKind::External);
        let of_client = [Rc::new(ToolSpec { description: "Other.".into(), suspends, ..Echo.spec() })];
        assert_eq!(toolkit.digest(&of_client), of_client.iter().map(|spec| SpecDigest::of(spec)).collect());
    }
}
