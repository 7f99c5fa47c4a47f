//! The resources that the Worker is bound to.

use super::{Kind, Setting, Topic};

pub const TOPIC: Topic = Topic {
    title: "Bindings",
    about: "`wrangler.toml` has these resources. [operations.md](operations.md#deploying) shows how to create them.",
    settings: &[
        binding("SESSION", "a Durable Object namespace", "The session objects."),
        binding(
            "TENANT",
            "a Durable Object namespace",
            "The ledgers of the tenants: their usage and their limits over time.",
        ),
        binding(
            "DB",
            "a D1 database",
            "Tenants and keys, and the first [shard](operations.md#shards): the data of some or all tenants.",
        ),
        binding(
            "DB_1",
            "a D1 database",
            "The second shard, followed by `DB_2`, `DB_3`, …, see [operations.md](operations.md#shards).",
        ),
        binding(
            "BLOBS",
            "an R2 bucket",
            "All artifacts and attachments, and workspace files of more than 256 kB.",
        ),
    ],
};

const fn binding(name: &'static str, expects: &'static str, doc: &'static str) -> Setting {
    Setting { name, kind: Kind::Binding, default: "", expects, doc, example: "" }
}
