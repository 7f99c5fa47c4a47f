//! Decides which calls of one response may run concurrently.

use super::replay::ReplayKey;
use crate::types::Effect;

/// Maximum number of concurrent calls, which is the platform's limit of open connections per request.
pub const MAX_IN_FLIGHT: usize = 6;

/// What the scheduler needs to know about a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Effect of the tool; the strictest one for a call that must run alone.
    pub effect: Effect,
    /// Resources that the call uses.
    pub keys: Vec<String>,
    /// Identity of the call. Equal calls do not overlap, so that the second is skipped if the first succeeds.
    pub replay: ReplayKey,
}

impl Claim {
    /// Returns whether two calls must not overlap.
    fn conflicts(&self, other: &Self) -> bool {
        !self.effect.is_read()
            || !other.effect.is_read()
            || self.replay == other.replay
            || self.keys.iter().any(|key| other.keys.contains(key))
    }
}

/// Splits calls into waves that keep their order. A wave contains reads that share no resource; any other
/// call runs alone. Returns indices into `calls`.
pub fn waves(calls: &[Claim]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        match waves.last_mut() {
            Some(wave)
                if wave.len() < MAX_IN_FLIGHT
                    && !wave
                        .iter()
                        .filter_map(|other| calls.get(*other))
                        .any(|other| call.conflicts(other)) =>
            {
                wave.push(index);
            }
            _ => waves.push(vec![index]),
        }
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn claim() -> impl Strategy<Value = Claim> {
        let effect = prop_oneof![
            4 => Just(Effect::ReadOnly),
            2 => Just(Effect::NetworkRead),
            1 => Just(Effect::LocalWrite),
            1 => Just(Effect::Destructive),
        ];
        (effect, prop::collection::vec("[a-d]", 0..3), 0..6).prop_map(|(effect, keys, args)| Claim {
            effect,
            keys,
            replay: ReplayKey::of("t", &json!(args)),
        })
    }

    proptest! {
        #[test]
        fn waves_keep_order_and_never_mix_conflicts(calls in prop::collection::vec(claim(), 0..20)) {
            let waves = waves(&calls);
            let flat: Vec<usize> = waves.iter().flatten().copied().collect();
            prop_assert_eq!(flat, (0..calls.len()).collect::<Vec<_>>());
            for wave in &waves {
                prop_assert!(wave.len() <= MAX_IN_FLIGHT);
                for (a, b) in wave.iter().flat_map(|a| wave.iter().filter(move |b| *b > a).map(move |b| (a, b))) {
                    let (a, b) = (&calls[*a], &calls[*b]);
                    prop_assert!(a.effect.is_read() && b.effect.is_read());
                    prop_assert!(a.replay != b.replay);
                    prop_assert!(a.keys.iter().all(|key| !b.keys.contains(key)));
                }
            }
        }
    }
}
