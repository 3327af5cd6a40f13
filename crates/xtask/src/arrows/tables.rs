//! The tables "Crates" and "Folders" of ARCHITECTURE.md, which say what may use what.

use std::path::Path;

use anyhow::Context;

/// The file that holds the tables.
pub(super) const TABLES_FILE: &str = "ARCHITECTURE.md";

/// Both tables.
#[derive(Debug)]
pub(super) struct Tables {
    /// The crates, each of which uses only those before it.
    pub(super) crates: Vec<CrateRow>,
    pub(super) folders: Vec<FolderRow>,
}

/// A row of the table "Crates".
#[derive(Debug)]
pub(super) struct CrateRow {
    pub(super) name: String,
    pub(super) uses: Uses,
    /// The line in the file, counted from 1.
    pub(super) line: usize,
}

/// The column "uses".
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Uses {
    /// "all": any crate above.
    All,
    /// The crates named, and those that they use.
    Named(Vec<String>),
}

/// A row of the table "Folders".
#[derive(Debug)]
pub(super) struct FolderRow {
    /// A crate, or a folder of it as in `model/analysis`.
    pub(super) folder: String,
    /// Its folders and files: an entry uses only those of groups before its own.
    pub(super) groups: Vec<Vec<String>>,
    /// The line in the file, counted from 1.
    pub(super) line: usize,
}

impl Tables {
    /// Reads the tables of the workspace whose root is `root`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let path = root.join(TABLES_FILE);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let crates = rows(text, "## Crates").map(|(line, cells)| CrateRow {
            name: cells[0].clone(),
            uses: match cells.last().map_or("", String::as_str) {
                "all" => Uses::All,
                named => Uses::Named(names(named)),
            },
            line,
        });
        let folders = rows(text, "## Folders").map(|(line, cells)| FolderRow {
            folder: cells[0].clone(),
            groups: cells.last().map_or("", String::as_str).split('→').map(names).collect(),
            line,
        });
        Self { crates: crates.collect(), folders: folders.collect() }
    }
}

/// The rows of the first table in the section `heading`, without its head: the line's number and the cells without
/// backticks.
fn rows<'a>(text: &'a str, heading: &'a str) -> impl Iterator<Item = (usize, Vec<String>)> + 'a {
    let lines = text.lines().enumerate();
    let section = lines.skip_while(move |(_, line)| line.trim() != heading).skip(1);
    let section = section.take_while(|(_, line)| !line.starts_with("## "));
    let table = section.skip_while(|(_, line)| !line.starts_with('|'));
    let table = table.take_while(|(_, line)| line.starts_with('|')).skip(2);
    table.map(|(index, line)| {
        let cells = line.trim().trim_matches('|').split('|');
        (index + 1, cells.map(|cell| cell.replace('`', "").trim().to_owned()).collect())
    })
}

/// The names of a list with commas; "–" is none.
fn names(list: &str) -> Vec<String> {
    let names = list.split(',').map(str::trim);
    names.filter(|name| !name.is_empty() && *name != "–").map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_from_their_sections() {
        let tables = Tables::parse(
            "# A\n\n## Crates\n\nText.\n\n| crate | holds | uses |\n|---|---|---|\n\
             | `graph` | x, y | – |\n| `engine` | z | graph, model |\n| `cli` | w | all |\n\n\
             ## Folders\n\n| crate | order |\n|---|---|\n\
             | `model/analysis` | `ids`, `rows` → `passes` |\n\n## Else\n\n| a | b |\n|---|---|\n| c | d |\n",
        );
        let names: Vec<_> = tables.crates.iter().map(|row| (row.line, row.name.as_str())).collect();
        assert_eq!(names, [(9, "graph"), (10, "engine"), (11, "cli")]);
        assert_eq!(tables.crates[0].uses, Uses::Named(vec![]));
        assert_eq!(tables.crates[1].uses, Uses::Named(vec!["graph".into(), "model".into()]));
        assert_eq!(tables.crates[2].uses, Uses::All);
        assert_eq!(tables.folders.len(), 1);
        let row = &tables.folders[0];
        assert_eq!((row.folder.as_str(), row.line), ("model/analysis", 17));
        assert_eq!(
            row.groups,
            [vec!["ids".to_owned(), "rows".to_owned()], vec!["passes".to_owned()]]
        );
    }
}
