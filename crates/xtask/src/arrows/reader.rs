//! Reads the module tree of a crate from its files: `lib.rs`, `main.rs`, and what their `mod` declarations name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};

use super::collector::Collector;
use super::source::{CrateSource, FileId, Module, ModuleId};
use super::test_only::is_test_only;

/// Reads the library and the binary whose files are in `src`.
///
/// # Errors
/// A file cannot be read, is no Rust, or declares a module that has no file.
pub(super) fn read_crate(src: &Path) -> anyhow::Result<CrateSource> {
    let mut reader = Reader { src, source: CrateSource::default() };
    for root in ["lib.rs", "main.rs"] {
        if src.join(root).is_file() {
            let module = reader.read_file(PathBuf::from(root), PathBuf::new(), None)?;
            if root == "lib.rs" {
                reader.source.library = Some(module);
            }
        }
    }
    Ok(reader.source)
}

struct Reader<'a> {
    src: &'a Path,
    source: CrateSource,
}

/// The place of a module: its file, and the folder that holds the files of its children. Both are relative to
/// `src`.
struct Place {
    file: FileId,
    children: PathBuf,
}

impl Reader<'_> {
    /// Reads the module that is the file `path`, whose children have their files in the folder `children`.
    fn read_file(
        &mut self,
        path: PathBuf,
        children: PathBuf,
        parent: Option<ModuleId>,
    ) -> anyhow::Result<ModuleId> {
        let full = self.src.join(&path);
        let shown = || full.display().to_string();
        let text =
            std::fs::read_to_string(&full).with_context(|| format!("cannot read {}", shown()))?;
        let syntax = syn::parse_file(&text)
            .map_err(|error| anyhow::anyhow!("line {}: {error}", error.span().start().line))
            .with_context(|| format!("{} is no Rust", shown()))?;
        let file = FileId(self.source.files.len());
        self.source.files.push(path);
        let items = if is_test_only(&syntax.attrs) { &[][..] } else { &syntax.items };
        self.read_module(items, &Place { file, children }, parent)
    }

    /// Reads a module from its items.
    fn read_module(
        &mut self,
        items: &[Item],
        place: &Place,
        parent: Option<ModuleId>,
    ) -> anyhow::Result<ModuleId> {
        let Collector { contents, modules } = Collector::read(items);
        let id = ModuleId(self.source.modules.len());
        let module = Module { file: place.file, parent, children: BTreeMap::new(), contents };
        self.source.modules.push(module);
        for declared in modules {
            let name = declared.ident.to_string();
            let child = match &declared.content {
                Some((_, items)) => {
                    let children = place.children.join(&name);
                    self.read_module(items, &Place { file: place.file, children }, Some(id))?
                }
                None => {
                    let (path, children) = self.find_file(&name, &declared.attrs, place)?;
                    self.read_file(path, children, Some(id))?
                }
            };
            self.source.modules[id.0].children.insert(name, child);
        }
        Ok(id)
    }

    /// The file of the module `name` that is declared at `place`, and the folder of its children's files.
    fn find_file(
        &self,
        name: &str,
        attributes: &[Attribute],
        place: &Place,
    ) -> anyhow::Result<(PathBuf, PathBuf)> {
        let declared_in = &self.source.files[place.file.0];
        if let Some(path) = path_attribute(attributes) {
            let path = declared_in.with_file_name(path);
            let children = path.parent().map(Path::to_owned).unwrap_or_default();
            return Ok((path, children));
        }
        let folder = place.children.join(name);
        let file = place.children.join(format!("{name}.rs"));
        let candidates = [file, folder.join("mod.rs")];
        let found = candidates.into_iter().find(|path| self.src.join(path).is_file());
        let found = found.with_context(|| {
            format!("{}: module `{name}` has no file", self.src.join(declared_in).display())
        })?;
        Ok((found, folder))
    }
}

/// The text of `#[path = "..."]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}
