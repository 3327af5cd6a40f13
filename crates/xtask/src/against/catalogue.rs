//! The models whose replies are compared: those that come with the project or its tests, and those that
//! `bench/against/make_models.py` makes. Copies, so that no profile beside a model plays a part.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::folder::FOLDER;
use crate::batchmaker::succeed;
use crate::venv::Venv;

const SCRIPTS: &str = "bench/against";

/// A model, and the kind that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) group: String,
    pub(crate) path: PathBuf,
}

/// Files of these folders, under this group.
const COMMITTED: [(&str, &str); 3] = [
    ("shipped", "models"),
    ("vectors", "crates/model/tests/vectors"),
    ("generated", "tests/python/generated/sample"),
];

/// The virtual environment for the scripts of `bench/against`.
pub(crate) fn venv() -> anyhow::Result<Venv> {
    let venv = Venv::make(&Path::new(FOLDER).join("venv"))?;
    venv.require(&Path::new(SCRIPTS).join("requirements.txt"))?;
    Ok(venv)
}

/// A script of `bench/against`.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(SCRIPTS).join(name)
}

/// Makes all models.
pub(crate) fn make() -> anyhow::Result<Vec<Entry>> {
    let folder = Path::new(FOLDER).join("models");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    eprintln!("making models in {}", folder.display());
    succeed(venv()?.script(&script("make_models.py")).arg("--out").arg(&folder))?;
    for (group, committed) in COMMITTED {
        for path in entries(Path::new(committed))? {
            let name = path.file_name().context("a name")?.to_string_lossy();
            let copy = folder.join(format!("{group}-{name}"));
            if path.is_dir() {
                std::fs::create_dir(&copy)?;
                for file in entries(&path)?.iter().filter(|file| is_of_model(file)) {
                    std::fs::copy(file, copy.join(file.file_name().context("a name")?))?;
                }
            } else if path.extension().is_some_and(|extension| extension == "onnx") {
                std::fs::copy(&path, copy)?;
            }
        }
    }
    entries(&folder)?.into_iter().map(Entry::of).collect()
}

/// Models that were named instead.
pub(crate) fn given(paths: &[PathBuf]) -> anyhow::Result<Vec<Entry>> {
    let entry = |path: &PathBuf| {
        ensure!(path.exists(), "there is no model '{}'", path.display());
        Entry::of(path.clone())
    };
    paths.iter().map(entry).collect()
}

impl Entry {
    fn of(path: PathBuf) -> anyhow::Result<Self> {
        let name = path.file_stem().context("a name")?.to_string_lossy().into_owned();
        let group = name.split_once('-').map_or(name.clone(), |(group, _)| group.to_owned());
        Ok(Self { group, path })
    }

    /// The model's name in the folder.
    pub(crate) fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// No scripts, no profiles.
fn is_of_model(file: &Path) -> bool {
    file.is_file()
        && file
            .extension()
            .is_some_and(|extension| ["onnx", "toml", "txt"].iter().any(|of| extension == *of))
}

/// The entries of a folder, sorted.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .with_context(|| format!("cannot read the folder '{}'", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}
