//! What an agent is set to, unless a message says otherwise.

use super::Judge;
use crate::turn::ToolSelection;
use crate::types::Thinking;

/// An agent's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How much the model thinks.
    pub think: Thinking,
    /// Reflects in every `n`th turn of a session; 0 for none but after a tool's failure.
    pub reflect_every: u32,
    /// How long a tool's large output is kept, in seconds.
    pub artifact_ttl_s: u64,
    /// Offers a turn the tools that fit what the user said, where there are many; none offers all.
    /// A tool that is not offered can be called all the same.
    pub select_tools: Option<ToolSelection>,
    /// Who grades replies.
    pub judges: Vec<Judge>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            think: Thinking::Off,
            reflect_every: 0,
            artifact_ttl_s: 3_600,
            select_tools: None,
            judges: Vec::new(),
        }
    }
}
