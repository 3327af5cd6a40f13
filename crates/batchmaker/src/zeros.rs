//! Requests of zeros, and what they say of a model.

use std::collections::BTreeMap;

use batchmaker_graph::{CellTypeId, NamedTensor, Parameters, Tensor, TensorData};
use batchmaker_model::{Content, InputLayout, Model, TensorInfo};

/// Numbers of steps to try: a model may take no fewer than some, or only its own.
pub(crate) const LENGTHS: [usize; 8] = [4, 1, 2, 8, 16, 64, 256, 1024];

/// A larger tensor is not made up.
const ELEMENTS_MAX: usize = 1 << 24;

/// A request of one sequence; none where that is not made of numbers, or of too many.
pub(crate) fn zeros(model: &Model, length: usize) -> Option<Vec<NamedTensor>> {
    let layouts = model.layouts();
    let inputs = model.inputs.iter().zip(layouts).filter(|(_, layout)| !layout.optional);
    let tensor = |(info, layout): (&TensorInfo, InputLayout)| {
        if !matches!(layout.content, Content::Numbers | Content::Ids(_)) {
            return None;
        }
        let shape = layout.shape(length);
        let count = shape.iter().try_fold(1usize, |count, &n| count.checked_mul(n))?;
        let data = (count <= ELEMENTS_MAX).then(|| TensorData::zeros(info.element, count))?;
        Some(NamedTensor { name: info.name.clone(), tensor: Tensor::new(shape, data) })
    };
    inputs.map(tensor).collect()
}

/// Whether requests of a model bring sequences of different lengths.
pub fn has_lengths(model: &Model) -> bool {
    model.layouts().iter().any(|layout| layout.shape(1) != layout.shape(2))
}

/// Unfolds a request of zeros: one image, or one sequence of `steps` steps. Returns how many rows of each cell type it has, and its number of
/// steps, which is another if the model refuses a sequence of `steps`. Returns none for a model whose requests hold texts or trees.
pub fn rows_of_request(model: &Model, steps: usize) -> Option<(BTreeMap<CellTypeId, u32>, usize)> {
    [steps].into_iter().chain(LENGTHS).find_map(|steps| {
        let tensors = zeros(model, steps)?;
        let (unfolded, _) = model.unfold(tensors, &Parameters::default(), &[]).ok()?;
        let mut rows = BTreeMap::new();
        for run in unfolded.graph.runs() {
            *rows.entry(run.cell_type).or_default() += run.length;
        }
        Some((rows, steps))
    })
}
