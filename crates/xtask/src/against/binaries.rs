//! The two builds that are compared: that of a commit, made in a worktree of its own, and that of the
//! working tree. A commit's binary is kept under the commit's hash, so each commit is built once. The
//! working tree's binary is built anew and copied, so that no later build replaces it during a measurement.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::folder::FOLDER;
use crate::batchmaker::{output, succeed};

/// The binary. Its package is the default member of the workspace, whose name differs between commits.
const BINARY: &str = "batchmaker";

/// Which builds to compare.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// The commit to compare with, as git names it
    #[arg(required_unless_present = "base_binary")]
    base: Option<String>,
    /// A `batchmaker` that was built of the base, instead of a commit
    #[arg(long, value_name = "FILE", conflicts_with = "base")]
    base_binary: Option<PathBuf>,
    /// A `batchmaker` to compare, instead of the one that this tree is built to
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// One of the two builds that are compared.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    /// The name in messages.
    pub(crate) name: String,
    /// The path of `batchmaker`.
    pub(crate) binary: PathBuf,
    /// The checkout that its other programs can be built in; none of a binary that was given.
    source: Option<Source>,
}

/// A tree to build programs of.
#[derive(Clone, Debug)]
struct Source {
    tree: PathBuf,
    target: PathBuf,
    /// Under which programs are kept; none: they are built anew each time.
    commit: Option<String>,
}

/// Both builds.
#[derive(Clone, Debug)]
pub(crate) struct Builds {
    pub(crate) base: Build,
    pub(crate) now: Build,
}

impl Which {
    /// Builds what was not given.
    pub(crate) fn build(&self) -> anyhow::Result<Builds> {
        let base = match (&self.base_binary, &self.base) {
            (Some(binary), _) => Build::given(binary)?,
            (None, Some(commit)) => Build::of_commit(commit)?,
            (None, None) => bail!("name a commit to compare with, or --base-binary FILE"),
        };
        let now = match &self.binary {
            Some(binary) => Build::given(binary)?,
            None => Build::of_this_tree()?,
        };
        eprintln!("base: {}\nnow:  {}", base.name, now.name);
        Ok(Builds { base, now })
    }
}

impl Build {
    fn given(binary: &Path) -> anyhow::Result<Self> {
        let binary = std::path::absolute(binary)?;
        ensure!(binary.is_file(), "there is no file '{}'", binary.display());
        Ok(Self { name: binary.display().to_string(), binary, source: None })
    }

    fn of_commit(commit: &str) -> anyhow::Result<Self> {
        let sha = git(&["rev-parse", "--verify", "--quiet", &format!("{commit}^{{commit}}")])
            .with_context(|| format!("'{commit}' is no commit of this repository"))?;
        let folder = std::path::absolute(FOLDER)?;
        let source = Source {
            tree: folder.join("base"),
            target: folder.join("base-target"),
            commit: Some(sha.clone()),
        };
        let name = git(&["show", "--no-patch", "--format=%h %s", &sha])?;
        let binary = source.program(BINARY, &["build", "--release", "--bin", BINARY], "bin")?;
        Ok(Self { name, binary, source: Some(source) })
    }

    fn of_this_tree() -> anyhow::Result<Self> {
        let source = Source {
            tree: std::path::absolute(".")?,
            target: std::path::absolute("target")?,
            commit: None,
        };
        let mut name = git(&["show", "--no-patch", "--format=%h %s", "HEAD"])?;
        if !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
            name += ", with changes that are not committed";
        }
        let binary = source.program(BINARY, &["build", "--release", "--bin", BINARY], "bin")?;
        Ok(Self { name, binary, source: Some(source) })
    }

    /// The program of a benchmark of its tree.
    pub(crate) fn benchmark(&self, package: &str) -> anyhow::Result<PathBuf> {
        let source = self.source.as_ref().with_context(|| {
            let name = &self.name;
            format!("{package} cannot be benchmarked: '{name}' was given without its tree; skip it")
        })?;
        source.program(package, &["bench", "--no-run", "--package", package], "bench")
    }
}

impl Source {
    /// Builds a program with the arguments `build` of cargo, and keeps a copy under `name`. `kind` is the kind of
    /// its target in cargo's messages.
    fn program(&self, name: &str, build: &[&str], kind: &str) -> anyhow::Result<PathBuf> {
        let commit = self.commit.as_deref().map_or("now", |commit| &commit[..12]);
        let kept = Path::new(FOLDER).join("binaries").join(format!("{name}-{kind}-{commit}"));
        let kept = std::path::absolute(kept)?;
        if self.commit.is_some() && kept.is_file() {
            return Ok(kept);
        }
        self.check_out()?;
        eprintln!("building {name} in {}", self.tree.display());
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target).args(build);
        cargo.args(["--message-format", "json-render-diagnostics"]);
        let messages = output(&mut cargo)?;
        let built = executable(&messages, kind)
            .with_context(|| format!("cargo built no {kind} of {name}"))?;
        std::fs::create_dir_all(kept.parent().context("a folder")?)?;
        // A program that runs is not written over, but may be replaced.
        let copy = kept.with_extension("new");
        std::fs::copy(&built, &copy).and_then(|_| std::fs::rename(&copy, &kept)).with_context(
            || format!("cannot copy '{}' to '{}'", built.display(), kept.display()),
        )?;
        Ok(kept)
    }

    /// Brings the worktree to the commit; nothing to do in the tree as it is.
    fn check_out(&self) -> anyhow::Result<()> {
        let Some(commit) = &self.commit else { return Ok(()) };
        let tree = self.tree.as_os_str();
        let is_worktree = self.tree.join(".git").exists();
        if is_worktree && git_in(&self.tree, &["checkout", "--quiet", "--detach", commit]).is_ok() {
            return Ok(());
        }
        if self.tree.exists() {
            std::fs::remove_dir_all(&self.tree)?;
        }
        succeed(Command::new("git").args(["worktree", "prune"]))?;
        let add = ["worktree", "add", "--quiet", "--detach"].map(OsStr::new);
        succeed(Command::new("git").args(add).args([tree, OsStr::new(commit)]))
    }
}

/// The last executable of a target of this kind in cargo's messages.
fn executable(messages: &str, kind: &str) -> Option<PathBuf> {
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let kinds = message["target"]["kind"].as_array()?;
        let is_kind = kinds.iter().any(|of| of == kind);
        is_kind.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executables.next_back()
}

fn git(arguments: &[&str]) -> anyhow::Result<String> {
    git_in(Path::new("."), arguments)
}

fn git_in(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let text = output(Command::new("git").arg("-C").arg(folder).args(arguments))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_their_kind() {
        let messages = r#"
            {"reason":"compiler-artifact","target":{"kind":["lib"]},"executable":null}
            {"reason":"compiler-artifact","target":{"kind":["bin"]},"executable":"/t/release/batchmaker"}
            {"reason":"compiler-artifact","target":{"kind":["bench"]},"executable":"/t/null_device-1"}
            {"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "bin"), Some("/t/release/batchmaker".into()));
        assert_eq!(executable(messages, "bench"), Some("/t/null_device-1".into()));
        assert_eq!(executable(messages, "example"), None);
    }
}
