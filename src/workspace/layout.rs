//! What the files of a workspace are called. None of them has to be there.

/// How the agent is to behave here.
pub const AGENTS: &str = "AGENTS.md";
/// What the agent has learned about its user.
pub const MEMORY: &str = "MEMORY.md";
/// Which tools there are.
pub const TOOLS: &str = "tools.json";
/// What the agent should know, in files.
pub const KNOWLEDGE: &str = "knowledge/";
/// Where an agent starts to read what it should know.
pub const KNOWLEDGE_INDEX: &str = "knowledge/KNOWLEDGE.md";
/// Skills, `<name>/SKILL.md`.
pub const SKILLS: &str = "skills/";
/// Other agents that this one may ask, `<id>.md`.
pub const SUBAGENTS: &str = "subagents/";
/// What was learned, by day.
pub const DAILY: &str = "memory/";
/// Plans.
pub const PLANS: &str = "plans/";
