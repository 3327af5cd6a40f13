//! Notes on files that load and are served, though probably not as their owner means them to be.

use std::fs::read_dir;
use std::path::Path;

use crate::analysis::state::Analysis;
use crate::file::onnx_file::{DeclaredDimension, OnnxFile};

/// The note that the ONNX file at `path` is served without a `model.toml`, where other files of its `folder`
/// suggest that there was one: vocabularies or labels, or, beside the only ONNX file, any text file but those
/// that describe a project.
pub(super) fn missing_model_toml(folder: &Path, path: &Path) -> Option<String> {
    let entries = read_dir(folder).ok()?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut files: Vec<String> = names.collect();
    if files.iter().any(|file| file == "model.toml") {
        return None;
    }
    files.sort();
    let is_alone = files.iter().filter(|file| file.ends_with(".onnx")).count() == 1;
    let is_for_a_model = |file: &&String| {
        let Some(stem) = file.strip_suffix(".txt").map(str::to_lowercase) else { return false };
        let describes = ["readme", "license", "notice", "requirements", "changelog"];
        let is_list = ["vocab", "label"].iter().any(|word| stem.contains(word));
        is_list || (is_alone && !describes.iter().any(|word| stem.starts_with(word)))
    };
    let text = files.iter().find(is_for_a_model)?;
    let (path, folder) = (path.display(), folder.display());
    Some(format!(
        "{path} is served as it is, without text: beside it lies {text}, but no model.toml, which would \
         use it; put a model.toml into {folder} and serve that folder (docs/model-toml.md)"
    ))
}

/// A note for each input along whose axis of time the file fixes a length, and one if it fixes the number of sequences.
pub(super) fn fixed_lengths(file: &OnnxFile, analysis: &Analysis) -> Vec<String> {
    let (mut notes, mut batch_is_noted) = (Vec::new(), false);
    for (index, input) in file.inputs.iter().enumerate() {
        for (axis, declared) in input.shape.iter().flatten().enumerate() {
            let DeclaredDimension::Static(length) = declared else { continue };
            if analysis.is_batch(index, axis) && !batch_is_noted {
                batch_is_noted = true;
                let (name, sequences) =
                    (&input.name, if *length == 1 { "sequence" } else { "sequences" });
                notes.push(format!(
                    "a request takes exactly {length} {sequences}: the file fixes axis {axis} of input \
                     `{name}`, which is the batch; export it with a dynamic axis to send several"
                ));
            }
            if analysis.is_fixed_time(file, index, axis) {
                let (name, steps) = (&input.name, if *length == 1 { "step" } else { "steps" });
                notes.push(format!(
                    "input `{name}` takes exactly {length} {steps}: the file fixes its axis {axis}, \
                     which is time; export it with a dynamic axis to serve sequences of any length"
                ));
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_model_toml() {
        let folder = std::env::temp_dir().join(format!("batchmaker-lost-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let add = |name: &str| std::fs::write(folder.join(name), "").unwrap();
        let model = folder.join("model.onnx");
        let note = || missing_model_toml(&folder, &model);
        add("model.onnx");
        add("README.txt");
        assert_eq!(note(), None);
        add("words.txt");
        let found = note().expect("a text file beside the only ONNX file");
        assert!(found.contains("beside it lies words.txt, but no model.toml"), "{found}");
        add("other.onnx");
        assert_eq!(note(), None, "a folder of several models");
        add("labels.txt");
        let found = note().expect("labels");
        assert!(found.contains("beside it lies labels.txt"), "{found}");
        add("model.toml");
        assert_eq!(note(), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
