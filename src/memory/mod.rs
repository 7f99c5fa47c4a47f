//! Memory: what was said and learned, found again by words alone.
//!
//! | file | what it is |
//! |---|---|
//! | [`terms`] | texts become terms; on [`fold`], [`stem`] and [`stop_words`] |
//! | [`chunks`] | long texts become parts |
//! | [`entries`] | a turn or a fact becomes an entry of the index |
//! | [`ranking`] | which rows to read, and which of them answer |
//! | [`search`] | the three round trips of a search |
//!
//! The database picks rows by terms and counts; everything else is decided here. It could rank too,
//! but by numbers taken over the memories of all users: what one of them stores would move, and so
//! tell of, what others find. Here a ranking is a function of one collection and nothing else.

pub mod chunks;
pub mod entries;
pub mod fold;
pub mod ranking;
pub mod search;
pub mod stem;
pub mod stop_words;
pub mod terms;

pub use search::{Hit, search};
