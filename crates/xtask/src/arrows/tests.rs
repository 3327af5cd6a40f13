//! The checks on small workspaces that are written for each test, with one thing planted in each.

use std::path::{Path, PathBuf};

use super::check::check;

/// A workspace in a folder of its own, which goes with it. It has the crates `low`, `middle` and `high`, each of which
/// may use those before it, and nothing is wrong with it.
struct Planted {
    root: PathBuf,
}

const TABLES: &str = "\
# Architecture

## Crates

| crate | holds | uses |
|---|---|---|
| `low` | things | – |
| `middle` | more | low |
| `high` | most | middle |

## Folders

| crate | order |
|---|---|
| `middle` | `ground`, `beside` → `upper` |
";

impl Planted {
    /// `name` is that of the test.
    fn new(name: &str) -> Self {
        let folder = format!("arrows-{}-{name}", std::process::id());
        let planted = Self { root: std::env::temp_dir().join(folder) };
        planted.write("ARCHITECTURE.md", TABLES);
        for (name, uses) in [("low", None), ("middle", Some("low")), ("high", Some("middle"))] {
            let dependency = uses.map(|used| format!("batchmaker-{used}.workspace = true\n"));
            planted.write(
                &format!("crates/{name}/Cargo.toml"),
                &format!(
                    "[package]\nname = \"batchmaker-{name}\"\n\n[dependencies]\n{}",
                    dependency.unwrap_or_default()
                ),
            );
        }
        planted.write("crates/low/src/lib.rs", "mod leaf;\npub use leaf::Leaf;\n");
        planted.write("crates/low/src/leaf.rs", "pub struct Leaf;\n");
        planted.write("crates/middle/src/lib.rs", "mod ground;\nmod beside;\nmod upper;\n");
        planted.write("crates/middle/src/beside.rs", "pub(crate) struct Beside;\n");
        planted
            .write("crates/middle/src/ground/mod.rs", "mod floor;\npub(crate) use floor::Floor;\n");
        planted.write("crates/middle/src/ground/floor.rs", "pub(crate) struct Floor;\n");
        planted.write(
            "crates/middle/src/upper/mod.rs",
            "mod roof;\nuse crate::ground::Floor;\nuse batchmaker_low::Leaf;\n\
             pub(crate) struct Upper(Floor, Leaf);\n",
        );
        planted.write("crates/middle/src/upper/roof.rs", "pub(crate) struct Roof;\n");
        planted.write("crates/high/src/main.rs", "fn main() {}\n");
        planted
    }

    /// Writes a file, whose path is relative to the workspace.
    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The findings of the checks, a string each.
    fn findings(&self) -> Vec<String> {
        check(Path::new(&self.root)).unwrap().iter().map(ToString::to_string).collect()
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.root).unwrap();
    }
}

/// Asserts that there is one finding, which holds all `parts`.
#[track_caller]
fn assert_only(findings: &[String], parts: &[&str]) {
    assert_eq!(findings.len(), 1, "{findings:#?}");
    for part in parts {
        assert!(findings[0].contains(part), "{part:?} is not in {:?}", findings[0]);
    }
}

#[test]
fn nothing_is_wrong_with_the_workspace_that_tests_plant_in() {
    assert_eq!(Planted::new("clean").findings(), Vec::<String>::new());
}

#[test]
fn an_import_that_climbs_is_found() {
    let planted = Planted::new("climb");
    planted.write(
        "crates/middle/src/ground/floor.rs",
        "pub(crate) struct Floor;\n\nuse crate::upper::roof::Roof;\n",
    );
    // The file that is climbed to uses the folder below through another file: this is no circle of files.
    assert_only(
        &planted.findings(),
        &[
            "crates/middle/src/ground/floor.rs:3: uses `crate::upper::roof::Roof`",
            "which crates/middle/src/upper/roof.rs defines",
            "`upper` is not before `ground` in the row `middle`",
        ],
    );
}

#[test]
fn a_path_in_code_that_climbs_is_found() {
    let planted = Planted::new("path");
    planted.write(
        "crates/middle/src/beside.rs",
        "fn f() {\n    assert!(\n        matches!(1, crate::upper::roof::ROOF));\n}\n",
    );
    planted.write("crates/middle/src/upper/roof.rs", "pub(crate) const ROOF: u32 = 1;\n");
    assert_only(
        &planted.findings(),
        &["crates/middle/src/beside.rs:3: uses `crate::upper::roof::ROOF`"],
    );
}

#[test]
fn entries_of_one_group_do_not_use_each_other() {
    let planted = Planted::new("group");
    planted.write("crates/middle/src/beside.rs", "use crate::ground::Floor;\n");
    assert_only(&planted.findings(), &["`ground` is not before `beside`"]);
}

