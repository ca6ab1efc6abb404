//! Tables: columns on a terminal, tab-separated lines in a pipe.

use comfy_table::{
    Attribute, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, presets,
};

use super::color::{Paint, Tone};
use super::text;

/// What stands in one place of a table. Its text is made safe here.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Takes any text or bytes.
    pub fn new(content: impl AsRef<[u8]>) -> Self {
        Self {
            text: text::shown(content),
            tone: Tone::Plain,
        }
    }

    /// Gives it a tone.
    #[must_use]
    pub const fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }
}

impl<T: AsRef<[u8]>> From<T> for Cell {
    fn from(content: T) -> Self {
        Self::new(content)
    }
}

/// How a column lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// What is known of a column before its rows.
#[derive(Clone, Debug)]
pub struct Column {
    title: String,
    align: Align,
    flexible: bool,
}

impl Column {
    /// A column of words, which is never cut as long as there is room for all such columns.
    pub fn words(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            align: Align::Left,
            flexible: false,
        }
    }

    /// A column of numbers, which is treated like words but lies to the right.
    pub fn numbers(title: &str) -> Self {
        Self {
            align: Align::Right,
            ..Self::words(title)
        }
    }

    /// A column of text that gives way to the others: a command, a name.
    pub fn text(title: &str) -> Self {
        Self {
            flexible: true,
            ..Self::words(title)
        }
    }
}

/// Rows under titles. Every row has as many cells as there are columns; what is missing is empty,
/// what is too much is left out.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// The narrowest terminal that tables are fitted to; on a narrower one its lines wrap.
    pub const NARROWEST: u16 = 20;

    /// Starts a table.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        let mut cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        cells.resize_with(self.columns.len(), || Cell::new(""));
        self.rows.push(cells);
        self
    }

    /// Returns whether it has no row.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table for people: a line for each row, none wider than the terminal, what does
    /// not fit cut with `…`. Ends with a newline.
    pub fn fitted(&self, columns: u16, paint: Paint) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(columns.max(Self::NARROWEST))
            .force_no_tty();
        if paint.is_on() {
            table.enforce_styling();
        }
        let titles = self
            .columns
            .iter()
            .map(|column| comfy_table::Cell::new(&column.title).add_attribute(Attribute::Bold));
        let mut header = Row::from(titles.collect::<Vec<_>>());
        header.max_height(1);
        table.set_header(header);
        for cells in &self.rows {
            let mut row = Row::from(cells.iter().map(cell).collect::<Vec<_>>());
            row.max_height(1);
            table.add_row(row);
        }
        let last = self.columns.len().saturating_sub(1);
        let keep = self.rigid_fit(columns);
        for (place, column) in self.columns.iter().enumerate() {
            let Some(laid) = table.column_mut(place) else {
                continue;
            };
            // Two spaces between columns, none around the table.
            laid.set_padding((0, if place == last { 0 } else { 2 }));
            if column.align == Align::Right {
                laid.set_cell_alignment(CellAlignment::Right);
            }
            if keep && !column.flexible {
                laid.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        let mut text = String::new();
        for line in table.lines() {
            text.push_str(line.trim_end_matches(' '));
            text.push('\n');
        }
        text
    }

    /// Returns whether the columns that should not be cut leave room for the others.
    fn rigid_fit(&self, columns: u16) -> bool {
        /// What a flexible column must be left with to say anything.
        const LEAST: usize = 4;
        let need: usize = self
            .columns
            .iter()
            .enumerate()
            .map(|(place, column)| {
                let widest = self
                    .rows
                    .iter()
                    .map(|cells| text::width(&cells[place].text))
                    .chain([text::width(&column.title)])
                    .max()
                    .unwrap_or(0);
                2 + if column.flexible {
                    widest.min(LEAST)
                } else {
                    widest
                }
            })
            .sum();
        need <= usize::from(columns)
    }

    /// Returns the table for programs: a line of titles and a line for each row, values separated by
    /// one tab, nothing cut. No value holds a tab or a newline, because a cell's text is safe.
    pub fn tabbed(&self) -> String {
        let mut text = String::new();
        let titles: Vec<_> = self
            .columns
            .iter()
            .map(|each| each.title.as_str())
            .collect();
        text.push_str(&titles.join("\t"));
        text.push('\n');
        for cells in &self.rows {
            let values: Vec<_> = cells.iter().map(|cell| cell.text.as_str()).collect();
            text.push_str(&values.join("\t"));
            text.push('\n');
        }
        text
    }
}

