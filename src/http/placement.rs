//! On which shard a tenant's rows are, as long as it is not written down anywhere.
//!
//! Rendezvous hashing: each shard draws a number for the tenant, and the highest has it. A shard that
//! is added takes a share from each of the others and moves nobody between those.

use crate::types::TenantId;
use sha2::{Digest, Sha256};

/// How long an isolate remembers on which shard a tenant is, in milliseconds. That never changes; only an id
/// that comes back may be elsewhere.
pub const PLACED_MS: u64 = 10 * 60_000;

/// The shard that has a tenant of this name; none if there are no shards.
pub fn by_name<'a>(tenant: &TenantId, shards: &'a [String]) -> Option<&'a str> {
    shards.iter().map(String::as_str).max_by_key(|shard| draw(tenant, shard))
}

/// What a shard draws for a tenant: the same for ever, on every machine. No shard's name has a slash
/// in it, so no two pairs are the same text.
fn draw(tenant: &TenantId, shard: &str) -> [u8; 32] {
    Sha256::digest(format!("{shard}/{tenant}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn shards(count: usize) -> Vec<String> {
        (0..count).map(|n| if n == 0 { "DB".into() } else { format!("DB_{n}") }).collect()
    }

    #[test]
    fn a_name_gives_the_same_shard_for_ever() {
        let placed = ["dev", "acme", "globex", "ten_1", "ten_2"]
            .map(|tenant| by_name(&tenant.into(), &shards(3)).map(str::to_owned));
        assert_eq!(placed.map(Option::unwrap), ["DB_1", "DB", "DB", "DB_2", "DB_2"]);
        assert_eq!((by_name(&"acme".into(), &[]), by_name(&"acme".into(), &shards(1))), (None, Some("DB")));
    }

    #[test]
    fn tenants_spread_evenly() {
        for count in 2..=8 {
            let names = shards(count);
            let mut sizes = BTreeMap::new();
            for n in 0..4_000 {
                *sizes.entry(by_name(&format!("tenant-{n}").into(), &names)).or_insert(0) += 1;
            }
            let fair = 4_000 / count;
            assert!(
                sizes.len() == count
                    && sizes.values().all(|size| (fair * 4 / 5..=fair * 6 / 5).contains(size)),
                "{sizes:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_shard_that_is_added_moves_nobody_between_the_others(tenant in "[A-Za-z0-9_.:@~-]{1,128}", count in 1..12_usize) {
            let tenant = TenantId::from(tenant);
            let (before, after) = (shards(count), shards(count + 1));
            let (old, new) = (by_name(&tenant, &before), by_name(&tenant, &after));
            prop_assert!(new == old || new == after.last().map(String::as_str));
        }

        #[test]
        fn the_order_of_shards_does_not_matter(tenant in "[A-Za-z0-9_.:@~-]{1,128}", count in 1..12_usize) {
            let tenant = TenantId::from(tenant);
            let (names, reversed) = (shards(count), shards(count).into_iter().rev().collect::<Vec<_>>());
            prop_assert_eq!(by_name(&tenant, &names), by_name(&tenant, &reversed));
        }
    }
}
