//! The adapters for Cloudflare Workers. Only this folder names `worker`.

mod body;
#[cfg(feature = "containers")]
mod container;
mod convert;
mod crypto;
pub mod d1;
mod entry;
mod exception;
mod face_socket;
mod fetch;
#[cfg(feature = "fixtures")]
mod fixtures;
mod inbox;
mod ledger;
mod messages;
mod object;
mod r2;
mod reader;
mod runtime;
mod setup;
mod sink;
mod socket;
mod sql;
mod timeout;

#[cfg(feature = "containers")]
pub use container::RunnerContainer;
pub use ledger::TenantObject;
pub use object::SessionObject;
pub use setup::{http, start};
#[doc(hidden)]
pub use worker::wasm_bindgen;

/// Makes the calling crate, a `cdylib`, a Worker. The closure adds your tools and hooks to the
/// standard agent:
///
/// ```
/// # use edge_harness::agent::{Tool, ToolContext, ToolError};
/// # struct Dice;
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Roll {}
/// # impl Tool for Dice {
/// #     type Args = Roll;
/// #     type Output = u8;
/// #     const NAME: &'static str = "dice";
/// #     const DESCRIPTION: &'static str = "Rolls one die.";
/// #     async fn run(&self, _: Roll, _: ToolContext) -> Result<u8, ToolError> { Ok(4) }
/// # }
/// edge_harness::worker!(|agent| agent.tool(Dice));
/// ```
///
/// It is called once per crate, at its root. The objects and the handlers of requests and
/// of the cron trigger are exported by the library; only the start of the Worker belongs to the
/// caller, because the attributes of the crate `worker` compile only where that crate is a direct
/// dependency.
#[macro_export]
macro_rules! worker {
    ($customize:expr) => {
        const _: () = {
            use $crate::platform::cloudflare as __platform;

            #[__platform::wasm_bindgen::prelude::wasm_bindgen(start, wasm_bindgen = __platform::wasm_bindgen)]
            pub fn start() {
                __platform::start($customize);
            }
        };
    };
}
