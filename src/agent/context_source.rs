//! Sources of text that is added to a prompt.

use super::RuntimeContext;
use crate::types::{BoxError, Message};
use async_trait::async_trait;

/// A source of text that is added to a turn's prompt, such as relevant memories. All sources of an agent are
/// loaded concurrently when a turn starts or restarts.
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
