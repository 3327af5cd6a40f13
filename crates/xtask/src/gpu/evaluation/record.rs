//! The file of an evaluation's figures, and its plots beside it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Map, Value};

use super::figure::Figure;

/// A file of JSON that is written anew whenever something is added: an evaluation that is cut off leaves what it has.
pub(super) struct Record {
    path: PathBuf,
    values: Map<String, Value>,
}

impl Record {
    /// An empty file; its folder is made.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let record = Self { path: path.to_owned(), values: Map::new() };
        std::fs::create_dir_all(record.folder())?;
        record.write()?;
        Ok(record)
    }

    pub(super) fn folder(&self) -> &Path {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new("."))
    }

    /// Sets a key, and writes the file.
    pub(super) fn set(&mut self, key: &str, value: Value) -> anyhow::Result<()> {
        self.values.insert(key.to_owned(), value);
        self.write()
    }

    fn write(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.values)?;
        std::fs::write(&self.path, text + "\n")
            .with_context(|| format!("cannot write '{}'", self.path.display()))
    }

    /// Writes plots beside the file, and says why others are not there.
    pub(super) fn draw(&self, figures: Vec<Figure>) -> anyhow::Result<()> {
        for Figure { name, svg } in figures {
            match svg {
                Ok(svg) => {
                    let path = self.folder().join(name).with_extension("svg");
                    std::fs::write(&path, svg)
                        .with_context(|| format!("cannot write '{}'", path.display()))?;
                    println!("plotted {}", path.display());
                }
                Err(error) => println!("{name} is left out: {error:#}"),
            }
        }
        println!();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_file_has_what_was_set_so_far() {
        let folder = std::env::temp_dir().join(format!("record-{}", std::process::id()));
        let path = folder.join("gpu/evaluation.json");
        let mut record = Record::create(&path).unwrap();
        record.set("steps", json!(100)).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(&path), "{\n  \"steps\": 100\n}\n");
        let figures = vec![
            Figure::new("figure-13", Ok("<svg>".to_owned())),
            Figure::new("figure-14", Err(anyhow!("there is nothing to plot"))),
        ];
        record.draw(figures).unwrap();
        assert_eq!(read(&folder.join("gpu/figure-13.svg")), "<svg>");
        assert!(!folder.join("gpu/figure-14.svg").exists());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(Record { path: "a.json".into(), values: Map::new() }.folder(), Path::new("."));
    }
}
