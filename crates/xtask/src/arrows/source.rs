//! The module tree of one crate as plain data: which modules there are, in which files, and what each defines,
//! imports and mentions. Code that only tests compile is not in it.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Index of a file in [`CrateSource::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(pub(super) usize);

/// Index of a module in [`CrateSource::modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModuleId(pub(super) usize);

/// All modules of a crate's library and binary.
#[derive(Debug, Default)]
pub(super) struct CrateSource {
    /// The files, relative to the crate's folder `src`.
    pub(super) files: Vec<PathBuf>,
    pub(super) modules: Vec<Module>,
    /// The root module of the library, if the crate has one.
    pub(super) library: Option<ModuleId>,
}

/// A module, which is a file or stands inside one.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) file: FileId,
    /// None: this is the root of the library or of the binary.
    pub(super) parent: Option<ModuleId>,
    /// The modules that it declares, by name.
    pub(super) children: BTreeMap<String, ModuleId>,
    pub(super) contents: Contents,
}

/// The imports, mentions and items of one module, without the modules inside it.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Names of the items that are defined here: functions, types, traits, constants, macros.
    pub(super) definitions: Vec<String>,
    /// Names of `macro_rules!` macros among them.
    pub(super) macros: Vec<String>,
    /// Macros with `#[macro_export]`, whose path is the crate's root.
    pub(super) exported_macros: Vec<String>,
    pub(super) imports: Vec<Import>,
    pub(super) mentions: Vec<Mention>,
}

/// One leaf of a `use` declaration.
#[derive(Clone, Debug)]
pub(super) struct Import {
    /// As written, as in `["crate", "tensor", "Tensor"]`; of a glob, the path before `*`.
    pub(super) path: Vec<String>,
    /// The name that it has here; none of a glob and of `as _`.
    pub(super) name: Option<String>,
    pub(super) is_glob: bool,
    /// Whether it is a `pub use` of any visibility.
    pub(super) is_reexport: bool,
    /// Counted from 1.
    pub(super) line: usize,
}

/// A path in an expression, a type, a pattern, a bound, an attribute or the tokens of a macro.
#[derive(Clone, Debug)]
pub(super) struct Mention {
    /// As written, without arguments.
    pub(super) path: Vec<String>,
    /// Whether a macro is called by it.
    pub(super) is_macro_call: bool,
    /// Counted from 1.
    pub(super) line: usize,
}

impl CrateSource {
    pub(super) fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id.0]
    }

    /// The modules with their ids.
    pub(super) fn modules(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        self.modules.iter().enumerate().map(|(index, module)| (ModuleId(index), module))
    }

    /// `module`, its parent, and so on up to its root.
    pub(super) fn ancestors(&self, module: ModuleId) -> impl Iterator<Item = ModuleId> {
        std::iter::successors(Some(module), |&id| self.module(id).parent)
    }

    /// The root of the library or binary that `module` belongs to.
    pub(super) fn root_of(&self, module: ModuleId) -> ModuleId {
        self.ancestors(module).last().unwrap_or(module)
    }
}
