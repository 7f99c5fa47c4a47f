//! Settings of what a tenant may store.

use super::{Config, Kind, Setting, Topic, ValueError, value};

pub const TOPIC: Topic = Topic {
    title: "Storage of a tenant",
    about: "How much a tenant may store in the databases, unless its own \
            [limits](operations.md#storage-limits) say otherwise.",
    settings: &[
        Setting {
            name: "STORAGE_BYTES",
            kind: Kind::Variable(|config, text| set(&mut config.storage.storage_bytes, text)),
            default: "1000000000",
            expects: "a whole number",
            doc: "The maximum size of the files and the memory of all users together, in bytes. The search index \
                  is about as large as the memory, and does not count.",
            example: "",
        },
        count(
            "STORAGE_FILES",
            |config, text| set(&mut config.storage.files, text),
            "The maximum number of files. Not set: no limit.",
        ),
        count(
            "STORAGE_MEMORY_ROWS",
            |config, text| set(&mut config.storage.memory_rows, text),
            "The maximum number of rows of the memory index. A fact is a row, and so is a line of `MEMORY.md`; a long \
             message of a conversation is several. Not set: no limit.",
        ),
        count(
            "STORAGE_SESSIONS",
            |config, text| set(&mut config.agent.max_sessions, text),
            "The maximum number of sessions. Not set: no limit.",
        ),
    ],
};

const fn count(
    name: &'static str,
    parse: fn(&mut Config, &str) -> Result<(), ValueError>,
    doc: &'static str,
) -> Setting {
    Setting { name, kind: Kind::Variable(parse), default: "", expects: "a whole number", doc, example: "" }
}

fn set(limit: &mut Option<u64>, text: &str) -> Result<(), ValueError> {
    *limit = Some(value::number(text, 0)?);
    Ok(())
}
