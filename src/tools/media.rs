//! The tools for images and audio. Each exists only if the deployment has a model for it.

mod generate_image;
mod speak;
mod transcribe;

pub use generate_image::{EditImage, GenerateImage};
pub use speak::Speak;
pub use transcribe::Transcribe;

use crate::agent::{DynTool, MediaModels, ToolContext, ToolError};
use crate::ports::{
    Models,
    media::{Made, MadeFile, MediaFile, MediaModel, MediaPrice},
};
use crate::types::{CallUsage, FileRef, ModelError, media::MAX_MEDIA};
use serde::Serialize;
use std::rc::Rc;

/// Returns the tools for which there is a model.
pub fn family(models: &Rc<dyn Models>, settings: &MediaModels) -> Vec<Rc<dyn DynTool>> {
    let model = |id: &Option<String>| Some(Maker { models: Rc::clone(models), id: id.clone()? });
    let mut tools: Vec<Rc<dyn DynTool>> = Vec::new();
    if let (Some(create), Some(edit)) = (model(&settings.image), model(&settings.image)) {
        tools.push(Rc::new(GenerateImage(create)));
        tools.push(Rc::new(EditImage(edit)));
    }
    if let Some(model) = model(&settings.transcription) {
        tools.push(Rc::new(Transcribe(model)));
    }
    if let Some(model) = model(&settings.speech) {
        tools.push(Rc::new(Speak(model)));
    }
    tools
}

/// A model that makes something, by its id.
pub struct Maker {
    models: Rc<dyn Models>,
    id: String,
}

/// A file that a tool has stored.
#[derive(Debug, Serialize)]
pub struct Output {
    file: FileRef,
}

/// What a call is billed for, besides tokens.
#[derive(Default)]
struct Billed {
    images: u32,
    characters: usize,
}

impl Maker {
    /// Finds the model. Returns it with the provider's own name for it.
    fn find(&self) -> Result<(Rc<dyn MediaModel>, String), ToolError> {
        self.models.media(&self.id).map_err(failed)
    }

    /// Counts what a call has cost as usage of the tenant.
    fn bill<T>(&self, made: &Made<T>, billed: &Billed, cx: &ToolContext) {
        let MediaPrice { image, minute, million_characters } = self.models.media_price(&self.id);
        #[allow(clippy::cast_precision_loss, reason = "the length of a text is far below 2^53")]
        let characters = billed.characters as f64 / 1e6;
        let units = f64::from(billed.images) * image
            + made.seconds.unwrap_or_default() / 60.0 * minute
            + characters * million_characters;
        let tokens = self.models.price(&self.id).map(|price| price.cost(&made.usage));
        let cost_usd = (units > 0.0 || tokens.is_some()).then(|| units + tokens.unwrap_or_default());
        if cost_usd.is_some() || made.usage.total_tokens > 0 {
            cx.spend(CallUsage { model: self.id.clone(), usage: made.usage, cost_usd });
        }
    }
}

/// Stores a file that a model has made under this name, without its extension.
async fn store(made: MadeFile, name: &str, cx: &ToolContext) -> Result<Output, ToolError> {
    let extension = match made.mime_type.as_str() {
        "image/jpeg" => "jpg",
        "audio/mpeg" => "mp3",
        other => other.rsplit('/').next().unwrap_or("bin"),
    };
    let file = cx.store_file(made.bytes, made.mime_type.clone(), format!("{name}.{extension}")).await?;
    Ok(Output { file })
}

/// Reads a file of the session, of a type that starts with `kind`.
async fn read(reference: &str, kind: &str, cx: &ToolContext) -> Result<MediaFile, ToolError> {
    let file = cx.artifacts.find(&reference.into()).map_err(|error| ToolError::new(error.to_string()))?;
    if !file.mime_type.starts_with(kind) {
        return Err(ToolError::new(format!("{reference} is {}, not {kind}…", file.mime_type)));
    }
    if file.bytes > MAX_MEDIA as u64 {
        return Err(ToolError::new(format!("{reference} has more than {MAX_MEDIA} bytes")));
    }
    let bytes = cx.artifacts.read(&file, None).await.map_err(|error| ToolError::new(error.to_string()))?;
    let name = file.name.unwrap_or_else(|| "file".to_owned());
    Ok(MediaFile { name, mime_type: file.mime_type, bytes })
}

/// Tells the model that a provider has failed. Its own text is only for the operator.
fn failed(error: ModelError) -> ToolError {
    ToolError::new(error.message)
}
