//! Runs all checks of arrows on a workspace.

use std::path::Path;

use super::finding::Finding;
use super::tables::Tables;
use super::workspace::Workspace;
use super::{crate_order, file_circles, folder_order};

/// Everything that breaks a rule in the workspace whose root is `root`: of crates first, then of folders, then of
/// files.
///
/// # Errors
/// A file cannot be read or parsed.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let tables = Tables::read(root)?;
    let workspace = Workspace::read(root)?;
    let mut findings = crate_order::check(&workspace, &tables);
    findings.extend(folder_order::check(&workspace, &tables));
    findings.extend(file_circles::check(&workspace));
    Ok(findings)
}
