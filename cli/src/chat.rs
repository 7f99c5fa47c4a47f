//! A conversation with an agent: in a terminal, or line by line.

mod app;
mod conversation;
mod draw;
mod input;
mod items;
mod plain;
mod requests;
mod shown;
mod terminal;

pub(crate) use plain::run as run_plain;
pub(crate) use terminal::run as run_terminal;
