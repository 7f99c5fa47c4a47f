//! Models that produce images and speech, and transcribe speech.

use crate::types::{ModelError, ModelErrorKind, Usage};
use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;

/// A file that a model is given.
#[derive(Clone, Debug)]
pub struct MediaFile {
    /// The file name.
    pub name: String,
    /// The media type.
    pub mime_type: String,
    /// The content.
    pub bytes: Bytes,
}

/// A request for an image.
#[derive(Clone, Debug)]
pub struct ImageRequest {
    /// The provider's name of the model.
    pub model: String,
    /// What the image should show.
    pub prompt: String,
    /// Width and height, such as `1024x1024`; the model's default if absent.
    pub size: Option<String>,
    /// The image to change, if it is not a new one.
    pub original: Option<MediaFile>,
}

/// A request for speech.
#[derive(Clone, Debug)]
pub struct SpeechRequest {
    /// The provider's name of the model.
    pub model: String,
    /// What is said.
    pub text: String,
    /// The provider's name of a voice; the model's default if absent.
    pub voice: Option<String>,
}

/// The response of a model for images or audio.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaResponse<T> {
    /// The result.
    pub result: T,
    /// Tokens of the call; zero if the provider counts none.
    pub usage: Usage,
    /// Seconds of audio, if the provider counts them.
    pub seconds: Option<f64>,
}

/// A file that a model has generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFile {
    /// The media type.
    pub mime_type: String,
    /// The content.
    pub bytes: Bytes,
}

/// A provider's models for images and audio. A call is a single attempt.
#[async_trait(?Send)]
pub trait MediaModel {
    /// Creates an image, or changes one.
    ///
    /// # Errors
    /// The provider failed, or has no such API.
    async fn image(&self, request: ImageRequest) -> Result<MediaResponse<GeneratedFile>, ModelError>;

    /// Writes down what is said in a recording. `language` is its language in ISO 639-1, if known.
    ///
    /// # Errors
    /// The provider failed, or has no such API.
    async fn transcribe(
        &self,
        model: &str,
        recording: MediaFile,
        language: Option<&str>,
    ) -> Result<MediaResponse<String>, ModelError>;

    /// Speaks a text.
    ///
    /// # Errors
    /// The provider failed, or has no such API.
    async fn speak(&self, request: SpeechRequest) -> Result<MediaResponse<GeneratedFile>, ModelError>;
}

/// Returns the error about a provider without models for images and audio.
pub fn no_media(id: &str) -> ModelError {
    let message = format!("the provider of {id:?} has no models for images and audio");
    ModelError::new(ModelErrorKind::Invalid, message)
}

/// What a call costs besides its tokens, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaPrice {
    /// An image.
    pub image: f64,
    /// A minute of a recording.
    pub minute: f64,
    /// A million characters of a text that is spoken.
    pub million_characters: f64,
}

impl MediaPrice {
    /// Returns whether one of the prices is negative.
    pub fn is_negative(&self) -> bool {
        [self.image, self.minute, self.million_characters].into_iter().any(|dollars| dollars < 0.0)
    }
}
