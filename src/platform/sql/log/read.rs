//! Reads of the log.

use super::{NO_TURN, PIECE, tail_row};
use crate::platform::sql::{ObjectSql, Row, Value};
use crate::ports::{
    StoreError,
    session_store::{PAGE_BYTES, Page, PageBuilder, Select, StoredRecord},
};

/// A row of the log without its text.
struct Place {
    seq: u64,
    kinds: String,
    turns: Option<String>,
    /// Length of the text in its first part, in bytes.
    bytes: usize,
    /// Whether it is the tail.
    is_tail: bool,
    /// The number of its records that are selected.
    selected: usize,
}

impl Place {
    /// Returns number, type and turn of each record in the row.
    fn records(&self) -> impl Iterator<Item = (u64, &str, Option<&str>)> {
        let turns: Vec<&str> = self.turns.iter().flat_map(|turns| turns.split(' ')).collect();
        (0..).zip(self.kinds.split(' ')).map(move |(number, kind)| {
            // Earlier versions stored one turn for all records of a row, and none as NULL.
            let turn = if turns.len() == 1 { turns.first() } else { turns.get(number) };
            (self.seq + number as u64, kind, turn.copied().filter(|turn| *turn != NO_TURN))
        })
    }

    /// Returns the number of the last record.
    fn last(&self) -> u64 {
        self.records().last().map_or(self.seq, |(seq, ..)| seq)
    }

    /// Returns the selected records, whose text is in `json`. The JSON of a record has no line breaks.
    fn read(&self, json: String, select: &Select<'_>) -> Vec<StoredRecord> {
        let lines = match self.kinds.split(' ').count() {
            1 => vec![json],
            count => json.splitn(count, '\n').map(str::to_owned).collect(),
        };
        let records = self.records().zip(lines);
        let records = records.filter(|((seq, kind, turn), _)| select.selects(*seq, kind, *turn));
        let record = |((seq, kind, turn), json): ((u64, &str, Option<&str>), String)| StoredRecord {
            seq,
            kind: kind.to_owned(),
            turn: turn.map(Into::into),
            json,
        };
        records.map(record).collect()
    }

    /// Returns whether the text may continue in further rows.
    fn may_continue(&self) -> bool {
        self.bytes >= PIECE - 3
    }
}

/// Returns a query of the table and the tail, in the order of `seq`. It is one of both instead of one of their union,
/// which the database would read to the end. It must not select the text, which the database would copy to merge both.
fn both(columns: &str, condition: &str, newest_first: bool) -> String {
    let order = if newest_first { " DESC" } else { "" };
    let of = |is_tail: u8, rows: &str| {
        format!("SELECT {columns}, {is_tail} FROM {rows} WHERE part = 0{condition}")
    };
    format!("{} UNION ALL {} ORDER BY seq{order}", of(0, "log"), of(1, &tail_row()))
}

/// Returns the sequence number of the last record; 0 for an empty log.
///
/// # Errors
/// The database failed.
pub fn last_seq(db: &impl ObjectSql) -> Result<u64, StoreError> {
    let newest = db.query(&format!("{} LIMIT 1", both("seq, kind", "", true)), &[])?;
    let last =
        |row: &_| Row::number(row, 0) + Row::text(row, 1).unwrap_or_default().split(' ').count() as u64 - 1;
    Ok(newest.first().map_or(0, last))
}

/// Reads a page. The lengths are read before the text, so that no text is read that the page has no room for.
///
/// # Errors
/// The database failed.
pub fn read(db: &impl ObjectSql, select: Select<'_>) -> Result<Page, StoreError> {
    let mut page = PageBuilder::new(&select);
    let places = places(db, &select)?;
    let wanted = within_page(&places, &select);
    let (tail, stored): (Vec<&Place>, Vec<&Place>) = wanted.iter().partition(|place| place.is_tail);
    let mut rows = texts(db, "log", &stored, &select)?;
    let tail = texts(db, &tail_row(), &tail, &select)?;
    let end = if select.newest_first { 0 } else { rows.len() };
    rows.splice(end..end, tail);
    for (row, place) in rows.into_iter().zip(wanted) {
        let mut json = row.text(0).unwrap_or_default();
        drop(row);
        if place.may_continue() {
            let rest = "SELECT json FROM log WHERE seq = ? AND part > 0 ORDER BY part";
            for row in db.query(rest, &[place.seq.into()])? {
                json.push_str(&row.text(0).unwrap_or_default());
            }
        }
        let mut records = place.read(json, &select).into_iter();
        let fit = match select.newest_first {
            true => records.rev().all(|record| page.add(record)),
            false => records.all(|record| page.add(record)),
        };
        if !fit {
            break;
        }
    }
    let mut page = page.end();
    let selected: usize = places.iter().map(|place| place.selected).sum();
    page.more = selected > page.records.len();
    Ok(page)
}

