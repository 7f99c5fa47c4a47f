//! Chooses the shard for the rows of a tenant that has no stored shard, and for those of each user of a spread tenant.
//!
//! Rendezvous hashing: the shard with the highest weight for the tenant gets it. A new shard takes a share of
//! the tenants of every other shard, and no tenant moves between the others.

use crate::types::{TenantId, UserId};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// How long an isolate caches the shard of a tenant that does not move.
pub const SHARD_TTL: Duration = Duration::from_mins(10);

/// Returns the shard of a tenant; `None` if there are no shards.
pub fn shard<'a>(tenant: &TenantId, shards: &'a [String]) -> Option<&'a str> {
    shards.iter().map(String::as_str).max_by_key(|shard| weight(&format!("{shard}/{tenant}")))
}

/// Returns the shard of a user among the shards over which its tenant is spread; `None` if there are none.
pub fn user_shard<'a>(tenant: &TenantId, user: &UserId, shards: &'a [String]) -> Option<&'a str> {
    shards.iter().map(String::as_str).max_by_key(|shard| weight(&format!("{shard}/{tenant}/{user}")))
}

/// Returns the weight of a shard for a tenant or a user, which must never change. The names of shards and tenants
/// contain no slash, so no two of them have the same text.
fn weight(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
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
    fn the_shard_of_an_id_never_changes() {
        let placed = ["dev", "acme", "globex", "ten_1", "ten_2"]
            .map(|tenant| shard(&tenant.into(), &shards(3)).map(str::to_owned));
        assert_eq!(placed.map(Option::unwrap), ["DB_1", "DB", "DB", "DB_2", "DB_2"]);
        assert_eq!((shard(&"acme".into(), &[]), shard(&"acme".into(), &shards(1))), (None, Some("DB")));
    }

    #[test]
    fn the_shard_of_a_user_never_changes_and_depends_on_the_tenant() {
        let placed = |tenant: &str| {
            ["ann", "bob", "cy", "a/b", ""].map(|user| {
                user_shard(&tenant.into(), &user.into(), &shards(3)).map(str::to_owned).unwrap_or_default()
            })
        };
        assert_eq!(placed("acme"), ["DB_1", "DB", "DB_2", "DB_2", "DB"]);
        assert_ne!(placed("acme"), placed("globex"));
        assert_eq!(user_shard(&"acme".into(), &"ann".into(), &[]), None);
        let all: Vec<UserId> = (0..900).map(|n| format!("user-{n}").into()).collect();
        for shard in shards(3) {
            let own = all.iter().filter(|user| user_shard(&"acme".into(), user, &shards(3)) == Some(&shard));
            assert!((240..=360).contains(&own.count()), "a third of the users are on {shard}");
        }
    }

    #[test]
    fn tenants_spread_evenly() {
        for count in 2..=8 {
            let names = shards(count);
            let mut sizes = BTreeMap::new();
            for n in 0..4_000 {
                *sizes.entry(shard(&format!("tenant-{n}").into(), &names)).or_insert(0) += 1;
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
        fn a_new_shard_moves_no_tenant_between_the_others(tenant in "[A-Za-z0-9_.:@~-]{1,128}", count in 1..12_usize) {
            let tenant = TenantId::from(tenant);
            let (before, after) = (shards(count), shards(count + 1));
            let (old, new) = (shard(&tenant, &before), shard(&tenant, &after));
            prop_assert!(new == old || new == after.last().map(String::as_str));
        }

        #[test]
        fn the_order_of_shards_does_not_matter(tenant in "[A-Za-z0-9_.:@~-]{1,128}", count in 1..12_usize) {
            let tenant = TenantId::from(tenant);
            let (names, reversed) = (shards(count), shards(count).into_iter().rev().collect::<Vec<_>>());
            prop_assert_eq!(shard(&tenant, &names), shard(&tenant, &reversed));
        }
    }
}
