//! Requests that definitions of agents declare: texts with arguments and secrets, URLs with a fixed host, and the removal of
//! secrets from responses. HTTP tools, the client of MCP and remote agents share them.

mod endpoint;
mod redaction;
mod template;
mod url;

pub use endpoint::{Endpoint, EndpointError, Target};
pub use redaction::Redaction;
pub use template::{Budget, PLAIN, Template, Unfilled, Values};
pub use url::{UrlTemplate, encoded};
