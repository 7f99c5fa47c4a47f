//! Requests that definitions of agents declare: texts with arguments and secrets, URLs with a fixed host, and the removal of
//! secrets from responses. HTTP tools and the client of MCP share them.

mod redaction;
mod template;
mod url;

pub use redaction::Redaction;
pub use template::{Budget, PLAIN, Template, Unfilled, Values};
pub use url::{UrlTemplate, encoded};
