//! Deterministic random numbers (SplitMix64).

/// A source of random numbers.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        // Adjacent seeds must not give similar scenarios.
        let mut dice = Self(seed ^ 0x5bd1_e995_7c6d_a2f1);
        dice.roll();
        dice
    }

    /// Creates an independent source. Its numbers do not depend on later use of this one.
    pub fn fork(&mut self) -> Self {
        Self::new(self.roll())
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `n - 1`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n.max(1)
    }

    /// Returns a number from `low` to `high`, inclusive.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True with a probability of `percent`.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of the elements.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let place = usize::try_from(self.below(from.len() as u64)).unwrap_or(0);
        from[place].clone()
    }
}
