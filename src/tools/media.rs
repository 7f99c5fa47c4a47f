//! The tools for images and audio. Each exists only if the deployment has a model for it.

mod generate_image;
mod speak;
mod transcribe;

pub use generate_image::{EditImage, GenerateImage};
pub use speak::Speak;
pub use transcribe::Transcribe;

use crate::agent::{DynTool, MediaModels, ToolContext, ToolError};
use crate::ports::{
    Log, Models,
    media::{GeneratedFile, MediaFile, MediaModel, MediaPrice, MediaResponse},
};
use crate::types::{
    CallUsage, FileRef, ModelError,
    media::{MAX_MEDIA, extension},
};
use serde::Serialize;
use serde_json::json;
use std::rc::Rc;

/// Returns the tools for which there is a model.
pub fn family(models: &Rc<dyn Models>, log: &Rc<dyn Log>, settings: &MediaModels) -> Vec<Rc<dyn DynTool>> {
    let configured =
        |id: &String| ConfiguredModel { models: Rc::clone(models), log: Rc::clone(log), id: id.clone() };
    let mut tools: Vec<Rc<dyn DynTool>> = Vec::new();
    if let Some(id) = &settings.image {
        tools.push(Rc::new(GenerateImage(configured(id))));
        tools.push(Rc::new(EditImage(configured(id))));
    }
    if let Some(id) = &settings.transcription {
        tools.push(Rc::new(Transcribe(configured(id))));
    }
    if let Some(id) = &settings.speech {
        tools.push(Rc::new(Speak(configured(id))));
    }
    tools
}

/// The model of a tool.
pub struct ConfiguredModel {
    models: Rc<dyn Models>,
    log: Rc<dyn Log>,
    /// As `provider/model`.
    id: String,
}

/// A file that a tool has stored.
#[derive(Debug, Serialize)]
pub struct Output {
    file: FileRef,
}

/// What a call costs besides its tokens and the duration of a recording.
#[derive(Default)]
struct BilledUnits {
    images: u32,
    characters: usize,
}

impl ConfiguredModel {
    /// Finds the model. Returns it with the provider's own name for it.
    fn find(&self, cx: &ToolContext) -> Result<(Rc<dyn MediaModel>, String), ToolError> {
        self.models.media(&self.id).map_err(|error| self.failed(cx, error))
    }

    /// Counts what a call has cost as usage of the tenant.
    fn count_usage<T>(&self, response: &MediaResponse<T>, units: &BilledUnits, cx: &ToolContext) {
        let MediaPrice { image, minute, million_characters } = self.models.media_price(&self.id);
        #[allow(clippy::cast_precision_loss, reason = "the length of a text is far below 2^53")]
        let characters = units.characters as f64 / 1e6;
        let units = f64::from(units.images) * image
            + response.seconds.unwrap_or_default() / 60.0 * minute
            + characters * million_characters;
        let tokens = self.models.price(&self.id).map(|price| price.cost(&response.usage));
        let cost_usd = (units > 0.0 || tokens.is_some()).then(|| units + tokens.unwrap_or_default());
        if cost_usd.is_some() || response.usage.total_tokens > 0 {
            cx.spend(CallUsage { model: self.id.clone(), usage: response.usage, cost_usd });
        }
    }

    /// Converts the error of a provider to a message for the model. The provider's own text goes to the log.
    fn failed(&self, cx: &ToolContext, error: ModelError) -> ToolError {
        self.log.line(&json!({
            "event": "media.failed", "tenant": cx.tenant, "session": cx.session, "model": self.id,
            "cause": error.for_log(),
        }));
        ToolError::new(error.message)
    }
}

/// Stores a generated file under this name, to which its extension is added.
async fn store(generated: GeneratedFile, name: &str, cx: &ToolContext) -> Result<Output, ToolError> {
    let name = format!("{name}.{}", extension(&generated.mime_type));
    let file = cx.store_file(generated.bytes, generated.mime_type, name).await?;
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
