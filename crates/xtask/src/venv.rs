//! A Python virtual environment under `target/`, and scripts that are run in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::batchmaker::{output, succeed};

/// A virtual environment.
#[derive(Clone, Debug)]
pub(crate) struct Venv {
    folder: PathBuf,
    python: PathBuf,
}

impl Venv {
    /// The environment in `folder`, which is made unless it is there.
    pub(crate) fn make(folder: &Path) -> anyhow::Result<Self> {
        let venv = Self { folder: folder.to_owned(), python: folder.join("bin/python") };
        let version = output(Command::new("python3").arg("--version"))?;
        // Written last: an environment that is half made, or of another Python, is made anew.
        let stamp = folder.join("made-by");
        if std::fs::read_to_string(&stamp).ok().as_ref() != Some(&version) {
            std::fs::create_dir_all(folder)?;
            succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))?;
            std::fs::write(&stamp, version)?;
        }
        Ok(venv)
    }

    /// Installs the packages of a requirements file, unless they are there as the file says.
    pub(crate) fn require(&self, file: &Path) -> anyhow::Result<()> {
        let name = file.file_name().context("a requirements file")?.to_string_lossy();
        let stamp = self.folder.join(format!("installed-{name}"));
        let wanted = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read '{}'", file.display()))?;
        if std::fs::read_to_string(&stamp).ok().as_ref() != Some(&wanted) {
            succeed(self.pip("install").arg("-r").arg(file))?;
            std::fs::write(&stamp, wanted)?;
        }
        Ok(())
    }

    /// A call of `pip COMMAND`, which the caller gives its arguments.
    pub(crate) fn pip(&self, command: &str) -> Command {
        let mut pip = Command::new(&self.python);
        pip.args(["-m", "pip", command, "--quiet", "--disable-pip-version-check"]);
        pip
    }

    /// A call of a script, which the caller gives its arguments.
    pub(crate) fn script(&self, path: &Path) -> Command {
        let mut command = Command::new(&self.python);
        command.env("PYTHONDONTWRITEBYTECODE", "1").arg(path);
        command
    }
}
