//! Files that measurements are written to.

use std::fs::File;
use std::path::Path;

use anyhow::Context;

/// Creates the file `path`, and its folder unless it exists.
pub(crate) fn create(path: &Path) -> anyhow::Result<File> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    File::create(path).with_context(|| format!("cannot write '{}'", path.display()))
}
