//! Names and versions of the protocol, which client and server share.

/// The modern version.
pub const MODERN: &str = "2026-07-28";
/// The legacy versions, the newest first.
pub const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// The header with the version.
pub const VERSION_HEADER: &str = "mcp-protocol-version";
/// The header that repeats the method of a modern request.
pub const METHOD_HEADER: &str = "mcp-method";
/// The header that repeats what a modern request is about, such as the name of a tool.
pub const NAME_HEADER: &str = "mcp-name";
/// The header with the id of a legacy session.
pub const SESSION_HEADER: &str = "mcp-session-id";

/// The field of `_meta` with the version of a modern request.
pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The field of `_meta` with the capabilities of a modern client.
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The field of `_meta` with the name and version of a modern client.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
