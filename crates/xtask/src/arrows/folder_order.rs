//! Checks arrows between the folders of a crate: they go one way, in the order that the table "Folders" of
//! ARCHITECTURE.md states.
//!
//! An *entry* of a folder is a folder in it or a file in it, by the name of its module; `lib.rs`, `main.rs` and
//! `mod.rs` are none, as they stand for the folder itself. A crate with folders has a row, which names all of them and
//! may name files; so may a folder inside a crate. Entries of any folder form no circle, whether a row names them or
//! not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::cycles::{Graph, arrows_of, shortest_cycles};
use super::file_arrows::Arrow;
use super::finding::Finding;
use super::source::FileId;
use super::tables::{FolderRow, TABLES_FILE, Tables};
use super::workspace::{Crate, Workspace};

/// Everything that breaks the order of folders.
pub(super) fn check(workspace: &Workspace, tables: &Tables) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in &tables.folders {
        if !workspace.crates.iter().any(|member| folders_of(member).contains_key(&row.folder)) {
            findings.push(Finding {
                crate_name: row.folder.split('/').next().unwrap_or_default().to_owned(),
                place: place_of(row),
                text: format!("there is no folder `{}`", row.folder),
            });
        }
    }
    for member in &workspace.crates {
        for (name, folder) in folders_of(member) {
            let row = tables.folders.iter().find(|row| row.folder == name);
            match row {
                Some(row) => findings.extend(folder.check_row(row)),
                None if name == member.name => findings.extend(folder.check_no_row()),
                None => {}
            }
            findings.extend(folder.check_circles(row));
        }
    }
    findings
}

fn place_of(row: &FolderRow) -> String {
    format!("{TABLES_FILE}:{}", row.line)
}

/// The folders of a crate by their names in the table: `model` is the crate's `src`, `model/analysis` a folder in it.
fn folders_of(member: &Crate) -> BTreeMap<String, Folder<'_>> {
    let mut paths = BTreeSet::from([PathBuf::new()]);
    for file in &member.source.files {
        paths.extend(file.ancestors().skip(1).map(Path::to_owned));
    }
    let folder = |path: PathBuf| {
        let names = std::iter::once(member.name.clone())
            .chain(path.iter().map(|name| name.to_string_lossy().into_owned()));
        (names.collect::<Vec<_>>().join("/"), Folder { member, path })
    };
    paths.into_iter().map(folder).collect()
}

/// A folder of a crate.
struct Folder<'a> {
    member: &'a Crate,
    /// Relative to the crate's `src`.
    path: PathBuf,
}

impl<'a> Folder<'a> {
    /// The name of the entry that `file` is in, and whether that is a folder; none of the folder's own `mod.rs`
    /// and of files elsewhere.
    fn entry(&self, file: FileId) -> Option<(&'a str, bool)> {
        let file = self.member.source.files[file.0].strip_prefix(&self.path).ok()?;
        let first = Path::new(file.iter().next()?);
        let is_folder = first != file;
        let name = first.file_stem()?.to_str()?;
        let is_entry = is_folder || !matches!(name, "lib" | "main" | "mod");
        is_entry.then_some((name, is_folder))
    }

    /// The entries, and whether each is a folder. A file beside the folder of its children is one entry with it.
    fn entries(&self) -> BTreeMap<&'a str, bool> {
        let mut entries = BTreeMap::new();
        for index in 0..self.member.source.files.len() {
            if let Some((name, is_folder)) = self.entry(FileId(index)) {
                *entries.entry(name).or_default() |= is_folder;
            }
        }
        entries
    }

    /// The arrows from one entry to another.
    fn arrows(&self) -> impl Iterator<Item = (&'a str, &'a str, &'a Arrow)> {
        self.member.arrows.between_files.iter().filter_map(|arrow| {
            let ((from, _), (to, _)) = (self.entry(arrow.from)?, self.entry(arrow.to)?);
            (from != to).then_some((from, to, arrow))
        })
    }

    fn finding(&self, place: String, text: String) -> Finding {
        Finding { crate_name: self.member.name.clone(), place, text }
    }

    /// Finds that the crate needs a row, if it has folders.
    fn check_no_row(&self) -> Option<Finding> {
        let entries = self.entries();
        let folders = entries.iter().filter(|&(_, &is_folder)| is_folder);
        let folders: Vec<String> = folders.map(|(name, _)| format!("`{name}`")).collect();
        let name = &self.member.name;
        let text = format!(
            "has the folders {}, but the table \"Folders\" of {TABLES_FILE} has no row for `{name}`",
            folders.join(", ")
        );
        (!folders.is_empty()).then(|| self.finding(format!("crates/{name}/src"), text))
    }

    /// Entries that the row lacks or makes up, and arrows against its order.
    fn check_row(&self, row: &FolderRow) -> Vec<Finding> {
        let entries = self.entries();
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, names) in row.groups.iter().enumerate() {
            groups.extend(names.iter().map(|name| (name.as_str(), index)));
        }
        let made_up = groups.keys().filter(|name| !entries.contains_key(*name));
        let made_up = made_up.map(|name| format!("`{}` has no `{name}`", row.folder));
        let lacking =
            entries.iter().filter(|(name, is_folder)| **is_folder && !groups.contains_key(*name));
        let lacking = lacking.map(|(name, _)| format!("the row lacks the folder `{name}`"));
        let mut findings: Vec<Finding> =
            made_up.chain(lacking).map(|text| self.finding(place_of(row), text)).collect();
        for (from, to, arrow) in self.arrows() {
            if let (Some(from_group), Some(to_group)) = (groups.get(from), groups.get(to))
                && to_group >= from_group
            {
                let text = format!(
                    "{}: `{to}` is not before `{from}` in the row `{}` of the table \"Folders\"",
                    self.member.describe(arrow),
                    row.folder
                );
                findings.push(self.finding(self.member.place(arrow), text));
            }
        }
        findings
    }

    /// Circles of entries, among them a folder and one that the row does not order.
    fn check_circles(&self, row: Option<&FolderRow>) -> Vec<Finding> {
        let entries = self.entries();
        let is_listed = |name: &str| {
            row.is_some_and(|row| row.groups.iter().flatten().any(|listed| listed == name))
        };
        let mut graph: Graph<&str> = Graph::new();
        for (from, to, _) in self.arrows() {
            graph.entry(from).or_default().insert(to);
        }
        let cycles = shortest_cycles(&graph).into_iter().filter(|cycle| {
            cycle.iter().any(|name| entries[name]) && !cycle.iter().all(|name| is_listed(name))
        });
        let arrow_between = |(from, to): (&str, &str)| {
            self.arrows().find(|&(a, b, _)| (a, b) == (from, to)).map(|(.., arrow)| arrow)
        };
        let finding = |cycle: Vec<&str>| {
            let arrows = self.member.describe_circle(arrows_of(&cycle).filter_map(arrow_between));
            let text = format!("a circle of {} entries of this folder{arrows}", cycle.len());
            let names = ["crates", &self.member.name, "src"].into_iter().map(Path::new);
            let place: PathBuf = names.chain(self.path.iter().map(Path::new)).collect();
            self.finding(place.display().to_string(), text)
        };
        cycles.map(finding).collect()
    }
}
