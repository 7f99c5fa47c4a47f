//! Prices of models.

use crate::types::Price;
use std::collections::BTreeMap;
use thiserror::Error;

/// US dollars per million tokens: input, output, cache read, cache write. Source: the providers' price lists,
/// as of November 2025. `MODEL_PRICES` overrides it.
const TABLE: &[(&str, [f64; 4])] = &[
    ("openai/gpt-5.1", [1.25, 10.0, 0.125, 1.25]),
    ("openai/gpt-5", [1.25, 10.0, 0.125, 1.25]),
    ("openai/gpt-5-mini", [0.25, 2.0, 0.025, 0.25]),
    ("openai/gpt-5-nano", [0.05, 0.4, 0.005, 0.05]),
    ("openai/gpt-4.1", [2.0, 8.0, 0.5, 2.0]),
    ("openai/gpt-4.1-mini", [0.4, 1.6, 0.1, 0.4]),
    ("openai/gpt-4.1-nano", [0.1, 0.4, 0.025, 0.1]),
    ("openai/gpt-4o", [2.5, 10.0, 1.25, 2.5]),
    ("openai/gpt-4o-mini", [0.15, 0.6, 0.075, 0.15]),
    ("openai/o3", [2.0, 8.0, 0.5, 2.0]),
    ("openai/o4-mini", [1.1, 4.4, 0.275, 1.1]),
    ("anthropic/claude-opus-4-5", [5.0, 25.0, 0.5, 6.25]),
    ("anthropic/claude-opus-4-1", [15.0, 75.0, 1.5, 18.75]),
    ("anthropic/claude-opus-4", [15.0, 75.0, 1.5, 18.75]),
    ("anthropic/claude-sonnet-4-5", [3.0, 15.0, 0.3, 3.75]),
    ("anthropic/claude-sonnet-4", [3.0, 15.0, 0.3, 3.75]),
    ("anthropic/claude-3-7-sonnet", [3.0, 15.0, 0.3, 3.75]),
    ("anthropic/claude-haiku-4-5", [1.0, 5.0, 0.1, 1.25]),
    ("anthropic/claude-3-5-haiku", [0.8, 4.0, 0.08, 1.0]),
];

/// Prices of models: the overrides of this deployment, then `TABLE`.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    overrides: BTreeMap<String, Price>,
}

/// A negative price, with the id of its model.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("negative price for {0:?}")]
pub struct NegativePrice(pub String);

impl Prices {
    /// Creates prices that override the built-in ones, by model id.
    ///
    /// # Errors
    /// Returns an error when a price is negative.
    pub fn new(overrides: BTreeMap<String, Price>) -> Result<Self, NegativePrice> {
        let negative = overrides.iter().find(|(_, price)| {
            let all = [Some(price.input), Some(price.output), price.cache_read, price.cache_write];
            all.into_iter().flatten().any(|dollars| dollars < 0.0)
        });
        match negative {
            Some((id, _)) => Err(NegativePrice(id.clone())),
            None => Ok(Self { overrides }),
        }
    }

    /// Returns the price of `provider/model`. A dated id has the price of the same id without its date. The
    /// demo model is free.
    pub(super) fn of(&self, id: &str) -> Option<Price> {
        if id.starts_with("demo/") {
            return Some(Price::default());
        }
        let find = |id: &str| {
            let listed =
                || TABLE.iter().find(|(listed, _)| *listed == id).map(|(_, price)| from_list(*price));
            self.overrides.get(id).copied().or_else(listed)
        };
        find(id).or_else(|| find(undated(id)?))
    }
}

fn from_list([input, output, cache_read, cache_write]: [f64; 4]) -> Price {
    Price { input, output, cache_read: Some(cache_read), cache_write: Some(cache_write) }
}

/// Strips the date that ends an id. Strips nothing else: `gpt-5-pro` and `gpt-5` are different models, and so
/// are `claude-opus-4-1` and `claude-opus-4`.
fn undated(id: &str) -> Option<&str> {
    ["-YYYYMMDD", "-YYYY-MM-DD"].iter().find_map(|form| {
        let (model, date) = id.split_at_checked(id.len().checked_sub(form.len())?)?;
        let fits = |(c, form): (char, char)| if form == '-' { c == '-' } else { c.is_ascii_digit() };
        (date.starts_with("-20") && date.chars().zip(form.chars()).all(fits)).then_some(model)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn prices_are_found_by_id_with_or_without_a_date() {
        let prices = Prices::default();
        let input = |id: &str| prices.of(id).map(|price| price.input);
        assert_eq!(input("openai/gpt-4o-2024-08-06"), Some(2.5));
        assert_eq!(input("anthropic/claude-sonnet-4-20250514"), Some(3.0));
        assert_eq!(input("anthropic/claude-opus-4-1-20250805"), Some(15.0));
        assert_eq!(input("anthropic/claude-opus-4-5"), Some(5.0));
        assert_eq!(input("demo/echo"), Some(0.0));
        for unknown in ["openai/gpt-5-pro", "anthropic/claude-opus-4-9", "openai/gpt-5-12345678", "gpt-5", ""]
        {
            assert_eq!(input(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn configured_prices_override_the_table() {
        let overrides = Price { input: 1.0, output: 2.0, cache_read: None, cache_write: None };
        let free = Price { cache_read: Some(0.0), ..Price::default() };
        let prices = [("openai/gpt-5".to_owned(), overrides), ("openai/mine".to_owned(), free)];
        let prices = Prices::new(prices.into()).unwrap();
        assert_eq!(prices.of("openai/gpt-5"), Some(overrides));
        assert_eq!(prices.of("openai/gpt-5-2025-08-07"), Some(overrides));
        assert_eq!(prices.of("openai/mine").and_then(|price| price.cache_read), Some(0.0));
        assert_eq!(prices.of("openai/gpt-5-mini").map(|price| price.input), Some(0.25));
        let negative = Price { input: -1.0, ..overrides };
        let refused = Prices::new([("a/b".to_owned(), negative)].into()).unwrap_err();
        assert_eq!(refused, NegativePrice("a/b".into()));
    }
}
