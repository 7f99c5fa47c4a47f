//! Blobs in R2.

use super::timeout::with_timeout;
use crate::ports::{BlobError, BlobResult, BlobStore};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::time::Duration;
use worker::{Bucket, HttpMetadata, Range as Part};

/// Maximum number of keys deleted by one call to R2.
const MAX_KEYS_PER_DELETE: usize = 1_000;
/// Timeout of one call to R2 including its body.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The bucket.
pub struct R2Blobs(pub Bucket);

#[async_trait(?Send)]
impl BlobStore for R2Blobs {
    async fn put(&self, key: &str, bytes: Bytes, mime_type: &str) -> BlobResult<()> {
        let metadata = HttpMetadata { content_type: Some(mime_type.to_owned()), ..HttpMetadata::default() };
        let put = self.0.put(key, Vec::from(bytes)).http_metadata(metadata);
        with_timeout(TIMEOUT, put.execute()).await?;
        Ok(())
    }

    async fn get(&self, key: &str, range: Option<Range<u64>>) -> BlobResult<Option<Bytes>> {
        let mut get = self.0.get(key);
        if let Some(range) = &range {
            let length = range.end.saturating_sub(range.start);
            get = get.range(Part::OffsetWithLength { offset: range.start, length });
        }
        let read = async {
            let Some(object) = get.execute().await? else { return Ok(None) };
            let body = object.body().ok_or("the object has no body")?;
            body.bytes().await.map(Some)
        };
        let Some(bytes) = with_timeout(TIMEOUT, read).await? else { return Ok(None) };
        match range {
            Some(range) if bytes.len() as u64 != range.end - range.start => {
                Err(BlobError(format!("got {} bytes for the range {range:?}", bytes.len())))
            }
            _ => Ok(Some(bytes.into())),
        }
    }

    async fn delete(&self, keys: &[String]) -> BlobResult<()> {
        for keys in keys.chunks(MAX_KEYS_PER_DELETE) {
            with_timeout(TIMEOUT, self.0.delete_multiple(keys.to_vec())).await?;
        }
        Ok(())
    }

    async fn delete_prefix(&self, prefix: &str) -> BlobResult<()> {
        loop {
            let list = self.0.list().prefix(prefix).limit(MAX_KEYS_PER_DELETE as u32);
            let page = with_timeout(TIMEOUT, list.execute()).await?;
            let keys: Vec<String> = page.objects().iter().map(worker::Object::key).collect();
            if keys.is_empty() {
                return Ok(());
            }
            with_timeout(TIMEOUT, self.0.delete_multiple(keys)).await?;
            if !page.truncated() {
                return Ok(());
            }
        }
    }
}
