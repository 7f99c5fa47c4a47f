//! The adapters that run on Cloudflare Workers: the only folder that names `worker`.

mod answer;
mod body;
mod convert;
mod crypto;
pub mod d1;
mod entry;
mod fetch;
#[cfg(feature = "fixtures")]
mod fixtures;
mod object;
mod r2;
mod runtime;
mod setup;
mod socket;
mod sql;

pub use object::SessionObject;
