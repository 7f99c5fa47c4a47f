//! stub
use crate::ports::memory::NewPart;
use crate::types::Timestamp;
pub fn whole(text: &str, _at: Timestamp, _speaker: Option<&str>) -> NewPart {
    NewPart { text: text.into(), terms: text.to_lowercase(), length: 1 }
}
pub fn parts(text: &str, at: Timestamp, speaker: Option<&str>) -> Vec<NewPart> {
    vec![whole(text, at, speaker)]
}
