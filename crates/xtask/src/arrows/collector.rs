//! Reads the syntax of one module: what it defines, imports and mentions, and which modules it declares.
//!
//! Imports and items inside a function's body count as the module's own.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemMod, Meta, UseTree, Visibility};

use super::source::{Contents, Import, Mention};
use super::test_only::{attributes_of, is_test_only};

/// Collects the contents of a module, and the modules that it declares, which only name their files or stand inside it.
#[derive(Default)]
pub(super) struct Collector<'ast> {
    pub(super) contents: Contents,
    pub(super) modules: Vec<&'ast ItemMod>,
}

impl<'ast> Collector<'ast> {
    /// Reads the items of a module.
    pub(super) fn read(items: &'ast [Item]) -> Self {
        let mut collector = Self::default();
        for item in items {
            collector.visit_item(item);
        }
        collector
    }

    fn define(&mut self, name: &Ident) {
        self.contents.definitions.push(text(name));
    }

    fn mention(&mut self, path: Vec<String>, is_macro_call: bool, line: usize) {
        self.contents.mentions.push(Mention { path, is_macro_call, line });
    }

    /// Adds the leaves of a `use` tree below the path `above`.
    fn import(&mut self, tree: &UseTree, above: &[String], is_reexport: bool) {
        let leaf = |ident: &Ident, name: &Ident| {
            let mut path = above.to_vec();
            let mut name = Some(text(name)).filter(|name| name != "_");
            // `tensor::{self}` is the module `tensor` under its own name.
            if ident == "self" && !above.is_empty() {
                name =
                    name.and_then(
                        |name| if name == "self" { path.last().cloned() } else { Some(name) },
                    );
            } else {
                path.push(text(ident));
            }
            Import { path, name, is_glob: false, is_reexport, line: line(ident) }
        };
        match tree {
            UseTree::Path(tree) => {
                let above = [above, &[text(&tree.ident)]].concat();
                self.import(&tree.tree, &above, is_reexport);
            }
            UseTree::Name(tree) => {
                let import = leaf(&tree.ident, &tree.ident);
                self.contents.imports.push(import);
            }
            UseTree::Rename(tree) => {
                let import = leaf(&tree.ident, &tree.rename);
                self.contents.imports.push(import);
            }
            UseTree::Glob(tree) => self.contents.imports.push(Import {
                path: above.to_vec(),
                name: None,
                is_glob: true,
                is_reexport,
                line: tree.star_token.spans[0].start().line,
            }),
            UseTree::Group(tree) => {
                for tree in &tree.items {
                    self.import(tree, above, is_reexport);
                }
            }
        }
    }

