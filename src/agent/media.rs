//! Adds the contents of users' files to a request to the model.

use super::{RuntimeContext, preparer::PreparedRequest, react::ReactAgent};
use crate::types::{
    FileRef, LeftOut, Media, MediaKind, ModelRequest, Part, RequestMedia, Role,
    media::{MAX_MEDIA, MAX_MEDIA_FILES, MediaPermit},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::future::join_all;
use std::{rc::Rc, time::Duration};

/// The name of this sub-step in events.
const STEP: &str = "media";
/// How long a request waits before it looks again whether the isolate has room for its files.
const WAIT: Duration = Duration::from_millis(50);

impl ReactAgent<'_> {
    /// Returns the request with the images, PDFs and audio of its messages, as far as the model takes them. Newer
    /// files come first. A file of the turn's own message that is left out is reported as a failed sub-step.
    ///
    /// Files are read again for each request: kept, they would take the isolate's memory while the model responds.
    pub(super) async fn with_media(&self, prepared: &PreparedRequest) -> ModelRequest {
        let mut request = prepared.request.clone();
        let files = files(&request);
        if files.is_empty() {
            return request;
        }
        let mut media = RequestMedia::default();
        let (mut sent, mut size) = (Vec::new(), 0);
        for (file, kind) in files {
            let bytes = usize::try_from(file.bytes).unwrap_or(usize::MAX);
            let why = if !self.agent.models.takes(&prepared.model, kind) {
                Some(LeftOut::NotTaken(kind))
            } else if self.cx.state.is_media_refused() {
                Some(LeftOut::Refused)
            } else if bytes > MAX_MEDIA - size || sent.len() == MAX_MEDIA_FILES {
                Some(LeftOut::TooLarge)
            } else {
                None
            };
            match why {
                Some(why) => {
                    media.files.insert(file.r#ref.clone(), Err(why));
                }
                None => {
                    size += bytes;
                    sent.push(file);
                }
            }
        }
        if !sent.is_empty() {
            media.permit = Some(Rc::new(permit(self.cx, size).await));
        }
        for (file, content) in join_all(sent.iter().map(|file| read(self.cx, file))).await {
            media.files.insert(file.r#ref.clone(), content.ok_or(LeftOut::Unreadable));
        }
        self.report(&request, &media);
        request.media = Rc::new(media);
        request
    }

    /// Reports the first file of the turn's own message that the request does not carry.
    fn report(&self, request: &ModelRequest, media: &RequestMedia) {
        let own = request.messages.iter().filter(|message| message.turn == *self.cx.turn());
        let mut left_out = own.flat_map(|message| &message.parts).filter_map(|part| match part {
            Part::File(file) => Some((file, media.files.get(&file.r#ref)?.as_ref().err()?)),
            _ => None,
        });
        if let Some((file, why)) = left_out.next() {
            let name = file.name.as_deref().unwrap_or(&file.r#ref);
            self.cx.state.sub_step_failed(STEP, &format!("the model got only the name of {name:?}: {why}"));
        }
    }
}

/// Returns the files of the users' messages that some model could take, the newest first, each once.
fn files(request: &ModelRequest) -> Vec<(FileRef, MediaKind)> {
    let mut files: Vec<(FileRef, MediaKind)> = Vec::new();
    let messages = request.messages.iter().rev().filter(|message| message.role == Role::User);
    for part in messages.flat_map(|message| message.parts.iter().rev()) {
        if let Part::File(file) = part
            && let Some(kind) = MediaKind::of(&file.mime_type)
            && !files.iter().any(|(known, _)| known.r#ref == file.r#ref)
        {
            files.push((file.clone(), kind));
        }
    }
    files
}

/// Waits until the isolate has room for files of this size.
async fn permit(cx: &RuntimeContext, bytes: usize) -> MediaPermit {
    loop {
        if let Some(permit) = MediaPermit::reserve(bytes) {
            return permit;
        }
        cx.clock.sleep(WAIT).await;
    }
}

/// Reads the content of a file.
async fn read<'a>(cx: &RuntimeContext, file: &'a FileRef) -> (&'a FileRef, Option<Media>) {
    let read = async {
        let pointer = cx.artifacts.find(&file.r#ref)?;
        cx.artifacts.read(&pointer, None).await
    };
    let bytes = read.await.ok().filter(|bytes| bytes.len() as u64 == file.bytes);
    (file, bytes.and_then(|bytes| Media::new(&file.mime_type, BASE64_STANDARD.encode(bytes))))
}
