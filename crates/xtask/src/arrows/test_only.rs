//! Finds code that only tests compile, by its attributes: `#[test]`, and `#[cfg(...)]` with a condition that holds in
//! no build without tests.

use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, Token};

/// Whether the code that has these attributes is compiled for tests alone.
pub(super) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || path.is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
    })
}

/// Whether a condition of `cfg` holds in no build without tests.
fn needs_test(condition: &Meta) -> bool {
    let Meta::List(list) = condition else { return condition.path().is_ident("test") };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    let mut parts = parts.iter().flatten();
    match () {
        () if list.path.is_ident("all") => parts.any(needs_test),
        () if list.path.is_ident("any") => parts.all(needs_test),
        () => false,
    }
}

/// The attributes of an item.
pub(super) fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_that_need_tests() {
        let is_test_only = |text: &str| {
            let item: Item = syn::parse_str(&format!("{text} fn f() {{}}")).unwrap();
            is_test_only(attributes_of(&item))
        };
        for text in
            ["#[test]", "#[cfg(test)]", "#[cfg(all(unix, test))]", "#[cfg(any(test, all(test)))]"]
        {
            assert!(is_test_only(text), "{text}");
        }
        for text in
            ["", "#[cfg(not(test))]", "#[cfg(any(test, unix))]", "#[cfg(feature = \"test\")]"]
        {
            assert!(!is_test_only(text), "{text}");
        }
    }
}
