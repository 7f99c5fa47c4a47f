//! Large things in R2.

use crate::ports::BlobStore;
use async_trait::async_trait;
use worker::Bucket;

/// Keys that one call to R2 removes at most.
const AT_ONCE: u32 = 1_000;

/// The bucket.
pub struct R2Blobs(pub Bucket);

#[async_trait(?Send)]
impl BlobStore for R2Blobs {
    async fn delete_prefix(&self, prefix: &str) -> Result<(), String> {
        loop {
            let page =
                self.0.list().prefix(prefix).limit(AT_ONCE).execute().await.map_err(|e| e.to_string())?;
            let keys: Vec<String> = page.objects().iter().map(worker::Object::key).collect();
            if keys.is_empty() {
                return Ok(());
            }
            self.0.delete_multiple(keys).await.map_err(|e| e.to_string())?;
            if !page.truncated() {
                return Ok(());
            }
        }
    }
}
