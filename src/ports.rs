//! Traits between the core and the outside world. Every effect goes through one of them, so that the same
//! core runs in workerd, under `cargo test`, and in the simulator.
//!
//! All futures are `!Send`, because an isolate has a single thread.

pub mod agents;
pub mod allowed_hosts;
pub mod blob;
pub mod cancel;
pub mod clock;
pub mod consents;
pub mod credentials;
pub mod directory;
pub mod eraser;
pub mod event_stream;
pub mod filesystem;
pub mod http;
pub mod inbox;
pub mod json_messages;
pub mod ledger;
pub mod log;
pub mod media;
pub mod memory;
pub mod memory_spaces;
pub mod model;
pub mod moves;
pub(crate) mod outbound;
pub mod peers;
pub mod public_url;
pub mod reader;
pub mod secret_store;
pub mod secrets;
pub mod session_store;
pub mod signature;
pub mod spawner;

pub use agents::AgentStore;
pub use allowed_hosts::AllowedHosts;
pub use blob::{BlobError, BlobResult, BlobStore};
pub use cancel::CancelToken;
pub use clock::{Clock, Entropy, Unfinished, within};
pub use consents::{ConsentStore, Sealer};
pub use credentials::Credentials;
pub use directory::Directory;
pub use eraser::{PeerError, SessionEraser};
pub use filesystem::{FileError, FileTable, Filesystem};
pub use http::{Ai, Http, HttpError, HttpRequest, HttpResponse, ReadAhead};
pub use inbox::{Inbox, InboxError};
pub use ledger::{Ledger, LedgerError};
pub use log::Log;
pub use memory::MemoryIndex;
pub use memory_spaces::MemorySpaces;
pub use model::{Model, Models};
pub use moves::Moves;
pub use peers::{PeerRequest, PeerResponse, Peers};
pub use public_url::PublicUrl;
pub use reader::{ReaderRequest, SessionReader, SessionResponse};
pub use secret_store::SecretStore;
pub use secrets::Secrets;
pub use session_store::{Batch, SessionStore, StoreError};
pub use signature::{PublicKey, Signatures, UnusableKey};
pub use spawner::Spawner;
