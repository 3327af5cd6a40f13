//! The arrows of one crate: from each file to the files that define what it uses, and to other crates.
//!
//! What counts:
//!
//! - An import, and every path in code, points to the file that defines the item, wherever it is re-exported.
//! - A path that ends at a module points to nothing: what is used of the module is a longer path.
//! - A `pub use` of something that the module's own children define is no arrow: it only gives the item a
//!   shorter path. Any other `pub use` is an import.
//! - `mod child;`, links in documentation, visibilities and code for tests are no arrows.
//!
//! What is not seen:
//!
//! - A method, or a function named by its type (`Type::new`), counts for the file of the type, though an `impl`
//!   elsewhere may define it.
//! - An arrow to a function of `lib.rs`, of `mod.rs` or of a file that no row names is not followed to what that
//!   function uses.
//! - Names inside format strings, and files that `#[path]` or `include!` bring in.

use std::collections::BTreeSet;

use super::resolution::{Resolver, Target};
use super::source::{CrateSource, FileId, Import, Mention, ModuleId};

/// Something in file `from` uses an item that file `to` defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrow {
    pub(super) from: FileId,
    pub(super) to: FileId,
    /// The line in `from`, counted from 1.
    pub(super) line: usize,
    /// The path as written.
    pub(super) path: String,
}

/// Something in file `from` uses another crate of the workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CrateUse {
    pub(super) from: FileId,
    /// The crate's library as paths name it.
    pub(super) library: String,
    /// The line in `from`, counted from 1.
    pub(super) line: usize,
    /// The path as written.
    pub(super) path: String,
}

/// All arrows of a crate, sorted.
#[derive(Debug, Default)]
pub(super) struct Arrows {
    pub(super) between_files: BTreeSet<Arrow>,
    pub(super) to_crates: BTreeSet<CrateUse>,
}

impl Arrows {
    /// Finds the arrows of the crate that `resolver` resolves.
    pub(super) fn find(resolver: &Resolver<'_>) -> Self {
        let mut arrows = Self::default();
        for (id, module) in resolver.source.modules() {
            for import in &module.contents.imports {
                for target in resolver.resolve(id, &import.path) {
                    if !is_lift(resolver.source, id, import, &target) {
                        arrows.add(resolver.source, id, target, &import.path, import.line);
                    }
                }
            }
        }
        let imported: BTreeSet<(FileId, FileId)> =
            arrows.between_files.iter().map(|arrow| (arrow.from, arrow.to)).collect();
        for (id, module) in resolver.source.modules() {
            for mention in &module.contents.mentions {
                // A single name stands for its import, which is there already.
                let is_known = |target: &Target| match *target {
                    _ if mention.path.len() > 1 => false,
                    Target::Item(to) => {
                        imported.contains(&(module.file, resolver.source.module(to).file))
                    }
                    Target::Module(_) | Target::Crate(_) => true,
                };
                for target in targets_of(resolver, id, mention) {
                    if !is_known(&target) {
                        arrows.add(resolver.source, id, target, &mention.path, mention.line);
                    }
                }
            }
        }
        arrows
    }

    fn add(
        &mut self,
        source: &CrateSource,
        from: ModuleId,
        target: Target,
        path: &[String],
        line: usize,
    ) {
        let from = source.module(from).file;
        let path = path.join("::");
        match target {
            Target::Item(to) => {
                let to = source.module(to).file;
                if to != from {
                    self.between_files.insert(Arrow { from, to, line, path });
                }
            }
            Target::Module(_) => {}
            Target::Crate(library) => {
                self.to_crates.insert(CrateUse { from, library, line, path });
            }
        }
    }
}

/// Returns the targets of a mention in `module`.
fn targets_of(resolver: &Resolver<'_>, module: ModuleId, mention: &Mention) -> Vec<Target> {
    let targets = resolver.resolve(module, &mention.path);
    match &mention.path[..] {
        [name] if mention.is_macro_call && targets.is_empty() => {
            resolver.resolve_textual_macro(module, name).into_iter().collect()
        }
        _ => targets,
    }
}

/// Whether an import of `module` re-exports what a module below it defines.
fn is_lift(source: &CrateSource, module: ModuleId, import: &Import, target: &Target) -> bool {
    let Target::Item(defined_in) = *target else { return false };
    import.is_reexport && source.ancestors(defined_in).any(|above| above == module)
}
