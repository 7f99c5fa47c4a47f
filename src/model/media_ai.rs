//! Images and audio of Workers AI, through the platform's binding.

use super::{
    classify,
    client::{ErrorFormatter, read_whole},
};
use crate::{
    ports::{
        Ai, ReadAhead,
        media::{GeneratedFile, ImageRequest, MediaFile, MediaModel, MediaResponse, SpeechRequest},
    },
    types::{ModelError, Usage},
};
use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::rc::Rc;

/// The models of the AI binding.
pub(super) struct MediaAi {
    pub(super) ai: Rc<dyn Ai>,
    pub(super) errors: ErrorFormatter,
}

#[async_trait(?Send)]
impl MediaModel for MediaAi {
    async fn image(&self, request: ImageRequest) -> Result<MediaResponse<GeneratedFile>, ModelError> {
        let mut input = json!({"prompt": request.prompt});
        let size = request.size.as_deref().and_then(|size| size.split_once('x'));
        if let Some((Ok(width), Ok(height))) = size.map(|(w, h)| (w.parse::<u32>(), h.parse::<u32>())) {
            input["width"] = width.into();
            input["height"] = height.into();
        }
        if let Some(original) = request.original {
            input["image_b64"] = BASE64_STANDARD.encode(original.bytes).into();
        }
        let body = self.run(&request.model, input).await?;
        // Some models return JSON, others the image itself.
        if !body.starts_with(b"{") {
            let mime_type = if body.starts_with(b"\x89PNG") { "image/png" } else { "image/jpeg" };
            return Ok(uncounted(GeneratedFile { mime_type: mime_type.into(), bytes: body }));
        }
        #[derive(Deserialize)]
        struct Image {
            image: String,
        }
        let Image { image } = self.errors.read(&body)?;
        Ok(uncounted(GeneratedFile { mime_type: "image/jpeg".into(), bytes: self.decoded(&image)? }))
    }

    async fn transcribe(
        &self,
        model: &str,
        recording: MediaFile,
        language: Option<&str>,
    ) -> Result<MediaResponse<String>, ModelError> {
        let mut input = json!({"audio": BASE64_STANDARD.encode(recording.bytes)});
        if let Some(language) = language {
            input["language"] = language.into();
        }
        #[derive(Deserialize)]
        struct Transcript {
            text: String,
        }
        let Transcript { text } = self.errors.read(&self.run(model, input).await?)?;
        Ok(uncounted(text))
    }

    async fn speak(&self, request: SpeechRequest) -> Result<MediaResponse<GeneratedFile>, ModelError> {
        // The models of the platform itself name the text differently from those of partners.
        let text = if request.model.contains("melotts") { "prompt" } else { "text" };
        let mut input = json!({text: request.text});
        if let Some(voice) = request.voice {
            input["speaker"] = voice.into();
        }
        let body = self.run(&request.model, input).await?;
        let mime_type = "audio/mpeg".to_owned();
        if !body.starts_with(b"{") {
            return Ok(uncounted(GeneratedFile { mime_type, bytes: body }));
        }
        #[derive(Deserialize)]
        struct Speech {
            audio: String,
        }
        let Speech { audio } = self.errors.read(&body)?;
        Ok(uncounted(GeneratedFile { mime_type, bytes: self.decoded(&audio)? }))
    }
}

impl MediaAi {
    async fn run(&self, model: &str, input: Value) -> Result<Bytes, ModelError> {
        let run = async {
            let response = self.ai.run(model, input, ReadAhead::default()).await;
            read_whole(response.map_err(|error| classify::binding_error(&error.0))?).await
        };
        run.await.map_err(|error| self.errors.format(error))
    }

    fn decoded(&self, base64: &str) -> Result<Bytes, ModelError> {
        BASE64_STANDARD.decode(base64).map(Bytes::from).map_err(|_| self.errors.malformed())
    }
}

/// Returns a result without usage: Workers AI reports none.
fn uncounted<T>(result: T) -> MediaResponse<T> {
    MediaResponse { result, usage: Usage::default(), seconds: None }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::ports::{HttpError, ReadAhead};
    use futures::{
        FutureExt, StreamExt,
        stream::{self, LocalBoxStream},
    };
    use pretty_assertions::assert_eq;
    use std::cell::RefCell;

    /// Returns a response, and keeps the input.
    struct Scripted(&'static [u8], RefCell<Value>);

    #[async_trait(?Send)]
    impl Ai for Scripted {
        async fn run(
            &self,
            _model: &str,
            input: Value,
            _: ReadAhead,
        ) -> Result<LocalBoxStream<'static, Result<Bytes, HttpError>>, HttpError> {
            *self.1.borrow_mut() = input;
            Ok(stream::iter([Ok(Bytes::from_static(self.0))]).boxed_local())
        }
    }

    fn media(response: &'static [u8]) -> (MediaAi, Rc<Scripted>) {
        let ai = Rc::new(Scripted(response, RefCell::default()));
        let errors = ErrorFormatter { provider: "workers-ai".into(), key: None };
        (MediaAi { ai: ai.clone(), errors }, ai)
    }

    #[test]
    fn images_come_as_json_or_as_bytes() {
        for (response, mime_type, bytes) in [
            (br#"{"image": "eA=="}"#.as_slice(), "image/jpeg", b"x".as_slice()),
            (b"\x89PNG", "image/png", b"\x89PNG"),
        ] {
            let (media, ai) = media(response);
            let size = Some("1024x768".to_owned());
            let request =
                ImageRequest { model: "@cf/x".into(), prompt: "a cat".into(), size, original: None };
            let response = media.image(request).now_or_never().unwrap().unwrap();
            assert_eq!(
                response.result,
                GeneratedFile { mime_type: mime_type.into(), bytes: Bytes::from_static(bytes) }
            );
            assert_eq!(*ai.1.borrow(), json!({"prompt": "a cat", "width": 1024, "height": 768}));
        }
    }

    #[test]
    fn malformed_responses_are_errors() {
        let request =
            SpeechRequest { model: "@cf/myshell-ai/melotts".into(), text: "Hi".into(), voice: None };
        let (media, ai) = media(br#"{"audio": "?"}"#);
        let error = media.speak(request).now_or_never().unwrap().unwrap_err();
        assert_eq!(error.message, "workers-ai: returned a malformed response");
        assert_eq!(*ai.1.borrow(), json!({"prompt": "Hi"}));
    }
}
