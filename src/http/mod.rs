//! The HTTP contract, free of the platform: requests in, responses out.
//!
//! The Worker in front authenticates and answers what concerns the whole tenant ([`front`]); what
//! concerns one session it passes on to that session's object, which answers with [`session`].

pub mod body;
pub mod message;

pub use message::{ApiBody, ApiRequest, ApiResponse};
