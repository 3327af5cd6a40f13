//! Several requests as one, padded to the longest of them.

use batchmaker::{Axis, InputLayout, NamedTensor, Request, Tensor, TensorData};

/// Requests of one batch that cannot be one request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CannotPad {
    #[error(
        "the requests of a batch have different inputs, and cannot be padded: one has no '{0}'"
    )]
    Missing(String),
    #[error("'{0}' has another rank or type in another request of the batch, and cannot be padded")]
    Unlike(String),
}

/// The axis of each input of a model that has a row for each sequence, by name.
#[derive(Clone, Debug)]
pub(crate) struct BatchAxes(Vec<(String, usize)>);

impl BatchAxes {
    /// The axes of inputs; none if no input has one.
    pub(crate) fn of<'a>(inputs: impl Iterator<Item = (&'a str, InputLayout)>) -> Option<Self> {
        let axes = inputs.filter_map(|(name, layout)| {
            let axis = layout.axes.iter().position(|&axis| axis == Axis::Batch)?;
            Some((name.to_owned(), axis))
        });
        Some(Self(axes.collect())).filter(|axes| !axes.0.is_empty())
    }

    /// One request of the sequences of all `requests`. In each axis but that of sequences, an input is as long as the longest, with zeros after
    /// the elements of shorter ones. Inputs without an axis of sequences, and all that is not an input, are those of the first request.
    ///
    /// # Errors
    /// If the requests have different inputs.
    pub(crate) fn padded(&self, requests: Vec<Request>) -> Result<Request, CannotPad> {
        let mut others = requests.into_iter();
        let mut padded = others.next().unwrap_or_default();
        let others: Vec<Request> = others.collect();
        let has = |request: &Request, name: &str| request.tensors.iter().any(|of| of.name == name);
        let names = others.iter().flat_map(|request| &request.tensors).map(|tensor| &tensor.name);
        if let Some(name) = { names }.find(|name| !has(&padded, name)) {
            return Err(CannotPad::Missing(name.clone()));
        }
        for NamedTensor { name, tensor } in &mut padded.tensors {
            let Some((_, axis)) = self.0.iter().find(|(of, _)| of == name) else { continue };
            let missing = || CannotPad::Missing(name.clone());
            let parts = others.iter().map(|request| {
                let of_name = request.tensors.iter().find(|part| part.name == *name);
                of_name.map(|part| &part.tensor).ok_or_else(missing)
            });
            let parts: Vec<&Tensor> =
                std::iter::once(Ok(&*tensor)).chain(parts).collect::<Result<_, _>>()?;
            *tensor = joined(&parts, *axis).ok_or_else(|| CannotPad::Unlike(name.clone()))?;
        }
        Ok(padded)
    }
}

/// The rows of all `parts` along `axis`, padded in all other axes; none if their ranks or types differ.
fn joined(parts: &[&Tensor], axis: usize) -> Option<Tensor> {
    let first = parts.first()?;
    let mut shape = first.shape().to_vec();
    for part in &parts[1..] {
        if part.shape().len() != shape.len() || part.element() != first.element() {
            return None;
        }
        for (at, (length, &of_part)) in shape.iter_mut().zip(part.shape()).enumerate() {
            *length = if at == axis { *length + of_part } else { of_part.max(*length) };
        }
    }
    let row: usize = shape.get(axis + 1..)?.iter().product();
    let mut whole = TensorData::zeros(first.element(), shape.iter().product());
    let mut start = 0;
    for part in parts {
        let place = (part.shape(), shape.as_slice(), start * row);
        match (&mut whole, part.data()) {
            (TensorData::F32(whole), TensorData::F32(part)) => paste(part, whole, place),
            (TensorData::I64(whole), TensorData::I64(part)) => paste(part, whole, place),
            (TensorData::I32(whole), TensorData::I32(part)) => paste(part, whole, place),
            (TensorData::Bool(whole), TensorData::Bool(part)) => paste(part, whole, place),
            (TensorData::Bytes(whole), TensorData::Bytes(part)) => paste(part, whole, place),
            _ => return None,
        }
        start += part.shape()[axis];
    }
    Some(Tensor::new(shape, whole))
}

