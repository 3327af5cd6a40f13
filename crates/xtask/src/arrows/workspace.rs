//! The crates of the workspace as the checks see them: their names, dependencies and arrows.

use std::path::Path;

use anyhow::Context;
use toml::{Table, Value};

use super::file_arrows::{Arrow, Arrows};
use super::reader::read_crate;
use super::resolution::Resolver;
use super::source::{CrateSource, FileId};

/// The folder that holds the crates.
const CRATES: &str = "crates";

/// A crate of the workspace.
#[derive(Debug)]
pub(super) struct Crate {
    /// The name of its folder, which is its name in ARCHITECTURE.md.
    pub(super) name: String,
    /// The name of its library in paths, as in `batchmaker_graph`.
    pub(super) library: String,
    /// The packages that it depends on, without those for tests alone.
    dependencies: Vec<String>,
    package: String,
    pub(super) source: CrateSource,
    pub(super) arrows: Arrows,
}

/// All crates, sorted by name.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) crates: Vec<Crate>,
}

impl Workspace {
    /// Reads the crates of the workspace whose root is `root`.
    ///
    /// # Errors
    /// A manifest or a source file cannot be read or parsed.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let folder = root.join(CRATES);
        let entries = std::fs::read_dir(&folder);
        let entries = entries.with_context(|| format!("no crates in {}", folder.display()))?;
        let mut crates = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.path().join("Cargo.toml").is_file() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let read = read_member(&entry.path(), name);
                crates.push(read.with_context(|| entry.path().display().to_string())?);
            }
        }
        crates.sort_by(|a: &Crate, b: &Crate| a.name.cmp(&b.name));
        let library_names: Vec<String> = crates.iter().map(|c| c.library.clone()).collect();
        for Crate { library, source, arrows, .. } in &mut crates {
            let resolver = Resolver { source, own_name: library, library_names: &library_names };
            *arrows = Arrows::find(&resolver);
        }
        Ok(Self { crates })
    }

    /// The crate whose library has this name in paths.
    pub(super) fn by_library(&self, library: &str) -> Option<&Crate> {
        self.crates.iter().find(|c| c.library == library)
    }

    /// The crates of the workspace that `user` depends on by its manifest.
    pub(super) fn dependencies<'a>(&'a self, user: &'a Crate) -> impl Iterator<Item = &'a Crate> {
        self.crates.iter().filter(|used| user.dependencies.contains(&used.package))
    }
}

impl Crate {
    /// The path of a file, relative to the workspace.
    pub(super) fn path(&self, file: FileId) -> String {
        format!("{CRATES}/{}/src/{}", self.name, self.source.files[file.0].display())
    }

    /// The file and line where an arrow begins.
    pub(super) fn place(&self, arrow: &Arrow) -> String {
        format!("{}:{}", self.path(arrow.from), arrow.line)
    }

    /// The reason of an arrow.
    pub(super) fn describe(&self, arrow: &Arrow) -> String {
        format!("uses `{}`, which {} defines", arrow.path, self.path(arrow.to))
    }

    /// The arrows of a circle, a line each.
    pub(super) fn describe_circle<'a>(&self, arrows: impl Iterator<Item = &'a Arrow>) -> String {
        arrows
            .map(|arrow| format!("\n    {} {}", self.place(arrow), self.describe(arrow)))
            .collect()
    }

    /// The path of the manifest, relative to the workspace.
    pub(super) fn manifest(&self) -> String {
        format!("{CRATES}/{}/Cargo.toml", self.name)
    }
}

fn read_member(folder: &Path, name: String) -> anyhow::Result<Crate> {
    let manifest: Table = std::fs::read_to_string(folder.join("Cargo.toml"))?.parse()?;
    let package = manifest.get("package").and_then(|package| package.get("name"));
    let package = package.and_then(Value::as_str).context("the package has no name")?.to_owned();
    let library = manifest.get("lib").and_then(|lib| lib.get("name")).and_then(Value::as_str);
    let library = library.unwrap_or(&package).replace('-', "_");
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let tables = std::iter::once(&manifest).chain(targets);
    let dependencies = tables
        .flat_map(|table| [table.get("dependencies"), table.get("build-dependencies")])
        .flatten()
        .filter_map(Value::as_table)
        .flatten()
        .map(|(key, value)| {
            let renamed = value.get("package").and_then(Value::as_str);
            renamed.unwrap_or(key).to_owned()
        })
        .collect();
    let source = read_crate(&folder.join("src"))?;
    Ok(Crate { name, library, dependencies, package, source, arrows: Arrows::default() })
}
