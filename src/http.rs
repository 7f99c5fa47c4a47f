//! The HTTP API, independent of the platform.
//!
//! The gateway authenticates a request and handles what concerns a whole tenant ([`dispatch`]). It forwards a
//! request that concerns one session to the object of that session ([`session`]). Both find the handler in the
//! same table ([`routes`]).

mod address;
mod agents;
pub mod anonymous_sockets;
mod api_key;
mod audit;
pub mod auth;
pub mod auth_cache;
pub mod body;
pub mod body_budget;
mod consent;
pub mod cors;
pub mod credentials;
pub mod crypto;
pub mod dispatch;
pub mod disposition;
pub mod erasure;
pub mod etag;
mod export;
mod face;
pub mod face_sockets;
pub mod faces;
mod failure_limit;
mod failures;
pub mod forward;
mod forwarded;
pub mod gateway;
pub mod idempotency;
pub mod jwk;
mod jwks;
pub mod jwt;
mod keys;
mod lists;
mod loopback;
mod memory;
pub mod moves;
pub mod multipart;
mod oauth;
// Only a test runs it, and compiling it for the Worker takes minutes.
#[cfg(not(target_family = "wasm"))]
pub mod openapi;
pub mod over_limit;
pub mod owner;
mod page;
mod patch;
pub mod pattern;
mod pending;
pub mod placement;
pub mod range;
mod read_session;
mod readiness;
mod ready;
mod refusal_pace;
mod refusals;
pub mod request;
mod request_blocks;
mod request_limit;
pub mod response;
mod retries;
pub mod route;
pub mod routes;
mod runs;
mod scopes;
mod secrets;
pub mod session;
mod skills;
mod spec_name;
mod specs;
pub mod storage_days;
pub mod storage_limits;
mod stream_caller;
mod tenant_secrets;
mod tenants;
mod tickets;
pub mod upgrade;
mod usage;
mod users;
mod workspace;

pub use auth_cache::AuthCache;
pub use credentials::DirectoryCredentials;
pub use dispatch::{Handled, handle};
pub use forward::Forward;
pub use forwarded::ForwardedMessages;
pub use gateway::{Gateway, GatewayConfig, MalformedSetting};
pub use readiness::Readiness;
pub use refusal_pace::RefusalPace;
pub use refusals::Refusals;
pub use request::{MAX_BODY, Request, RequestExt};
pub use request_blocks::RequestBlocks;
pub use response::{Body, Response};
pub use tenant_secrets::TenantSecrets;