fn cell(cell: &Cell) -> comfy_table::Cell {
    let plain = comfy_table::Cell::new(&cell.text);
    match cell.tone {
        Tone::Plain => plain,
        Tone::Good => plain.fg(Color::DarkGreen),
        Tone::Bad => plain.fg(Color::DarkRed),
        Tone::Active => plain.fg(Color::DarkCyan),
        Tone::Notice => plain.fg(Color::DarkYellow),
        Tone::Quiet => plain.add_attribute(Attribute::Dim),
        Tone::Strong => plain.add_attribute(Attribute::Bold),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps() -> Table {
        let mut table = Table::new([
            Column::words("ID"),
            Column::numbers("BAND"),
            Column::text("COMMAND"),
        ]);
        table.row(["a1", "100", "make -j8 all"]);
        table.row([
            Cell::new("b17"),
            Cell::new("5"),
            Cell::new("evil\nb18\t\x1b[2J").tone(Tone::Bad),
        ]);
        table
    }

    #[test]
    fn a_terminal_gets_columns() {
        assert_eq!(
            steps().fitted(80, Paint::NONE),
            "ID   BAND  COMMAND\n\
             a1    100  make -j8 all\n\
             b17     5  evil\\nb18\\t\\x1b[2J\n"
        );
    }

    #[test]
    fn what_does_not_fit_is_cut_in_the_text_column() {
        let text = steps().fitted(20, Paint::NONE);
        assert!(text.contains("a1    100  make"), "{text}");
        assert!(text.contains('…'), "{text}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn a_pipe_gets_whole_values_between_tabs() {
        assert_eq!(
            steps().tabbed(),
            "ID\tBAND\tCOMMAND\na1\t100\tmake -j8 all\nb17\t5\tevil\\nb18\\t\\x1b[2J\n"
        );
    }

    #[test]
    fn colour_changes_no_letter() {
        let around = crate::config::Surroundings {
            vars: std::collections::BTreeMap::new(),
            cwd: None,
            cpus: crate::config::Cpus::of(1),
            uid: 0,
        };
        let paint = Paint::decide(crate::config::ColorChoice::Always, &around, false);
        let painted = steps().fitted(80, paint);
        assert!(painted.contains('\x1b'), "{painted:?}");
        assert!(!painted.contains("\x1b[2J"), "{painted:?}");
        let plain: Vec<String> = painted
            .split('\x1b')
            .enumerate()
            .map(|(place, part)| match (place, part.split_once('m')) {
                (1.., Some((_, rest))) => rest.to_owned(),
                _ => part.to_owned(),
            })
            .collect();
        let plain: Vec<_> = plain
            .concat()
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        let expected = steps().fitted(80, Paint::NONE);
        assert_eq!(plain, expected.lines().collect::<Vec<_>>());
    }

    #[test]
    fn a_table_without_rows_still_has_its_titles() {
        let table = Table::new([Column::words("ID"), Column::text("NAME")]);
        assert!(table.is_empty());
        assert_eq!(table.tabbed(), "ID\tNAME\n");
        assert_eq!(table.fitted(80, Paint::NONE), "ID  NAME\n");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal_and_each_row_is_one(
            rows in proptest::collection::vec(
                proptest::collection::vec("\\PC{0,30}|[a-z ]{0,60}|[\\x00-\\x{ff}]{0,10}", 0..7),
                0..6,
            ),
            columns in Table::NARROWEST..120,
        ) {
            let mut table = Table::new([
                Column::words("ID"), Column::numbers("BAND"), Column::words("STATE"),
                Column::text("NAME"), Column::text("COMMAND"),
            ]);
            for row in &rows {
                table.row(row);
            }
            let fitted = table.fitted(columns, Paint::NONE);
            prop_assert_eq!(fitted.lines().count(), rows.len() + 1);
            for line in fitted.lines() {
                prop_assert!(text::width(line) <= usize::from(columns), "{:?}", line);
            }
            let tabbed = table.tabbed();
            prop_assert_eq!(tabbed.lines().count(), rows.len() + 1);
            for line in tabbed.lines() {
                prop_assert_eq!(line.split('\t').count(), 5);
            }
        }
    }
}
