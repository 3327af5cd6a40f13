//! Where a model's files come from: a directory, or bytes compiled into the program.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use crate::LoadError;

/// A folder of files, in the file system or in memory. Names are relative, with `/`
/// between their parts, and stay inside.
pub(crate) enum Files<'a> {
    Folder(PathBuf),
    Embedded(&'a [(&'a str, &'a [u8])]),
}

impl Files<'_> {
    /// The name of a file in messages.
    pub(crate) fn label(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(name).display().to_string(),
            Self::Embedded(_) => name.to_owned(),
        }
    }

    /// A file's bytes.
    pub(crate) fn read(&self, name: &str) -> Result<Cow<'_, [u8]>, LoadError> {
        let error = |reason: String| LoadError::File { file: self.label(name), reason };
        let inside = Path::new(name)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !inside || name.is_empty() {
            return Err(error("a file outside the model's directory".to_owned()));
        }
        match self {
            Self::Folder(folder) => {
                let path = folder.join(name);
                let real = |path: &Path| path.canonicalize().map_err(|e| error(e.to_string()));
                if !real(&path)?.starts_with(real(folder)?) {
                    return Err(error("a file outside the model's directory".to_owned()));
                }
                std::fs::read(&path).map(Cow::Owned).map_err(|e| error(e.to_string()))
            }
            Self::Embedded(files) => {
                let name = name.strip_prefix("./").unwrap_or(name);
                let found = files.iter().find(|(known, _)| *known == name);
                let (_, bytes) = found.ok_or_else(|| error("no such file".to_owned()))?;
                Ok(Cow::Borrowed(bytes))
            }
        }
    }

    /// A file's text.
    pub(crate) fn read_text(&self, name: &str) -> Result<String, LoadError> {
        let bytes = self.read(name)?.into_owned();
        String::from_utf8(bytes).map_err(|_| LoadError::Malformed {
            file: self.label(name),
            reason: "not UTF-8 text".to_owned(),
        })
    }
}
