//! The files of a model, from a directory or compiled into the program.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use crate::error::LoadError;

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
        let all = |path: &Path, _: &Metadata| std::fs::read(path).map_err(|e| e.to_string());
        self.read_by(name, all)
    }

    /// `length` bytes of a file, from byte `start` on.
    pub(crate) fn read_part(
        &self,
        name: &str,
        (start, length): (usize, usize),
    ) -> Result<Vec<u8>, LoadError> {
        let short = || "the file is too short".to_owned();
        let end =
            |all: usize| start.checked_add(length).filter(|&end| end <= all).ok_or_else(short);
        if let Self::Embedded(_) = self {
            let all = self.read(name)?;
            let error = |reason| LoadError::File { file: self.label(name), reason };
            return Ok(all[start.min(all.len())..end(all.len()).map_err(error)?].to_vec());
        }
        let part = |path: &Path, metadata: &Metadata| {
            let end = end(usize::try_from(metadata.len()).unwrap_or(usize::MAX))?;
            let mut bytes = vec![0; end - start];
            let mut read = || -> std::io::Result<()> {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(start as u64))?;
                file.read_exact(&mut bytes)
            };
            read().map_err(|e| e.to_string())?;
            Ok(bytes)
        };
        self.read_by(name, part).map(Cow::into_owned)
    }

    fn read_by(
        &self,
        name: &str,
        read: impl FnOnce(&Path, &Metadata) -> Result<Vec<u8>, String>,
    ) -> Result<Cow<'_, [u8]>, LoadError> {
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
                let found = real(&path)?;
                if !found.starts_with(real(folder)?) {
                    return Err(error("a file outside the model's directory".to_owned()));
                }
                // Reading a pipe or a device might never end.
                let metadata = found.metadata().map_err(|e| error(e.to_string()))?;
                if !metadata.is_file() {
                    return Err(error("not a file".to_owned()));
                }
                read(&found, &metadata).map(Cow::Owned).map_err(error)
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
