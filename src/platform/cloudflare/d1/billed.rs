//! Counts the rows that D1 bills, for tests that limit them.

use std::cell::Cell;
use worker::D1Result;

thread_local! {
    static ROWS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Counts the rows of a statement.
pub fn count(result: &D1Result) {
    if let Ok(Some(meta)) = result.meta() {
        let (read, written) = ROWS.get();
        ROWS.set((
            read + meta.rows_read.unwrap_or_default(),
            written + meta.rows_written.unwrap_or_default(),
        ));
    }
}

/// Returns the number of rows read and written since the last call.
pub fn take() -> (usize, usize) {
    ROWS.take()
}
