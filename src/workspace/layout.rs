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
