//! Dates as `strftime` of C writes them.

use chrono::DateTime;
use chrono::format::{Item, StrftimeItems};

/// The time in C's format of dates, in English and UTC.
pub(super) fn strftime(format: &str, unix_time: i64) -> Result<String, minijinja::Error> {
    let items: Vec<Item<'_>> = StrftimeItems::new(format).collect();
    if items.contains(&Item::Error) {
        return Err(super::invalid(format!("strftime_now: unknown directive in `{format}`")));
    }
    let time = DateTime::from_timestamp(unix_time, 0).unwrap_or_default();
    Ok(time.format_with_items(items.iter()).to_string())
}
