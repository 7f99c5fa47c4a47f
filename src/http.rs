//! The HTTP contract, free of the platform: requests in, responses out.
//!
//! The Worker in front authenticates and answers what concerns the whole tenant ([`front`]); what
//! concerns one session it passes on to that session's object, which answers with [`session`].

mod admin;
mod admin_keys;
pub mod auth;
pub mod auth_cache;
pub mod body;
pub mod cors;
pub mod disposition;
pub mod etag;
pub mod expiring;
pub mod failure;
pub mod front;
pub mod idempotency;
mod jwks;
pub mod jwt;
mod lists;
pub mod memory;
mod message;
pub mod multipart;
pub mod owner;
mod page;
pub mod placement;
pub mod range;
pub mod routes;
pub mod seal;
pub mod session;
mod tickets;
mod workspace;

pub use auth_cache::AuthCache;
pub use front::{Forward, Front, FrontConfig, Handled};
pub use message::{ApiBody, ApiRequest, ApiResponse};
