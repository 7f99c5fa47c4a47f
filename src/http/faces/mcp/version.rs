//! The versions of the protocol.

/// The modern version.
pub(super) const MODERN: &str = "2026-07-28";
/// The legacy versions, the newest first.
pub(super) const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
