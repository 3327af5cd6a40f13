//! The folder of comparisons with a commit.

/// Holds the commit's worktree, both binaries, models and figures.
pub(super) const FOLDER: &str = "target/against";