    /// Mentions the paths of two names or more among the tokens of a macro.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut first_line = 0;
        // Colons since the last name: two join the next one to it.
        let mut colons = 0;
        let mut is_after_dollar = false;
        for token in tokens {
            let is_parameter = std::mem::take(&mut is_after_dollar);
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                // `$crate` is a path's beginning, and `$name` stands for anything.
                TokenTree::Ident(ident) if !is_parameter || ident == "crate" => {
                    if colons != 2 || path.is_empty() {
                        self.end_path(&mut path, first_line);
                        first_line = line(&ident);
                    }
                    path.push(text(&ident));
                    colons = 0;
                }
                other => {
                    is_after_dollar = matches!(&other, TokenTree::Punct(p) if p.as_char() == '$');
                    self.end_path(&mut path, first_line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.read_tokens(group.stream());
                    }
                }
            }
        }
        self.end_path(&mut path, first_line);
    }

    fn end_path(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.mention(path, false, line);
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'ast> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test_only(attributes_of(item)) {
            return;
        }
        match item {
            Item::Mod(item) => return self.modules.push(item),
            Item::Use(item) => {
                let is_reexport = match &item.vis {
                    Visibility::Inherited => false,
                    Visibility::Restricted(restricted) => !restricted.path.is_ident("self"),
                    Visibility::Public(_) => true,
                };
                return self.import(&item.tree, &[], is_reexport);
            }
            Item::Const(item) => self.define(&item.ident),
            Item::Enum(item) => self.define(&item.ident),
            Item::Fn(item) => self.define(&item.sig.ident),
            Item::Static(item) => self.define(&item.ident),
            Item::Struct(item) => self.define(&item.ident),
            Item::Trait(item) => self.define(&item.ident),
            Item::TraitAlias(item) => self.define(&item.ident),
            Item::Type(item) => self.define(&item.ident),
            Item::Union(item) => self.define(&item.ident),
            Item::Macro(item) => {
                if let Some(name) = &item.ident {
                    self.define(name);
                    self.contents.macros.push(text(name));
                    if item.attrs.iter().any(|a| a.path().is_ident("macro_export")) {
                        self.contents.exported_macros.push(text(name));
                    }
                }
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        if !is_test_only(&item.attrs) {
            visit::visit_impl_item_const(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test_only(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test_only(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let names = path.segments.iter().map(|segment| text(&segment.ident)).collect();
            self.mention(names, false, line(&first.ident));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(first) = call.path.segments.first() {
            let names = call.path.segments.iter().map(|segment| text(&segment.ident)).collect();
            self.mention(names, true, line(&first.ident));
        }
        self.read_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            Meta::List(list) => self.read_tokens(list.tokens.clone()),
            Meta::NameValue(pair) => self.visit_expr(&pair.value),
            Meta::Path(_) => {}
        }
    }

    /// `pub(in path)` uses nothing of that module.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// A name without the `r#` of a raw one.
fn text(ident: &Ident) -> String {
    use syn::ext::IdentExt;
    ident.unraw().to_string()
}

fn line(ident: &Ident) -> usize {
    ident.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Contents {
        let file = syn::parse_file(text).unwrap();
        Collector::read(&file.items).contents
    }

    #[test]
    fn leaves_of_use_trees() {
        let contents = read(
            "use crate::{a::{self, B as C}, d::*};\npub(crate) use super::e::F;\nuse g as _;\n",
        );
        let shown: Vec<_> = contents
            .imports
            .iter()
            .map(|import| {
                let name = import.name.as_deref().unwrap_or(if import.is_glob { "*" } else { "_" });
                format!("{} {} {name} {}", import.line, import.path.join("::"), import.is_reexport)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "1 crate::a a false",
                "1 crate::a::B C false",
                "1 crate::d * false",
                "2 super::e::F F true",
                "3 g _ false",
            ]
        );
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let contents = read(
            "#[derive(x::Derive)]
            struct A<T: b::Bound>(c::Field<T>);
            fn f() -> Option<d::Inner> {
                assert!(matches!(y, e::Pattern::One), \"{}\", [$crate::g::h(), $x::y()]);
                match z { i::CONSTANT => j::call(), _ => a ? b : c }
            }"
            .replace("a ? b : c", "<k::T as l::Trait>::new()")
            .as_str(),
        );
        let found: Vec<String> = contents.mentions.iter().map(|m| m.path.join("::")).collect();
        for path in [
            "x::Derive",
            "b::Bound",
            "c::Field",
            "d::Inner",
            "e::Pattern::One",
            "crate::g::h",
            "i::CONSTANT",
            "j::call",
            "k::T",
            "l::Trait::new",
        ] {
            assert!(found.iter().any(|found| found == path), "{path} is not in {found:?}");
        }
        assert!(!found.contains(&"x::y".to_owned()), "{found:?}");
        assert_eq!(contents.definitions, ["A", "f"]);
    }

    #[test]
    fn tests_are_left_out() {
        let contents = read(
            "#[cfg(test)] use a::A;
            #[cfg(test)] mod tests { use b::B; }
            impl C { #[cfg(test)] fn f() { d::e() } }",
        );
        assert!(contents.imports.is_empty());
        assert!(contents.mentions.iter().all(|mention| mention.path == ["C"]));
    }
}
