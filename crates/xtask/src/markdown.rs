//! Tables in Markdown.

/// A table with a head; every row has as many cells.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|cell| cell.to_string()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows = rows.iter().map(|row| {
        assert_eq!(row.len(), head.len(), "a cell for each column: {row:?}");
        line(row)
    });
    line(&head) + &rule + &rows.collect::<String>()
}

/// A number with three significant digits, or `-`.
pub(crate) fn number(of: Option<f64>) -> String {
    let Some(of) = of.filter(|of| of.is_finite()) else { return "-".to_owned() };
    let digits = if of == 0.0 { 0 } else { of.abs().log10().floor() as i32 };
    format!("{of:.*}", (2 - digits).clamp(0, 6) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let numbers =
            [0.0, 0.012345, 0.5, 9.876, 98.76, 1234.5].map(|of| number(Some(of))).join(" ");
        assert_eq!(numbers, "0.00 0.0123 0.500 9.88 98.8 1234");
        assert_eq!([None, Some(f64::NAN)].map(number), ["-", "-"]);
    }

    #[test]
    fn a_table_has_a_rule() {
        let rows = [vec!["1".to_owned(), "2".to_owned()]];
        assert_eq!(table(&["a", "b"], &rows), "| a | b |\n|---|---|\n| 1 | 2 |\n");
    }
}
