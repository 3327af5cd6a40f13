//! Advice for a file that is refused for the lengths that it leaves open, and that one shape would do for.

use crate::emit::registration::StageStarts;
use crate::file::onnx_file::{DeclaredDimension, GraphInput, OnnxFile};
use crate::loading::whole_file::analysed;

/// Lengths to try: a file may need a multiple of its strides, or more than its windows hold.
const LENGTHS: [usize; 3] = [64, 256, 1024];

/// Says which `row` in a `model.toml` would make `file`, of that name, one that is served; none if no length that is
/// tried does, or no axis is open beside the first.
pub(super) fn advice(mut file: OnnxFile, name: &str) -> Option<String> {
    let is_open = |declared: &DeclaredDimension| !matches!(declared, DeclaredDimension::Static(_));
    let mut open = Vec::new();
    for (input, of) in file.inputs.iter().enumerate() {
        let axes = of.shape.as_ref()?.iter().enumerate().skip(1);
        open.extend(axes.filter(|(_, of)| is_open(of)).map(|(axis, _)| (input, axis)));
    }
    if open.is_empty() {
        return None;
    }
    let length = LENGTHS.into_iter().find(|&length| {
        for &(input, axis) in &open {
            if let Some(shape) = &mut file.inputs[input].shape {
                shape[axis] = DeclaredDimension::Static(length);
            }
        }
        !analysed(&file, &StageStarts::default()).variants.is_empty()
    })?;
    let row = |(index, input): (usize, &GraphInput)| {
        open.iter().find(|(open, _)| *open == index)?;
        let lengths = input.shape.iter().flatten().skip(1).map(|of| match of {
            DeclaredDimension::Static(n) => n.to_string(),
            _ => unreachable!("all lengths were set"),
        });
        Some(format!("{:?} = [{}]", input.name, lengths.collect::<Vec<_>>().join(", ")))
    };
    let rows: Vec<String> = file.inputs.iter().enumerate().filter_map(row).collect();
    Some(format!(
        "with fixed lengths it can be served: put it into a folder with a model.toml that says `[unfold]`, \
         `kind = \"onnx\"`, `graph = {name:?}`, `row = {{ {} }}`, your own lengths in place of {length} \
         (docs/model-toml.md)",
        rows.join(", ")
    ))
}
