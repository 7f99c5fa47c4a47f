//! What models cost.

use crate::types::Price;
use std::collections::BTreeMap;
use thiserror::Error;

/// US dollars per million tokens: input, output, read from the cache, written to it. Source: the
/// price lists that the providers publish, as of November 2025. Override with `MODEL_PRICES`.
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

/// Prices of models: a deployment's own, then the built-in ones.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    own: BTreeMap<String, Price>,
}

/// A model's price is below 0.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} has a price below 0")]
pub struct NegativePrice(pub String);

impl Prices {
    /// Uses these prices, by model id, before the built-in ones.
    ///
    /// # Errors
    /// When a price is below 0.
    pub fn new(own: BTreeMap<String, Price>) -> Result<Self, NegativePrice> {
        let negative = own.iter().find(|(_, price)| {
            let all = [Some(price.input), Some(price.output), price.cache_read, price.cache_write];
            all.into_iter().flatten().any(|dollars| dollars < 0.0)
        });
        match negative {
            Some((id, _)) => Err(NegativePrice(id.clone())),
            None => Ok(Self { own }),
        }
    }

    /// What the model `provider/model` costs. An id that ends in a date costs what the one without
    /// it does. The demo model is free.
    pub(super) fn of(&self, id: &str) -> Option<Price> {
        if id.starts_with("demo/") {
            return Some(Price::default());
        }
        let find = |id: &str| {
            let listed =
                || TABLE.iter().find(|(listed, _)| *listed == id).map(|(_, price)| from_list(*price));
            self.own.get(id).copied().or_else(listed)
        };
        find(id).or_else(|| find(undated(id)?))
    }
}

fn from_list([input, output, cache_read, cache_write]: [f64; 4]) -> Price {
    Price { input, output, cache_read: Some(cache_read), cache_write: Some(cache_write) }
}

/// An id without the date that it ends in. Only a date: `gpt-5-pro` is another model than `gpt-5`,
/// and `claude-opus-4-1` another than `claude-opus-4`.
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
    fn own_prices_take_precedence_over_the_table() {
        let own = Price { input: 1.0, output: 2.0, cache_read: None, cache_write: None };
        let free = Price { cache_read: Some(0.0), ..Price::default() };
        let prices = [("openai/gpt-5".to_owned(), own), ("openai/mine".to_owned(), free)];
        let prices = Prices::new(prices.into()).unwrap();
        assert_eq!(prices.of("openai/gpt-5"), Some(own));
        assert_eq!(prices.of("openai/gpt-5-2025-08-07"), Some(own));
        assert_eq!(prices.of("openai/mine").and_then(|price| price.cache_read), Some(0.0));
        assert_eq!(prices.of("openai/gpt-5-mini").map(|price| price.input), Some(0.25));
        let negative = Price { input: -1.0, ..own };
        let refused = Prices::new([("a/b".to_owned(), negative)].into()).unwrap_err();
        assert_eq!(refused, NegativePrice("a/b".into()));
    }
}
