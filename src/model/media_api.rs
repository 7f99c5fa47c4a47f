//! Images and audio over OpenAI's API, and servers compatible with it.

mod form;
#[cfg(test)]
mod tests;

use super::{
    client::{ErrorFormatter, connection_error, read_error, read_whole},
    wire::{Endpoint, write},
};
use crate::{
    ports::{
        Clock, Http, HttpRequest,
        media::{GeneratedFile, ImageRequest, MediaFile, MediaModel, MediaResponse, SpeechRequest},
    },
    types::{ModelError, ModelErrorKind, Usage},
};
use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use form::Form;
use serde::Deserialize;
use serde_json::{Value, json};
use std::rc::Rc;

/// The format of speech.
const SPEECH_FORMAT: &str = "mp3";

/// The models of `{base}/images/…` and `{base}/audio/…`.
pub(super) struct MediaApi {
    pub(super) endpoint: Endpoint,
    pub(super) http: Rc<dyn Http>,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) errors: ErrorFormatter,
}

#[async_trait(?Send)]
impl MediaModel for MediaApi {
    async fn image(&self, request: ImageRequest) -> Result<MediaResponse<GeneratedFile>, ModelError> {
        let ImageRequest { model, prompt, size, original } = request;
        let response = match original {
            Some(original) => {
                let mut form = Form::default();
                form.text("model", &model).text("prompt", &prompt).file("image", &original);
                if let Some(size) = &size {
                    form.text("size", size);
                }
                self.post("/images/edits", form.finish()).await?
            }
            None => {
                let mut body = json!({"model": model, "prompt": prompt, "n": 1});
                if let Some(size) = size {
                    body["size"] = Value::String(size);
                }
                // Newer models always return the image, and refuse the field.
                if model.starts_with("dall-e") {
                    body["response_format"] = "b64_json".into();
                }
                self.post_json("/images/generations", &body).await?
            }
        };
        let Images { data, usage, output_format } = self.errors.read(&response)?;
        let image = data.into_iter().next().and_then(|image| image.b64_json);
        let bytes = image.and_then(|image| BASE64_STANDARD.decode(image).ok());
        let bytes = bytes.ok_or_else(|| self.errors.malformed())?;
        let mime_type = format!("image/{}", output_format.as_deref().unwrap_or("png"));
        Ok(counted(GeneratedFile { mime_type, bytes: bytes.into() }, usage))
    }

    async fn transcribe(
        &self,
        model: &str,
        recording: MediaFile,
        language: Option<&str>,
    ) -> Result<MediaResponse<String>, ModelError> {
        let mut form = Form::default();
        form.text("model", model).text("response_format", "json").file("file", &recording);
        if let Some(language) = language {
            form.text("language", language);
        }
        let response = self.post("/audio/transcriptions", form.finish()).await?;
        let Transcript { text, usage } = self.errors.read(&response)?;
        Ok(counted(text, usage))
    }

    async fn speak(&self, request: SpeechRequest) -> Result<MediaResponse<GeneratedFile>, ModelError> {
        let SpeechRequest { model, text, voice } = request;
        let voice = voice.as_deref().unwrap_or("alloy");
        let body = json!({"model": model, "input": text, "voice": voice, "response_format": SPEECH_FORMAT});
        let bytes = self.post_json("/audio/speech", &body).await?;
        Ok(counted(GeneratedFile { mime_type: "audio/mpeg".into(), bytes }, None))
    }
}

impl MediaApi {
    async fn post_json(&self, path: &str, body: &Value) -> Result<Bytes, ModelError> {
        self.post(path, ("application/json".to_owned(), write(body)?.into())).await
    }

    /// Sends a body with its content type. Returns the body of the response.
    async fn post(&self, path: &str, (kind, body): (String, Bytes)) -> Result<Bytes, ModelError> {
        let mut headers = vec![("content-type".to_owned(), kind)];
        headers.extend(
            self.endpoint.key.as_ref().map(|key| ("authorization".to_owned(), format!("Bearer {key}"))),
        );
        let url = format!("{}{path}", self.endpoint.base_url.trim_end_matches('/'));
        let request =
            HttpRequest { method: "POST", url, headers, body: Some(body), ..HttpRequest::default() };
        let sent = async {
            let response = self.http.send(request).await;
            let response = response.map_err(|error| connection_error(ModelErrorKind::Network, &error))?;
            if (200..300).contains(&response.status) {
                read_whole(response.body).await
            } else {
                Err(read_error(response, &*self.clock).await)
            }
        };
        sent.await.map_err(|error| self.errors.format(error))
    }
}

#[derive(Deserialize)]
struct Images {
    data: Vec<Image>,
    usage: Option<Counts>,
    output_format: Option<String>,
}

#[derive(Deserialize)]
struct Image {
    b64_json: Option<String>,
}

#[derive(Deserialize)]
struct Transcript {
    text: String,
    usage: Option<Counts>,
}

/// Tokens, or the duration of audio.
#[derive(Deserialize)]
struct Counts {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    seconds: Option<f64>,
}

fn counted<T>(result: T, counts: Option<Counts>) -> MediaResponse<T> {
    let Some(Counts { input_tokens, output_tokens, seconds }) = counts else {
        return MediaResponse { result, usage: Usage::default(), seconds: None };
    };
    let total_tokens = input_tokens.saturating_add(output_tokens);
    MediaResponse {
        result,
        usage: Usage { input_tokens, output_tokens, total_tokens, ..Usage::default() },
        seconds,
    }
}
