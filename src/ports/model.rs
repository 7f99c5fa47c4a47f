//! Language models.

use crate::types::{ModelError, ModelEvent, ModelLimits, ModelRequest, Price};
use futures::stream::LocalBoxStream;

/// A language model with streamed responses.
///
/// A call is a single attempt: retries are up to the caller.
pub trait Model {
    /// Starts a call. The stream yields pieces and finally [`ModelEvent::Done`]; an error ends it. Pieces
    /// that arrive together are ready together. Dropping the stream cancels the call.
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>>;
}

/// The available models.
pub trait Models {
    /// Finds the model `provider/model`. Returns it with the provider's own name for it.
    ///
    /// # Errors
    /// The provider is unknown or not configured.
    fn resolve(&self, id: &str) -> Result<(std::rc::Rc<dyn Model>, String), ModelError>;

    /// Finds a model like [`Models::resolve`], but only if sessions may use it. Settings may name further models, for
    /// work that no session selects a model for.
    ///
    /// # Errors
    /// The provider is unknown or not configured, or sessions may not use the model.
    fn offered(&self, id: &str) -> Result<(std::rc::Rc<dyn Model>, String), ModelError> {
        self.resolve(id)
    }

    /// Returns the price of a model, if known.
    fn price(&self, _id: &str) -> Option<Price> {
        None
    }

    /// Returns the context window of a model and the factor of its tokenizer.
    fn limits(&self, _id: &str) -> ModelLimits {
        ModelLimits::default()
    }

    /// Returns the model of sessions that do not select one.
    fn default_model(&self) -> String;
}
