//! Language models.

use super::media::{MediaModel, MediaPrice, no_media};
use crate::types::{MediaKind, ModelError, ModelEvent, ModelLimits, ModelRequest, Price};
use futures::stream::LocalBoxStream;

/// A language model with streamed responses.
///
/// A call is a single attempt: retries are up to the caller.
///
/// ```
/// use edge_harness::ports::{Model, Models};
/// use edge_harness::testkit::TestSession;
/// use edge_harness::types::*;
/// use futures::stream::{self, LocalBoxStream};
/// use std::rc::Rc;
///
/// /// Repeats the user's message.
/// struct Parrot;
///
/// impl Model for Parrot {
///     fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>> {
///         let text = request.messages.last().map(|message| message.text()).unwrap_or_default();
///         let parts = vec![Part::text(text.clone())];
///         let done = ModelResponse { parts, usage: Usage::default(), finish: FinishReason::Stop };
///         Box::pin(stream::iter([Ok(ModelEvent::Text(text)), Ok(ModelEvent::Done(done))]))
///     }
/// }
///
/// impl Models for Parrot {
///     fn resolve(&self, _id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
///         Ok((Rc::new(Parrot), "parrot".into()))
///     }
///
///     fn default_model(&self) -> String { "mine/parrot".into() }
/// }
///
/// let session = TestSession::new(|agent| agent.models(Rc::new(Parrot)));
/// assert_eq!(session.ask("Hello!"), "Hello!");
/// ```
pub trait Model {
    /// Starts a call. The stream yields pieces and finally [`ModelEvent::Done`]; an error ends it. Pieces
    /// that arrive together are ready together. Dropping the stream cancels the call.
    fn stream(&self, request: ModelRequest) -> LocalBoxStream<'static, Result<ModelEvent, ModelError>>;
}

/// The available models.
///
/// ```
/// # use edge_harness::ports::{Model, Models};
/// # use edge_harness::types::{ModelError, Price};
/// # use std::rc::Rc;
/// /// Sets the price of all models of other `Models`.
/// struct Priced<M>(M, Price);
///
/// impl<M: Models> Models for Priced<M> {
///     fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> { self.0.resolve(id) }
///     fn price(&self, _id: &str) -> Option<Price> { Some(self.1) }
///     fn default_model(&self) -> String { self.0.default_model() }
/// }
/// ```
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

    /// Returns whether a model takes files of this kind in users' messages.
    fn takes(&self, _id: &str, _kind: MediaKind) -> bool {
        false
    }

    /// Finds the model `provider/model` for images and audio. Returns it with the provider's own name for it.
    ///
    /// # Errors
    /// The provider is unknown or not configured, or has no such models.
    fn media(&self, id: &str) -> Result<(std::rc::Rc<dyn MediaModel>, String), ModelError> {
        Err(no_media(id))
    }

    /// Returns what a model for images and audio costs besides its tokens.
    fn media_price(&self, _id: &str) -> MediaPrice {
        MediaPrice::default()
    }

    /// Returns the model of sessions that do not select one.
    fn default_model(&self) -> String;
}
