//! Finds the module that defines what a path names, through imports, re-exports, globs and renames.
//!
//! Names inside a function's body are looked up as if they stood in its module, and types, values and macros share
//! one namespace. In code that has one name for two things, a path may therefore resolve to more than it names.

use super::source::{CrateSource, Import, Module, ModuleId};

/// The targets that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// An item that this module defines.
    Item(ModuleId),
    /// A module.
    Module(ModuleId),
    /// Something in the library of another crate of the workspace, which has this name in paths.
    Crate(String),
}

/// Resolves the paths of one crate.
pub(super) struct Resolver<'a> {
    pub(super) source: &'a CrateSource,
    /// The name of the crate's library in paths, as in `batchmaker_graph`.
    pub(super) own_name: &'a str,
    /// The names of all libraries of the workspace.
    pub(super) library_names: &'a [String],
}

/// Imports that are being followed: a ring of them names nothing.
type Followed = Vec<(ModuleId, usize)>;

impl Resolver<'_> {
    /// Returns the targets that `path` names in module `from`: none for names of other packages and of local variables.
    pub(super) fn resolve(&self, from: ModuleId, path: &[String]) -> Vec<Target> {
        self.follow(from, path, &mut Followed::new())
    }

    /// The macro `name` as code in module `from` calls it without an import: the module itself or one above it
    /// defines it.
    pub(super) fn resolve_textual_macro(&self, from: ModuleId, name: &str) -> Option<Target> {
        let defines = |&id: &ModuleId| {
            self.source.module(id).contents.macros.iter().any(|defined| defined == name)
        };
        self.source.ancestors(from).find(defines).map(Target::Item)
    }

    fn follow(&self, from: ModuleId, path: &[String], followed: &mut Followed) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let found = match first.as_str() {
            "crate" => vec![Target::Module(self.source.root_of(from))],
            "self" => vec![Target::Module(from)],
            "super" => self.parent(from),
            name => {
                let found = self.lookup(from, name, rest.is_empty(), followed);
                if found.is_empty() { self.library(name) } else { found }
            }
        };
        self.descend(found, rest, followed)
    }

    /// Returns the targets that `rest` names inside `targets`.
    fn descend(
        &self,
        targets: Vec<Target>,
        rest: &[String],
        followed: &mut Followed,
    ) -> Vec<Target> {
        let Some((name, rest)) = rest.split_first() else { return targets };
        let mut found = Vec::new();
        for target in targets {
            let Target::Module(module) = target else {
                // A variant or an associated item belongs to its type.
                found.push(target);
                continue;
            };
            let mut inside = match name.as_str() {
                "self" => vec![Target::Module(module)],
                "super" => self.parent(module),
                name => self.lookup(module, name, rest.is_empty(), followed),
            };
            if inside.is_empty() {
                // The code compiles, so something unseen defines the name there: the call of a macro.
                inside.push(Target::Item(module));
            }
            found.extend(self.descend(inside, rest, followed));
        }
        found
    }

    /// Returns the targets that `name` has in `module`. `is_last` says that no further name follows in the path.
    fn lookup(
        &self,
        module: ModuleId,
        name: &str,
        is_last: bool,
        followed: &mut Followed,
    ) -> Vec<Target> {
        let declared = self.source.module(module);
        let contents = &declared.contents;
        let child = declared.children.get(name).map(|&child| Target::Module(child));
        // A function may have the name of a module, but no path goes on behind a function.
        if let Some(child) = &child
            && !is_last
        {
            return vec![child.clone()];
        }
        let mut found: Vec<Target> = child.into_iter().collect();
        if contents.definitions.iter().any(|defined| defined == name) {
            found.push(Target::Item(module));
        }
        if declared.parent.is_none() {
            let exports = |(_, module): &(ModuleId, &Module)| {
                module.contents.exported_macros.iter().any(|exported| exported == name)
            };
            found.extend(self.source.modules().filter(exports).map(|(id, _)| Target::Item(id)));
        }
        for (index, import) in contents.imports.iter().enumerate() {
            if import.name.as_deref() == Some(name) {
                let named = |followed: &mut Followed| self.follow(module, &import.path, followed);
                found.extend(once((module, index), followed, named));
            }
        }
        if !found.is_empty() {
            return found;
        }
        for (index, import) in contents.imports.iter().enumerate() {
            if import.is_glob {
                let named = |followed: &mut Followed| {
                    self.lookup_in_glob(module, import, name, is_last, followed)
                };
                found.extend(once((module, index), followed, named));
            }
        }
        found
    }

    /// Returns the targets that `name` has in the module whose names a glob import of `module` brings in.
    fn lookup_in_glob(
        &self,
        module: ModuleId,
        import: &Import,
        name: &str,
        is_last: bool,
        followed: &mut Followed,
    ) -> Vec<Target> {
        let mut found = Vec::new();
        for target in self.follow(module, &import.path, followed) {
            // The names of enums and of other crates are not known here.
            if let Target::Module(of_glob) = target {
                found.extend(self.lookup(of_glob, name, is_last, followed));
            }
        }
        found
    }

    fn parent(&self, module: ModuleId) -> Vec<Target> {
        self.source.module(module).parent.map(Target::Module).into_iter().collect()
    }

    /// The library `name`, if it is one of the workspace.
    fn library(&self, name: &str) -> Vec<Target> {
        if name == self.own_name {
            return self.source.library.map(Target::Module).into_iter().collect();
        }
        let is_known = self.library_names.iter().any(|library| library == name);
        is_known.then(|| Target::Crate(name.to_owned())).into_iter().collect()
    }
}

/// Calls `follow` for an import, unless the import is being followed already.
fn once(
    import: (ModuleId, usize),
    followed: &mut Followed,
    follow: impl FnOnce(&mut Followed) -> Vec<Target>,
) -> Vec<Target> {
    if followed.contains(&import) {
        return Vec::new();
    }
    followed.push(import);
    let found = follow(followed);
    followed.pop();
    found
}
