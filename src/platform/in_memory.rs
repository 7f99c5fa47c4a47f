//! In-memory implementations of the ports, with faults that tests can switch on. They depend only on the
//! ports.

pub mod agents;
pub mod clock;
pub mod consents;
pub mod credentials;
pub mod directory;
pub mod files;
pub mod inbox;
pub mod ledger;
pub mod memory;
pub mod memory_spaces;
pub mod models;
pub mod moves;
pub mod net;
pub mod secrets;
pub mod session_store;
pub mod sinks;
pub mod tasks;

pub use agents::InMemoryAgents;
pub use clock::{ManualClock, SeededEntropy};
pub use consents::{InMemoryConsents, PlainSealer};
pub use credentials::InMemoryCredentials;
pub use directory::InMemoryDirectory;
pub use files::MemoryFiles;
pub use inbox::InMemoryInbox;
pub use ledger::InMemoryLedger;
pub use memory::InMemoryIndex;
pub use memory_spaces::InMemorySpaces;
pub use models::ScriptedModels;
pub use moves::InMemoryMoves;
pub use net::{NoPeers, ScriptedHttp};
pub use secrets::InMemorySecrets;
pub use session_store::MemorySessionStore;
pub use sinks::{MemoryBlobs, MemoryLog};
pub use tasks::TaskPool;
