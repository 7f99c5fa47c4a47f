//! Large things in R2.

use super::answer::answer;
use crate::ports::BlobStore;
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use worker::{Bucket, HttpMetadata, Range as Part};

/// Keys that one call to R2 removes at most.
const AT_ONCE: usize = 1_000;
/// How long one call to R2 may take, in milliseconds, its bytes included.
const PATIENCE_MS: u64 = 30_000;

/// The bucket.
pub struct R2Blobs(pub Bucket);

#[async_trait(?Send)]
impl BlobStore for R2Blobs {
    async fn put(&self, key: &str, bytes: Bytes, mime_type: &str) -> Result<(), String> {
        let metadata = HttpMetadata { content_type: Some(mime_type.to_owned()), ..HttpMetadata::default() };
        let put = self.0.put(key, Vec::from(bytes)).http_metadata(metadata);
        answer(PATIENCE_MS, put.execute()).await.map(drop)
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Bytes>, String> {
        let mut get = self.0.get(key);
        if let Some(range) = &range {
            let length = range.end.saturating_sub(range.start);
            get = get.range(Part::OffsetWithLength { offset: range.start, length });
        }
        let read = async {
            let Some(object) = get.execute().await? else { return Ok(None) };
            let body = object.body().ok_or("an object without a body")?;
            body.bytes().await.map(Some)
        };
        let Some(bytes) = answer(PATIENCE_MS, read).await? else { return Ok(None) };
        match range {
            Some(range) if bytes.len() as u64 != range.end - range.start => {
                Err(format!("{} bytes instead of {range:?}", bytes.len()))
            }
            _ => Ok(Some(bytes.into())),
        }
    }

    async fn delete(&self, keys: &[String]) -> Result<(), String> {
        for keys in keys.chunks(AT_ONCE) {
            answer(PATIENCE_MS, self.0.delete_multiple(keys.to_vec())).await?;
        }
        Ok(())
    }

    async fn delete_prefix(&self, prefix: &str) -> Result<(), String> {
        loop {
            let list = self.0.list().prefix(prefix).limit(AT_ONCE as u32);
            let page = answer(PATIENCE_MS, list.execute()).await?;
            let keys: Vec<String> = page.objects().iter().map(worker::Object::key).collect();
            if keys.is_empty() {
                return Ok(());
            }
            answer(PATIENCE_MS, self.0.delete_multiple(keys)).await?;
            if !page.truncated() {
                return Ok(());
            }
        }
    }
}