#[test]
fn an_import_that_climbs_behind_re_exports_is_found() {
    let planted = Planted::new("re-export");
    planted.write(
        "crates/middle/src/lib.rs",
        "mod ground;\nmod beside;\nmod upper;\npub use upper::Cover as Shelter;\n",
    );
    planted.write(
        "crates/middle/src/upper/mod.rs",
        "mod roof;\npub(crate) use roof::Roof as Cover;\n",
    );
    planted.write("crates/middle/src/beside.rs", "use crate::Shelter;\n");
    assert_only(
        &planted.findings(),
        &[
            "crates/middle/src/beside.rs:1: uses `crate::Shelter`",
            "which crates/middle/src/upper/roof.rs defines",
        ],
    );
}

#[test]
fn a_re_export_of_another_folder_is_an_import() {
    let planted = Planted::new("foreign");
    planted.write("crates/middle/src/beside.rs", "pub(crate) use crate::upper::roof::Roof;\n");
    assert_only(&planted.findings(), &["crates/middle/src/beside.rs:1", "`upper` is not before"]);
}

#[test]
fn a_circle_of_two_files_is_found() {
    let planted = Planted::new("circle");
    planted.write("crates/low/src/lib.rs", "mod a;\nmod b;\npub use a::A;\n");
    planted.write("crates/low/src/a.rs", "use crate::b::B;\npub struct A;\n");
    planted.write("crates/low/src/b.rs", "fn f(_: super::A) {}\npub struct B;\n");
    assert_only(
        &planted.findings(),
        &[
            "crates/low/src/a.rs: a circle of 2 files",
            "crates/low/src/a.rs:1 uses `crate::b::B`, which crates/low/src/b.rs defines",
            "crates/low/src/b.rs:1 uses `super::A`, which crates/low/src/a.rs defines",
        ],
    );
}

#[test]
fn a_circle_of_a_file_and_its_parent_is_found() {
    let planted = Planted::new("parent");
    planted.write("crates/low/src/lib.rs", "mod a;\nuse a::A;\npub struct Root(A);\n");
    planted.write("crates/low/src/a.rs", "pub struct A;\n");
    assert_eq!(planted.findings(), Vec::<String>::new(), "a parent may use its child");
    planted.write("crates/low/src/a.rs", "pub struct A;\nfn f(_: crate::Root) {}\n");
    assert_only(
        &planted.findings(),
        &["a circle of 2 files", "crates/low/src/lib.rs:2 uses `a::A`"],
    );
}

#[test]
fn a_circle_through_a_glob_re_export_is_found() {
    let planted = Planted::new("glob");
    planted.write("crates/low/src/lib.rs", "mod a;\nmod b;\npub use a::*;\n");
    planted.write("crates/low/src/a.rs", "use crate::b::B;\npub struct A;\n");
    planted.write("crates/low/src/b.rs", "use crate::A;\npub struct B;\n");
    assert_only(
        &planted.findings(),
        &["a circle of 2 files", "b.rs:1 uses `crate::A`, which crates/low/src/a.rs"],
    );
}

#[test]
fn globs_of_each_other_come_to_an_end() {
    let planted = Planted::new("globs");
    planted.write("crates/low/src/lib.rs", "mod a;\nmod b;\npub use a::*;\npub use b::*;\n");
    planted.write("crates/low/src/a.rs", "use super::*;\npub struct A(B);\n");
    planted.write("crates/low/src/b.rs", "use super::*;\npub struct B(String);\n");
    assert_eq!(planted.findings(), Vec::<String>::new());
    planted.write("crates/low/src/b.rs", "use super::*;\npub struct B(A);\n");
    assert_only(&planted.findings(), &["a.rs:2 uses `B`", "b.rs:2 uses `A`"]);
}

#[test]
fn a_macro_has_arrows_to_what_it_expands_to_and_from_where_it_is_called() {
    let planted = Planted::new("macro");
    planted.write(
        "crates/low/src/lib.rs",
        "mod a;\nmod b;\n#[macro_export]\nmacro_rules! make { () => { $crate::a::A } }\n",
    );
    planted.write("crates/low/src/a.rs", "fn f() { make!(); }\npub struct A;\n");
    planted.write("crates/low/src/b.rs", "");
    assert_only(
        &planted.findings(),
        &["a.rs:1 uses `make`, which crates/low/src/lib.rs", "lib.rs:4 uses `crate::a::A`"],
    );
}

