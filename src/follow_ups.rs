//! The built-in follow-ups, one file each: work that runs after the reply. They are independent of each other.

pub mod memory_flush;
pub mod memory_maintenance;
pub mod session_files;
pub mod skill_usage;
pub mod turn_index;

pub use memory_flush::MemoryFlush;
pub use memory_maintenance::MemoryMaintenance;
pub use session_files::SessionFiles;
pub use skill_usage::SkillUsageCount;
pub use turn_index::TurnIndex;
