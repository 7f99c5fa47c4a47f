//! The correction of token estimates by the provider's counts.

use crate::types::Gauge;

/// The plausible range of the correction, in permille. A count outside it belongs to another request.
const PERMILLE: std::ops::RangeInclusive<u64> = 600..=2_500;

/// Smallest request, in tokens, that is believed to have exceeded a context window.
const MIN_OVERFLOW: u64 = 1_000;

impl Gauge {
    /// Returns the correction for `model`: this one if it is for that model, else an empty one.
    pub fn of(&self, model: &str) -> Self {
        if self.model == model { self.clone() } else { Self { model: model.to_owned(), ..Self::default() } }
    }

    /// Learns the ratio of the provider's count to the estimate.
    pub fn learn(&mut self, estimated: u64, counted: u64) {
        if estimated > 0 && counted > 0 {
            self.permille = (counted * 1_000 / estimated).clamp(*PERMILLE.start(), *PERMILLE.end());
        }
    }

    /// Records that a request of this estimated size was rejected as too long. A request that is hardly
    /// larger than its fixed part is ignored: it failed for another reason, such as an output limit beyond
    /// the window.
    pub fn refuse(&mut self, estimated: u64) {
        if estimated >= 2 * self.fixed.max(MIN_OVERFLOW) {
            let known = if self.too_much == 0 { estimated } else { self.too_much };
            self.too_much = known.min(estimated);
        }
    }

    /// Raises the rejected size a little after each success, up to the estimated `window`: the rejection may
    /// have had another reason.
    pub fn accept(&mut self, window: u64) {
        let more = self.too_much + self.too_much / 16;
        self.too_much = if more < window { more } else { 0 };
    }

    /// Converts an estimate to the provider's count.
    pub fn counted(&self, estimated: u64) -> u64 {
        if self.permille == 0 { estimated } else { estimated.saturating_mul(self.permille) / 1_000 }
    }

    /// Converts a provider's count to an estimate.
    pub fn estimated(&self, counted: u64) -> u64 {
        counted.saturating_mul(1_000).checked_div(self.permille).unwrap_or(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_gauge_learns_within_bounds() {
        let mut gauge = Gauge::default().of("a/b");
        assert_eq!((gauge.counted(1_000), gauge.estimated(1_000)), (1_000, 1_000));
        gauge.learn(1_000, 1_250);
        assert_eq!((gauge.counted(2_000), gauge.estimated(2_500)), (2_500, 2_000));
        gauge.learn(1_000, 0);
        assert_eq!(gauge.permille, 1_250);
        gauge.learn(1_000_000, 1);
        assert_eq!(gauge.permille, 600);
        gauge.fixed = 3_000;
        gauge.refuse(5_999);
        assert_eq!(gauge.too_much, 0);
        gauge.refuse(8_000);
        gauge.refuse(9_000);
        assert_eq!(gauge.too_much, 8_000);
        gauge.accept(128_000);
        assert_eq!(gauge.too_much, 8_500);
        (0..10_000).for_each(|_| gauge.accept(128_000));
        assert_eq!(gauge.too_much, 0, "the full window is used again");
        assert_eq!(gauge.of("c/d").permille, 0);
        assert_eq!(gauge.of("a/b"), gauge);
    }
}
