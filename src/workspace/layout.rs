//! Paths with a meaning in a workspace. All of them are optional.

/// Instructions for the agent.
pub const AGENTS: &str = "AGENTS.md";
/// What the agent has learned about its user.
pub const MEMORY: &str = "MEMORY.md";
/// Which tools the agents have; only in the shared layer.
pub const TOOLS: &str = "tools.json";
/// Folder of reference files for the agent.
pub const KNOWLEDGE: &str = "knowledge/";
/// Index of the reference files.
pub const KNOWLEDGE_INDEX: &str = "knowledge/KNOWLEDGE.md";
/// Folder of skills, `<name>/SKILL.md`.
pub const SKILLS: &str = "skills/";
/// Folder of skills that wait for their promotion, `<name>/SKILL.md`.
pub const DRAFTS: &str = "skills/_drafts/";
/// Usage of the learned skills of the layer.
pub const SKILL_USAGE: &str = "skills/_usage.json";
/// Name of the file with the front matter and the instructions of a skill.
pub const SKILL_FILE: &str = "SKILL.md";
/// Folder of subagents, `<id>.md`.
pub const SUBAGENTS: &str = "subagents/";
/// Folder of daily logs.
pub const DAILY: &str = "memory/";
/// Folder of plans.
pub const PLANS: &str = "plans/";
/// Folder of the artifacts of runs.
pub const RUNS: &str = "runs/";
/// Folder of specs.
pub const SPECS: &str = crate::types::spec::FOLDER;

/// What stays on the server when a runner's folder is the workspace: the files and folders that the server itself reads or
/// writes. All other paths are those of the folder.
const SERVER_ROUTES: [&str; 10] =
    [AGENTS, MEMORY, TOOLS, KNOWLEDGE, SKILLS, SUBAGENTS, DAILY, PLANS, RUNS, SPECS];

/// Returns whether a path, of a file or of a folder, stays on the server when a runner's folder is the workspace.
pub fn is_on_server(path: &str) -> bool {
    let path = path.trim_matches('/');
    SERVER_ROUTES.iter().any(|route| {
        let rest = path.strip_prefix(route.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_matched_by_whole_names() {
        for path in [
            "MEMORY.md",
            "/memory",
            "memory/",
            "memory/2026-11-28.md",
            "skills/a/SKILL.md",
            "runs/r/report.md",
        ] {
            assert!(is_on_server(path), "{path}");
        }
        for path in ["", "/", "memory.md", "memory2/a", "src/memory/a", "MEMORY.md.bak", "docs/AGENTS.md"] {
            assert!(!is_on_server(path), "{path}");
        }
    }
}
