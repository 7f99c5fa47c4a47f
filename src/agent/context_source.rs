//! Sources of text that is added to a prompt.

use super::RuntimeContext;
use crate::types::{BoxError, Message};
use async_trait::async_trait;

/// A source of text that is added to a turn's prompt, such as relevant memories. All sources of an agent are
/// loaded concurrently when a turn starts or restarts.
///
/// ```
/// use edge_harness::agent::{ContextSource, RuntimeContext};
/// use edge_harness::{testkit::TestSession, types::{BoxError, Message}};
///
/// /// Tells the model which plan the user has.
/// struct Plan;
///
/// #[async_trait::async_trait(?Send)]
/// impl ContextSource for Plan {
///     fn name(&self) -> &'static str { "plan" }
///
///     async fn load(&self, _message: &Message, cx: &RuntimeContext) -> Result<Option<String>, BoxError> {
///         Ok(Some(format!("The user {} has the plan \"basic\".", cx.user)))
///     }
/// }
///
/// let session = TestSession::new(|agent| agent.context(Plan));
/// assert_eq!(session.ask("/say Hello."), "Hello.");
/// ```
#[async_trait(?Send)]
pub trait ContextSource {
    /// Returns the name, for logs and for the list of failed sub-steps.
    fn name(&self) -> &'static str;

    /// Loads the text relevant to `message`. The model sees it as untrusted text.
    ///
    /// # Errors
    /// The reason of the failure. The turn continues without the text.
    async fn load(&self, message: &Message, cx: &RuntimeContext) -> Result<Option<String>, BoxError>;
}
