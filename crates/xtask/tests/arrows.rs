//! `cargo xtask arrows` on a copy of this workspace's crates, in which something is planted.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of what the check reads: ARCHITECTURE.md, and each crate's manifest and `src`.
struct Copy {
    root: PathBuf,
}

impl Copy {
    fn new() -> Self {
        let name = format!("arrows-of-the-workspace-{}", std::process::id());
        let copy = Self { root: std::env::temp_dir().join(name) };
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::create_dir_all(&copy.root).unwrap();
        std::fs::copy(workspace.join("ARCHITECTURE.md"), copy.root.join("ARCHITECTURE.md"))
            .unwrap();
        for entry in std::fs::read_dir(workspace.join("crates")).unwrap() {
            let (from, to) = (entry.as_ref().unwrap().path(), copy.root.join("crates"));
            let to = to.join(entry.unwrap().file_name());
            copy_folder(&from.join("src"), &to.join("src"));
            std::fs::copy(from.join("Cargo.toml"), to.join("Cargo.toml")).unwrap();
        }
        copy
    }

    /// The lines that the command prints.
    fn findings(&self) -> Vec<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_batchmaker-xtask"));
        let output = command.arg("arrows").current_dir(&self.root).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.success(), text.is_empty(), "{text}");
        text.lines().map(str::to_owned).collect()
    }

    /// Adds text to a file.
    fn plant(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("{before}\n{text}\n")).unwrap();
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.root).unwrap();
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            std::fs::copy(&from, to).unwrap();
        }
    }
}

#[test]
fn what_is_planted_in_this_workspace_is_found() {
    let copy = Copy::new();
    let before = copy.findings();
    copy.plant("crates/graph/src/ids.rs", "use batchmaker_engine::Engine;");
    copy.plant("crates/profile/src/machine.rs", "fn planted(_: crate::Profile) {}");
    let planted: Vec<String> =
        copy.findings().into_iter().filter(|line| !before.contains(line)).collect();
    let starts = [
        "crates/graph/src/ids.rs:",
        "crates/profile/src/file.rs: a circle of 2 files",
        "    crates/profile/src/file.rs:",
        "    crates/profile/src/machine.rs:",
    ];
    assert_eq!(planted.len(), starts.len(), "{planted:#?}");
    for (line, start) in planted.iter().zip(starts) {
        assert!(line.starts_with(start), "{line} does not start with {start}");
    }
    assert!(planted[0].contains("crate `engine` is not above `graph`"));
}