#[test]
fn what_a_macro_defines_is_defined_where_it_is_called() {
    let planted = Planted::new("defined");
    planted.write("crates/low/src/lib.rs", "mod a;\nmod b;\npub use a::A;\n");
    planted.write("crates/low/src/a.rs", "id!(A);\nuse crate::b::B;\n");
    planted.write("crates/low/src/b.rs", "pub struct B(crate::A);\n");
    assert_only(
        &planted.findings(),
        &["a circle of 2 files", "b.rs:1 uses `crate::A`, which crates/low/src/a.rs"],
    );
}

#[test]
fn folders_form_no_circle_though_their_files_form_none() {
    let planted = Planted::new("folders");
    planted.write("crates/low/src/lib.rs", "mod a;\nmod b;\n");
    planted.write("crates/low/src/a/mod.rs", "mod one;\nmod two;\n");
    planted.write("crates/low/src/a/one.rs", "use crate::b::B;\n");
    planted.write("crates/low/src/a/two.rs", "pub struct Two;\n");
    planted.write("crates/low/src/b.rs", "use crate::a::two::Two;\npub struct B;\n");
    let findings = planted.findings();
    let (row, circle) = findings.split_first().unwrap();
    assert!(row.contains("has the folders `a`"), "{row}");
    assert_only(circle, &["crates/low/src: a circle of 2 entries", "a/one.rs:1", "b.rs:1"]);
}

#[test]
fn imports_of_tests_are_allowed() {
    let planted = Planted::new("tests");
    planted.write(
        "crates/middle/src/beside.rs",
        "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse crate::upper::Upper;\n\
         #[test]\nfn f() { crate::upper::Upper::new(); }\n",
    );
    planted.write("crates/middle/src/beside/tests.rs", "use crate::upper::Upper;\n");
    assert_eq!(planted.findings(), Vec::<String>::new());
}

#[test]
fn a_crate_that_uses_one_below_it_is_found() {
    let planted = Planted::new("crates");
    planted.write(
        "crates/low/src/leaf.rs",
        "pub struct Leaf;\nuse batchmaker_high::High;\nfn f(_: High) {}\n",
    );
    assert_only(
        &planted.findings(),
        &["crates/low/src/leaf.rs:2: uses `batchmaker_high::High`", "`high` is not above `low`"],
    );
    planted.write("crates/low/src/leaf.rs", "pub struct Leaf;\n");
    planted.write(
        "crates/low/Cargo.toml",
        "[package]\nname = \"batchmaker-low\"\n[target.'cfg(unix)'.dependencies]\n\
         batchmaker-middle = { path = \"../middle\" }\n[dev-dependencies]\nbatchmaker-high = \"1\"\n",
    );
    assert_only(&planted.findings(), &["crates/low/Cargo.toml: depends on `middle`"]);
}

#[test]
fn the_column_of_uses_is_what_manifests_say() {
    let planted = Planted::new("uses");
    planted.write("ARCHITECTURE.md", &TABLES.replace("| most | middle |", "| most | low |"));
    let findings = planted.findings();
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert!(findings[0].contains("`high` is to use `low`, but does not depend on it"));
    assert!(findings[1].contains("crates/high/Cargo.toml: depends on `middle`"));
    // What a crate uses may be used beside it.
    planted.write("ARCHITECTURE.md", TABLES);
    planted.write(
        "crates/high/Cargo.toml",
        "[package]\nname = \"high\"\n[dependencies]\nbatchmaker-middle = \"1\"\nbatchmaker-low = \"1\"\n",
    );
    assert_eq!(planted.findings(), Vec::<String>::new());
}

#[test]
fn tables_and_folders_name_each_other() {
    let planted = Planted::new("rows");
    let row = "| `middle` | `ground`, `beside` → `upper` |";
    let findings = |rows: &str| {
        planted.write("ARCHITECTURE.md", &TABLES.replace(row, rows));
        planted.findings()
    };
    assert_only(&findings(""), &["crates/middle/src: has the folders `ground`, `upper`"]);
    assert_only(&findings("| `middle` | `ground` |"), &[":15: the row lacks the folder `upper`"]);
    let made_up = "| `middle` | `ground` → `cellar` → `upper` |";
    assert_only(&findings(made_up), &["ARCHITECTURE.md:15: `middle` has no `cellar`"]);
    let no_folder = format!("{row}\n| `middle/attic` | `a` → `b` |");
    assert_only(&findings(&no_folder), &["ARCHITECTURE.md:16: there is no folder `middle/attic`"]);
    let nested = format!("{row}\n| `middle/upper` | `roof` |");
    assert_eq!(findings(&nested), Vec::<String>::new());
}
