//! The built-in tools, which are independent of each other.

pub mod ask_user;
pub mod current_time;
pub mod echo;
pub mod files;
#[cfg(feature = "fixtures")]
pub mod fixtures;
pub mod http_tool;
pub mod media;
pub mod memory;
pub mod plan;
pub mod read_artifact;
pub mod recall;
pub mod run;
pub mod skills;
pub mod subagent;
pub mod tasks;
pub mod web_fetch;

pub use ask_user::AskUser;
pub use current_time::CurrentTime;
pub use echo::Echo;
pub use http_tool::HttpTool;
pub use read_artifact::ReadArtifact;
pub use recall::Recall;
pub use run::{RunArtifact, RunPlan};
pub use skills::{LoadSkill, ProposeSkill};
pub use subagent::Subagent;
pub use tasks::{TaskCheck, TaskComplete, TaskUpdate, TaskWrite};
pub use web_fetch::WebFetch;
