//! The adapters that run on Cloudflare Workers: the only folder that names `worker`.

pub mod d1;