/// Copies the elements of `part`, whose shape is the first of `place`, into `whole`, whose shape is the second. The third is where the first
/// element comes.
fn paste<T: Clone>(part: &[T], whole: &mut [T], place: (&[usize], &[usize], usize)) {
    let (shape, of_whole, start) = place;
    if part.is_empty() {
        return;
    }
    match (shape, of_whole) {
        ([_, inner @ ..], [_, inner_of_whole @ ..]) if !inner.is_empty() => {
            let rows = part.chunks(inner.iter().product());
            let places = whole[start..].chunks_mut(inner_of_whole.iter().product());
            for (row, place) in rows.zip(places) {
                paste(row, place, (inner, inner_of_whole, 0));
            }
        }
        _ => whole[start..][..part.len()].clone_from_slice(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tensors: &[(&str, &[usize], &[i64])]) -> Request {
        let named = |&(name, shape, data): &(&str, &[usize], &[i64])| NamedTensor {
            name: name.to_owned(),
            tensor: Tensor::new(shape.to_vec(), TensorData::I64(data.to_vec())),
        };
        Request::from(tensors.iter().map(named).collect::<Vec<_>>())
    }

    fn axes(of: &[(&str, usize)]) -> BatchAxes {
        BatchAxes(of.iter().map(|&(name, axis)| (name.to_owned(), axis)).collect())
    }

    #[test]
    fn sequences_are_padded_to_the_longest() {
        let one = request(&[("ids", &[1, 2], &[1, 2]), ("rate", &[], &[16])]);
        let two = request(&[("ids", &[2, 3], &[3, 4, 5, 6, 7, 8]), ("rate", &[], &[8])]);
        let padded = axes(&[("ids", 0)]).padded(vec![one, two]).unwrap();
        let expected =
            request(&[("ids", &[3, 3], &[1, 2, 0, 3, 4, 5, 6, 7, 8]), ("rate", &[], &[16])]);
        assert_eq!(padded.tensors, expected.tensors);
    }

    #[test]
    fn sequences_may_lie_along_any_axis() {
        // [time, batch, 2]
        let one = request(&[("x", &[1, 1, 2], &[1, 2])]);
        let two = request(&[("x", &[2, 1, 2], &[3, 4, 5, 6])]);
        let padded = axes(&[("x", 1)]).padded(vec![one.clone(), two.clone()]).unwrap();
        assert_eq!(
            padded.tensors,
            request(&[("x", &[2, 2, 2], &[1, 2, 3, 4, 0, 0, 5, 6])]).tensors
        );
        let last = axes(&[("x", 2)]).padded(vec![one, two]).unwrap();
        assert_eq!(last.tensors, request(&[("x", &[2, 1, 4], &[1, 2, 3, 4, 0, 0, 5, 6])]).tensors);
    }

    #[test]
    fn requests_of_other_inputs_are_refused() {
        let [one, two] = ["a", "b"].map(|name| request(&[(name, &[1, 1], &[1])]));
        let flat = request(&[("a", &[1], &[1])]);
        let axes = axes(&[("a", 0), ("b", 0)]);
        let error = |of: [&Request; 2]| axes.padded(of.map(Clone::clone).to_vec()).unwrap_err();
        assert_eq!(error([&one, &two]), CannotPad::Missing("b".into()));
        assert_eq!(error([&one, &flat]), CannotPad::Unlike("a".into()));
        let none = Request::new();
        assert_eq!(error([&one, &none]), CannotPad::Missing("a".into()));
        assert_eq!(error([&none, &one]), CannotPad::Missing("a".into()));
    }
}
