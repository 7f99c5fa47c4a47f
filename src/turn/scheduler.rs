//! Which calls of one response may run beside each other.

use crate::types::{Effect, ToolSpec};

/// Most calls in flight at once: the platform opens no more connections per request.
pub const MAX_IN_FLIGHT: usize = 6;

/// Splits calls into waves that keep their order. A wave holds reads whose resource keys are
/// disjoint; everything else, unknown tools included, runs alone.
///
/// Takes each call's spec (`None` for an unknown tool) and returns indices into it.
pub fn waves(calls: &[Option<&ToolSpec>]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut keys: Vec<&str> = Vec::new();
    let mut open = false;
    for (index, spec) in calls.iter().enumerate() {
        let effect = spec.map_or(Effect::Destructive, |spec| spec.effect);
        let own: Vec<&str> = match spec {
            Some(spec) if !spec.resource_keys.is_empty() => {
                spec.resource_keys.iter().map(String::as_str).collect()
            }
            _ => Vec::new(),
        };
        let disjoint = own.iter().all(|key| !keys.contains(key));
        match waves.last_mut() {
            Some(wave) if open && effect.is_read() && disjoint && wave.len() < MAX_IN_FLIGHT => {
                wave.push(index)
            }
            _ => {
                waves.push(vec![index]);
                keys.clear();
                open = effect.is_read();
            }
        }
        keys.extend(own);
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn spec(effect: Effect, keys: &[u8]) -> ToolSpec {
        ToolSpec {
            name: "t".into(),
            description: String::new(),
            parameters: json!({}),
            effect,
            idempotent: effect.is_read(),
            resource_keys: keys.iter().map(u8::to_string).collect(),
            category: "read".into(),
        }
    }

    fn effects() -> impl Strategy<Value = Effect> {
        prop_oneof![
            4 => Just(Effect::ReadOnly),
            2 => Just(Effect::NetworkRead),
            1 => Just(Effect::LocalWrite),
            1 => Just(Effect::Destructive),
        ]
    }

    proptest! {
        #[test]
        fn waves_keep_order_and_never_mix_conflicts(
            calls in prop::collection::vec((effects(), prop::collection::vec(0u8..4, 0..3), any::<bool>()), 0..20)
        ) {
            let specs: Vec<Option<ToolSpec>> = calls.iter().map(|(e, k, known)| known.then(|| spec(*e, k))).collect();
            let refs: Vec<Option<&ToolSpec>> = specs.iter().map(Option::as_ref).collect();
            let waves = waves(&refs);
            let flat: Vec<usize> = waves.iter().flatten().copied().collect();
            prop_assert_eq!(flat, (0..calls.len()).collect::<Vec<_>>());
            for wave in waves.iter().filter(|wave| wave.len() > 1) {
                prop_assert!(wave.len() <= MAX_IN_FLIGHT);
                let mut seen = Vec::new();
                for &index in wave {
                    let spec = refs[index].expect("an unknown tool runs alone");
                    prop_assert!(spec.effect.is_read());
                    for key in &spec.resource_keys {
                        prop_assert!(!seen.iter().any(|(other, k)| k == key && *other != index));
                        seen.push((index, key.clone()));
                    }
                }
            }
        }
    }
}
