//! Faces: other protocols over the same sessions. A face reads a request into a native message, and writes the records
//! of the turn as frames of its protocol. It stores nothing and runs nothing itself.
//!
//! To add one, write a file that exports `ROUTES` and their descriptions (`operations`), and add its name to the list below.
//! docs/extending.md shows an example.

// The example of docs/extending.md.
#[cfg(test)]
mod ask;
mod children;
mod exchange;
pub(super) mod openai;
pub mod socket;
pub(super) mod sse;
mod task_id;
mod text;
mod transcript;

#[cfg(not(target_family = "wasm"))]
use super::openapi::Operation;
use super::route::Route;

/// Declares the module of each face, and collects what it exports.
macro_rules! faces {
    ($($face:ident,)+) => {
        $(pub mod $face;)+

        /// The routes of each face.
        pub(super) static ROUTES: &[&[Route]] = &[$($face::ROUTES),+];

        /// Returns the descriptions of all these routes.
        #[cfg(not(target_family = "wasm"))]
        pub(super) fn operations() -> Vec<Operation> {
            [$($face::operations()),+].into_iter().flatten().collect()
        }
    };
}

faces! {
    chat_completions,
    responses,
    a2a,
    mcp,
    ui_stream,
    ag_ui,
}
