//! Checks of lists that both settings and definitions of agents have.

use super::ValueError;
use crate::agent::toolkit::is_tool_name;
use crate::agent::{Judge, external_tool::Declared};
use crate::types::{Mode, SubagentKind, id};
use std::collections::BTreeSet;

/// Maximum number of judges.
pub const MAX_JUDGES: usize = 8;
/// Maximum number of modes.
pub const MAX_MODES: usize = 16;
/// Maximum number of kinds of subagents.
pub const MAX_SUBAGENTS: usize = 16;
/// Maximum number of external tools.
pub const MAX_EXTERNAL: usize = 32;
/// Maximum number of HTTP tools.
pub const MAX_HTTP: usize = 64;
/// Minimum number of tokens at which messages are observed or notes rewritten. With fewer, it would happen every few
/// words.
pub const MIN_OBSERVED: u64 = 500;

/// A fault of one entry of a list.
pub struct EntryFault {
    /// The position of the entry.
    pub index: usize,
    /// The name of the entry.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

/// Returns the faults of kinds of subagents, besides the tools and models that they name.
pub fn subagents(kinds: &[SubagentKind]) -> Vec<EntryFault> {
    let check = |kind: &SubagentKind| match kind {
        kind if !id::is_valid(&kind.id) => Some("is not an id"),
        kind if kind.remote.is_some() && kind.has_local_settings() => {
            Some("a remote agent has its own instructions, model, tools, steps, workspace and skills")
        }
        kind if kind.max_steps == Some(0) => Some("`max_steps` must be at least 1"),
        _ => None,
    };
    entries(kinds, |kind| &kind.id, check, MAX_SUBAGENTS)
}

/// Returns the faults of judges, besides the models that they name.
pub fn judges(judges: &[Judge]) -> Vec<EntryFault> {
    let check = |judge: &Judge| match judge {
        judge if !id::is_valid(&judge.name) => Some("is not an id"),
        judge if !(0.0..=1.0).contains(&judge.sample) => Some("`sample` must be from 0 to 1"),
        _ => None,
    };
    entries(judges, |judge| &judge.name, check, MAX_JUDGES)
}

/// Returns the modes that are too many. [`Modes::new`](crate::session::Modes::new) finds all other faults.
pub fn modes(modes: &[Mode]) -> Vec<EntryFault> {
    let why = || format!("at most {MAX_MODES} entries are allowed");
    let fault = |(index, mode): (usize, &Mode)| EntryFault { index, name: mode.id.clone(), why: why() };
    modes.iter().enumerate().skip(MAX_MODES).map(fault).collect()
}

/// Returns the faults of external tools, besides their names and schemas.
pub fn external_tools(tools: &[Declared]) -> Vec<EntryFault> {
    let check = |tool: &Declared| {
        let why = "the name is reserved, or not 1 to 64 of A-Z a-z 0-9 _ -";
        (!is_tool_name(&tool.name)).then_some(why)
    };
    entries(tools, |tool| &tool.name, check, MAX_EXTERNAL)
}

/// Checks each entry of a list, that no name occurs twice, and that there are at most `most` entries.
fn entries<T>(
    list: &[T],
    name: impl Fn(&T) -> &str,
    check: impl Fn(&T) -> Option<&'static str>,
    most: usize,
) -> Vec<EntryFault> {
    let mut seen = BTreeSet::new();
    let fault = |(index, entry): (usize, &T)| {
        let own = name(entry).to_owned();
        let is_new = seen.insert(own.clone());
        let why = match check(entry) {
            _ if index >= most => Some(format!("at most {most} entries are allowed")),
            Some(why) => Some(why.to_owned()),
            None if !is_new => Some("occurs twice".to_owned()),
            None => None,
        };
        why.map(|why| EntryFault { index, name: own, why })
    };
    list.iter().enumerate().filter_map(fault).collect()
}

/// Returns the first fault as an error of a setting.
pub fn first(faults: Vec<EntryFault>) -> Result<(), ValueError> {
    let first = faults.into_iter().next();
    first.map_or(Ok(()), |fault| Err(ValueError::entry(fault.name, fault.why)))
}
