//! Tables for people.

/// Writes rows under a heading, each column as wide as it must be.
pub(crate) fn print(heading: &[&str], rows: &[Vec<String>]) {
    print!("{}", layout(heading, rows));
}

fn layout(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(heading.get(column).map(|name| name.chars().count())).max().unwrap_or_default()
    };
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> =
            cells.enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column))).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(&mut heading.iter().copied());
    rows.iter().for_each(|row| text.push_str(&line(&mut row.iter().map(String::as_str))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_names() {
        let rows = vec![vec!["7".to_owned(), "open".to_owned()], vec!["1008".to_owned(), "-".to_owned()]];
        assert_eq!(layout(&["nonce", "status"], &rows), "nonce  status\n7      open\n1008   -\n");
        assert_eq!(layout(&["nonce"], &[]), "nonce\n");
    }
}
