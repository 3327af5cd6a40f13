//! `cargo xtask arrows`: checks that uses go one way, as ARCHITECTURE.md states: between crates by its table "Crates",
//! between the folders of a crate by its table "Folders", and between the files of a crate without a circle.
//! `cargo xtask check` begins with it.
//!
//! An *arrow* points from a file to a file that defines what it uses. `file_arrows.rs` says what counts.
//!
//! | file | idea |
//! |---|---|
//! | `source.rs` | the module tree of a crate as data |
//! | `test_only.rs` | which code only tests compile |
//! | `collector.rs` | what one module defines, imports and mentions |
//! | `reader.rs` | reads the module tree from files |
//! | `resolution.rs` | from a path to the module that defines what it names |
//! | `file_arrows.rs` | the arrows of a crate |
//! | `workspace.rs` | the crates with their manifests and arrows |
//! | `tables.rs` | reads the tables of ARCHITECTURE.md |
//! | `crate_order.rs`, `folder_order.rs`, `file_circles.rs` | the checks |
//! | `cycles.rs` | circles of a graph |
//! | `finding.rs` | what a check has found |
//! | `check.rs` | runs the checks |

mod check;
mod collector;
mod crate_order;
mod cycles;
mod file_arrows;
mod file_circles;
mod finding;
mod folder_order;
mod reader;
mod resolution;
mod source;
mod tables;
mod test_only;
mod workspace;

#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{bail, ensure};

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask arrows                  every arrow that climbs, and every circle
  cargo xtask arrows --crate model    those of one crate

ARCHITECTURE.md states the order, in its tables \"Crates\" and \"Folders\".";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Show what is wrong in this crate alone, by the name of its folder in crates/
    #[arg(long = "crate", value_name = "NAME")]
    crate_name: Option<String>,
}

/// Prints what is wrong with the arrows of the workspace in the current folder.
///
/// # Errors
/// Something is wrong with them, there is no such crate, or a file cannot be read.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut findings = check::check(Path::new("."))?;
    if let Some(name) = &arguments.crate_name {
        ensure!(Path::new("crates").join(name).is_dir(), "there is no crate '{name}'");
        findings.retain(|finding| finding.crate_name == *name);
    }
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => bail!("1 arrow or circle breaks the order that ARCHITECTURE.md states"),
        count => bail!("{count} arrows or circles break the order that ARCHITECTURE.md states"),
    }
}