/// Returns the rows with the first selected records, enough to see whether more follow a page.
fn places<D: ObjectSql>(db: &D, select: &Select<'_>) -> Result<Vec<Place>, StoreError> {
    // Of the first and the last row, maybe no record is selected.
    let limit = select.page_limit() + 3;
    let (mut rest, mut found, mut selected) = (*select, Vec::new(), 0);
    loop {
        // The record after `after` may be in a row that starts before it.
        let starts = |rows: &str| format!("coalesce((SELECT max(seq) FROM {rows} WHERE seq <= ?1), 0)");
        let mut condition = format!(" AND seq >= max({}, {})", starts("log"), starts(&tail_row()));
        let mut args = vec![Value::from(rest.after.saturating_add(1))];
        if let Some(before) = rest.before {
            condition.push_str(" AND seq < ?2");
            args.push(before.into());
        }
        condition.push_str(&selects(&rest, &mut args));
        args.push((limit as u64).into());
        let query = both("seq, kind, turn, octet_length(json)", &condition, select.newest_first);
        // `+ 0`: SQLite would plan the statement anew at each call if the whole limit were a parameter.
        let rows = db.query(&format!("{query} LIMIT ?{} + 0", args.len()), &args)?;
        let count = rows.len();
        for row in rows {
            let place = Place {
                seq: row.number(0),
                kinds: row.text(1).unwrap_or_default(),
                turns: row.text(2),
                bytes: usize::try_from(row.number(3)).unwrap_or(usize::MAX),
                is_tail: row.number(4) > 0,
                selected: 0,
            };
            // The row with the record after `after` has been found if that record is not in it.
            if !select.newest_first && !found.is_empty() && place.last() <= rest.after {
                continue;
            }
            match select.newest_first {
                true => rest.before = Some(place.seq),
                false => rest.after = place.last(),
            }
            let own = place.records().filter(|(seq, kind, turn)| select.selects(*seq, kind, *turn)).count();
            selected += own;
            found.push(Place { selected: own, ..place });
        }
        if count < limit || selected > select.page_limit() {
            return Ok(found);
        }
    }
}

/// Returns the rows whose text a page needs, and those between them.
fn within_page<'p>(places: &'p [Place], select: &Select<'_>) -> &'p [Place] {
    let skipped = places.iter().take_while(|place| place.selected == 0).count();
    let places = places.get(skipped..).unwrap_or_default();
    let (mut count, mut bytes, mut needed) = (0, 0_usize, 0);
    for (number, place) in (1..).zip(places) {
        let size = if place.may_continue() { PAGE_BYTES } else { place.bytes };
        let is_full = count >= select.page_limit() || bytes.saturating_add(size) > PAGE_BYTES;
        if count > 0 && is_full {
            break;
        }
        (count, bytes) = (count + place.selected, bytes + size);
        if place.selected > 0 {
            needed = number;
        }
    }
    places.get(..needed).unwrap_or_default()
}

/// Returns the texts of rows of the table or of the tail, which are all that [`places`] has found between the first and
/// the last one.
fn texts<D: ObjectSql>(
    db: &D,
    rows: &str,
    places: &[&Place],
    select: &Select<'_>,
) -> Result<Vec<D::Row>, StoreError> {
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(Vec::new()) };
    let mut args = vec![Value::from(first.seq.min(last.seq)), first.seq.max(last.seq).into()];
    let condition = selects(select, &mut args);
    let order = if select.newest_first { " DESC" } else { "" };
    db.query(
        &format!(
            "SELECT json FROM {rows} WHERE part = 0 AND seq >= ?1 AND seq <= ?2{condition} ORDER BY seq{order}"
        ),
        &args,
    )
}

/// Returns the part of a condition that finds rows by turn and types. Such a row may have no selected record, but one of
/// the turn and another one of a type.
fn selects<'a>(select: &Select<'a>, args: &mut Vec<Value<'a>>) -> String {
    let mut has = |column: &str, word: &str| {
        args.push(format!(" {word} ").into());
        format!("instr(' ' || {column} || ' ', ?{})", args.len())
    };
    let mut condition = String::new();
    if let Some(turn) = select.turn {
        condition.push_str(&format!(" AND {}", has("turn", turn)));
    }
    if !select.kinds.is_empty() {
        let any: Vec<String> = select.kinds.iter().map(|kind| has("kind", kind)).collect();
        condition.push_str(&format!(" AND ({})", any.join(" OR ")));
    }
    condition
}
