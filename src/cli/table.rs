//! [`Table`]: text in aligned columns.

use std::fmt;

use vramscope_core::units::counted;

/// Rows of cells. A column is as wide as its widest cell, and is aligned left or right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// `columns` gives the alignment of each column, left (`l`) or right (`r`): `"lrrr"`.
    pub fn new(columns: &str) -> Self {
        Table { right: columns.chars().map(|c| c == 'r').collect(), rows: Vec::new() }
    }

    /// Adds rows. When more than two rows differ only in their first cell, only the first is shown, with the number of the others
    /// in its last cell.
    pub fn rows_folded<const N: usize>(&mut self, rows: &[[String; N]], others: [&str; 2]) {
        for (i, row) in rows.iter().enumerate() {
            let same = |other: &&[String; N]| other[1..] == row[1..];
            let more = rows.iter().filter(same).count() as u64 - 1;
            if more < 2 {
                self.row(row.iter().map(String::as_str));
            } else if !rows[..i].iter().any(|other| same(&other)) {
                let mut row = row.clone();
                if let Some(last) = row.last_mut() {
                    *last += &format!("; the same under {}", counted(more, others[0], others[1]));
                }
                self.row(row);
            }
        }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(|cell| elided(in_one_line(cell.into()))).collect());
    }
}

/// Names in a file may contain line ends, which could fake rows.
fn in_one_line(cell: String) -> String {
    if cell.contains(['\n', '\t']) { cell.replace('\n', "\\n").replace('\t', "\\t") } else { cell }
}

/// Longest text of a cell. Longer texts lose their middle.
const LONGEST: usize = 400;

/// Names in a file may have millions of characters.
fn elided(cell: String) -> String {
    let letters = if cell.len() <= LONGEST { 0 } else { cell.chars().count() };
    if letters <= LONGEST {
        return cell;
    }
    let head: String = cell.chars().take(LONGEST / 2).collect();
    let tail: String = cell.chars().skip(letters - LONGEST / 2 + 1).collect();
    format!("{head}\u{2026}{tail}")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (i, (&w, &right)) in widths.iter().zip(&self.right).enumerate() {
                let cell = row.get(i).map_or("", String::as_str);
                let gap = if i == 0 { "" } else { "  " };
                // Format widths are limited to 65,535.
                let pad = " ".repeat(w.saturating_sub(cell.chars().count()));
                line += &if right { format!("{gap}{pad}{cell}") } else { format!("{gap}{cell}{pad}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_are_told_once() {
        let told = |rows: &[[&str; 2]]| {
            let mut table = Table::new("ll");
            let rows: Vec<[String; 2]> = rows.iter().map(|row| row.map(str::to_owned)).collect();
            table.rows_folded(&rows, ["other setting", "other settings"]);
            table.to_string()
        };
        let rows = [["a", "passes"], ["b", "fails"], ["c", "passes"], ["d", "passes"]];
        assert_eq!(
            told(&rows).replace(vramscope_core::units::NBSP, " "),
            "a  passes; the same under 2 other settings\nb  fails\n"
        );
        assert_eq!(told(&rows[..3]), "a  passes\nb  fails\nc  passes\n", "two are told each");
    }

    #[test]
    fn a_name_of_any_length_has_room() {
        let mut table = Table::new("lr");
        table.row(["x".repeat(70_000), "1".to_owned()]);
        table.row(["y".to_owned(), "2".repeat(401)]);
        assert!(table.to_string().lines().all(|line| line.chars().count() == 2 * LONGEST + 2), "{table}");
    }

    #[test]
    fn a_name_with_line_ends_is_one_row() {
        let mut table = Table::new("lr");
        table.row(["a\nb\tc", "1"]);
        assert_eq!(table.to_string(), "a\\nb\\tc  1\n");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("lrl");
        table.row(["name", "µs", "x"]);
        table.row(["a", "1,000"]);
        assert_eq!(table.to_string(), "name     µs  x\na     1,000\n");
    }
}
