//! [`Table`]: columns of text that line up.

use std::fmt;

/// Rows of cells. A column is as wide as its widest cell; the columns named at the start are flush right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table whose columns are flush left (`l`) or right (`r`): `"lrrr"`.
    #[must_use]
    pub fn new(columns: &str) -> Self {
        Table { right: columns.chars().map(|c| c == 'r').collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
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
                line += &if right { format!("{gap}{cell:>w$}") } else { format!("{gap}{cell:<w$}") };
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
    fn columns_line_up() {
        let mut table = Table::new("lrl");
        table.row(["name", "µs", "x"]);
        table.row(["a", "1,000"]);
        assert_eq!(table.to_string(), "name     µs  x\na     1,000\n");
    }
}
