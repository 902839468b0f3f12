//! Text tables: columns as wide as their contents, no lines, two spaces between.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table with these headings; `right` columns hold numbers.
pub fn new(headings: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().copied());
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if i == 0 { 0 } else { 2 }, 0));
        if right.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table as lines without trailing spaces; nothing if it has no rows.
pub fn text(table: &Table) -> String {
    if table.is_empty() {
        return String::new();
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_without_trailing_spaces() {
        let mut table = new(&["op", "count"], &[1]);
        table.add_row(["Conv", "2"]).add_row(["Relu", "10"]);
        assert_eq!(text(&table), "op    count\nConv      2\nRelu     10\n");
        assert_eq!(text(&new(&["op"], &[])), "");
    }
}
