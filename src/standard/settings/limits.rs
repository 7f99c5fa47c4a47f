//! Settings of the limits of tenants.

use super::{Config, Kind, Setting, Topic, ValueError, value};

pub const TOPIC: Topic = Topic {
    title: "Limits of tenants",
    about: "Limits of each tenant that does not have its own, see [operations.md](operations.md#limits-of-a-tenant).",
    settings: &[
        limit(
            "TENANT_REQUESTS_PER_MIN",
            |config, text| set(&mut config.limits.requests_per_min, text),
            A_COUNT,
            "Requests of a tenant in a minute. Not set: no limit.",
        ),
        limit(
            "TENANT_CONCURRENT_TURNS",
            |config, text| set(&mut config.limits.concurrent_turns, text),
            A_COUNT,
            "Sessions of a tenant with a running turn. Not set: no limit.",
        ),
        limit(
            "TENANT_TURNS_PER_DAY",
            |config, text| set(&mut config.limits.turns_per_day, text),
            A_COUNT,
            "Turns of a tenant that start in a UTC day. Not set: no limit.",
        ),
        limit(
            "TENANT_TOKENS_PER_DAY",
            |config, text| set(&mut config.limits.tokens_per_day, text),
            A_COUNT,
            "Once a tenant has used this many tokens in a UTC day, no further turn starts on that day. Not set: no limit.",
        ),
        limit(
            "TENANT_COST_USD_PER_DAY",
            |config, text| {
                config.limits.cost_usd_per_day = Some(value::number(text, 0.0)?);
                Ok(())
            },
            "a number from 0",
            "Once a tenant's turns have cost this many US dollars in a UTC day, no further turn starts or continues after a decision on that day. Turns that run at the same time may exceed it, unless the tenant also has a limit `max_cost_usd`. Not set: no limit.",
        ),
    ],
};

const A_COUNT: &str = "a whole number from 0";

const fn limit(
    name: &'static str,
    parse: fn(&mut Config, &str) -> Result<(), ValueError>,
    expects: &'static str,
    doc: &'static str,
) -> Setting {
    Setting { name, kind: Kind::Variable(parse), default: "", expects, doc, example: "" }
}

fn set<T: std::str::FromStr + PartialOrd + Default>(
    limit: &mut Option<T>,
    text: &str,
) -> Result<(), ValueError> {
    *limit = Some(value::number(text, T::default())?);
    Ok(())
}
