//! Rows as one parameter: a JSON array of arrays, which `json_table` turns into a table again.
//!
//! A statement over any number of rows so has one text and is prepared once; a list of placeholders would be another text for
//! each length. What never happens here: a value becoming part of a statement's text.

use std::fmt::Write as _;

/// Builds the parameter.
#[derive(Debug, Default)]
pub(super) struct Rows(String);

impl Rows {
    /// One row per item, filled by `fill`, in order.
    pub(super) fn of<T>(items: impl IntoIterator<Item = T>, fill: impl for<'a> Fn(Row<'a>, T) -> Row<'a>) -> String {
        let mut rows = Self("[".to_owned());
        for (index, item) in items.into_iter().enumerate() {
            rows.0.push_str(if index == 0 { "[" } else { ",[" });
            fill(Row { text: &mut rows.0, first: true }, item);
            rows.0.push(']');
        }
        rows.0.push(']');
        rows.0
    }
}

/// One row, filled from left to right.
pub(super) struct Row<'a> {
    text: &'a mut String,
    first: bool,
}

impl Row<'_> {
    /// The next column: a whole number.
    pub(super) fn number(mut self, number: impl Into<i128>) -> Self {
        self.comma();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{}", number.into());
        self
    }

    /// The next column: text.
    pub(super) fn text(mut self, text: &str) -> Self {
        self.comma();
        self.text.push('"');
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.text.extend(['\\', letter]),
                '\0'..='\u{1f}' => {
                    let _ = write!(self.text, "\\u{:04x}", u32::from(letter));
                }
                _ => self.text.push(letter),
            }
        }
        self.text.push('"');
        self
    }

    fn comma(&mut self) {
        if !self.first {
            self.text.push(',');
        }
        self.first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_json() {
        assert_eq!(Rows::of([0_u64; 0], |row, n| row.number(n)), "[]");
        let rows = [(u64::MAX, "a"), (0, "\"\\\n\u{1}茶")];
        let text = Rows::of(rows, |row, (n, text)| row.number(n).text(text).number(-1_i64));
        assert_eq!(text, "[[18446744073709551615,\"a\",-1],[0,\"\\\"\\\\\\u000a\\u0001茶\",-1]]");
    }
}
