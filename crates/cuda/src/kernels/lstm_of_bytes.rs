//! LSTMs of bytes: `kernels/lstm_of_bytes.cu`.

use batchmaker_graph::{LstmBytes, RecurrentCell};

use super::step::{PackedLaunch, PackedRecurrent, biases, projection, side_by_side};
use super::weights::{Storage, whole_bytes};

/// The most products of two whole numbers, each of at most 255 in magnitude, whose sum 32 bits hold.
const TERMS_MAX: usize = i32::MAX as usize / (255 * 255);

/// Packs a cell; none if its sums may have more than [`TERMS_MAX`] terms.
pub(super) fn pack(
    cell: &RecurrentCell,
    bytes: &LstmBytes,
    storage: Storage,
) -> Option<PackedRecurrent> {
    let (input_size, hidden_size) = (cell.input_size, cell.hidden_size);
    let LstmBytes { r_scale, w_scale } = bytes;
    let terms = w_scale.as_ref().map_or(hidden_size, |_| hidden_size.max(input_size));
    if terms > TERMS_MAX {
        return None;
    }
    let of_gates = |w: &[f32], inputs: usize| side_by_side(w, 0..4, hidden_size, inputs);
    let (kernel, w) = match w_scale {
        Some(w_scale) => {
            // The last element of x is what 1 stands for in the others.
            let inputs = input_size.checked_sub(1)?;
            let w = whole_numbers(&cell.w, w_scale, input_size, inputs);
            ("lstm_of_bytes_step_whole", whole_bytes(&of_gates(&w, inputs)))
        }
        None => {
            let kernels = ["lstm_of_bytes_step_f32", "lstm_of_bytes_step_bf16"];
            (
                storage.choose(kernels),
                storage.bytes(&of_gates(&cell.w, input_size), 4 * cell.hidden_size),
            )
        }
    };
    let r = whole_numbers(&cell.r, r_scale, hidden_size, hidden_size);
    let r = whole_bytes(&of_gates(&r, hidden_size));
    let numbers = PackedLaunch {
        kernel: "lstm_whole_numbers",
        w: Vec::new(),
        r: Vec::new(),
        b: Vec::new(),
        projection: None,
        units: None,
    };
    let b = biases(cell, 0..4);
    // x that is whole numbers is found anew at each step.
    let projection = w_scale.is_none().then(|| projection(hidden_size, 4, &b, storage));
    let step = PackedLaunch { kernel, w, r, b, projection, units: Some(hidden_size) };
    // Of h, and of x: what 1 stands for, then a number for each element.
    let of_x = w_scale.as_ref().map_or(0, |_| input_size);
    let between_bytes = 4 * (1 + hidden_size + of_x);
    Some(PackedRecurrent::of_launches(vec![numbers, step], between_bytes, cell))
}

/// The whole numbers that the first `kept` elements of each row of a matrix are of the row's scale.
fn whole_numbers(w: &[f32], scales: &[f32], len: usize, kept: usize) -> Vec<f32> {
    let whole = |w: f32, scale: f32| if scale == 0.0 { 0.0 } else { (w / scale).round() };
    let rows = w.chunks_exact(len).zip(scales);
    rows.flat_map(|(row, &scale)| row[..kept].iter().map(move |&w| whole(w, scale))).collect()
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::RecurrentKind;

    use super::*;

    /// An LSTM of two units with x of two elements, the last of which is its scale.
    fn packed(has_w: bool) -> PackedRecurrent {
        let r_scale: Vec<f32> = vec![0.5, 0.0, 0.25, 1.0, 2.0, 4.0, 0.125, 8.0];
        let rows = |numbers: [f32; 2]| r_scale.iter().flat_map(move |s| numbers.map(|n| n * s));
        let r: Vec<f32> = rows([-255.0, 3.0]).collect();
        let w_scale = has_w.then(|| r_scale.clone().into());
        let bytes = Some(LstmBytes { r_scale: r_scale.clone().into(), w_scale });
        let cell = RecurrentCell {
            kind: RecurrentKind::Lstm { p: None, bytes },
            input_size: 2,
            hidden_size: 2,
            w: rows([7.0, 9.0]).collect(),
            r: r.into(),
            b: None,
            lookup: None,
        };
        PackedRecurrent::new(&cell, Storage::F32).unwrap()
    }

    fn numbers(bytes: &[u8]) -> Vec<i16> {
        bytes.chunks_exact(2).map(|of| i16::from_ne_bytes([of[0], of[1]])).collect()
    }

    #[test]
    fn weights_are_whole_numbers() {
        let packed = packed(true);
        let step = &packed.launches[1];
        // The scale of one row is 0.
        let of_input = |number: i16| [number, number, number, number, 0, number, number, number];
        assert_eq!(numbers(&step.r), [of_input(-255), of_input(3)].concat());
        assert_eq!(numbers(&step.w), of_input(7), "the last column counts as 0");
        let scale = [0.5, 0.25, 2.0, 0.125, 0.0, 1.0, 4.0, 8.0];
        assert_eq!(packed.r_scale.as_deref(), Some(&scale[..]));
        assert_eq!(packed.w_scale, packed.r_scale);
        assert_eq!(packed.between_bytes(), 4 * (1 + 2 + 1 + 1));
        assert_eq!(packed.launches[0].grid(17), [5, 1, 1]);
    }

    #[test]
    fn sums_that_may_overflow_have_no_kernel() {
        let bytes = LstmBytes { r_scale: [].into(), w_scale: None };
        let cell = RecurrentCell {
            kind: RecurrentKind::Lstm { p: None, bytes: Some(bytes) },
            input_size: 0,
            hidden_size: TERMS_MAX + 1,
            w: [].into(),
            r: [].into(),
            b: None,
            lookup: None,
        };
        assert!(PackedRecurrent::new(&cell, Storage::F32).is_none());
    }

    #[test]
    fn w_may_be_floats() {
        let packed = packed(false);
        assert_eq!(packed.launches[1].kernel, "lstm_of_bytes_step_f32");
        assert_eq!(packed.launches[1].projection.unwrap().kernel, "project_inputs_f32");
        assert_eq!(packed.launches[1].w.len(), 2 * 8 * 4);
        assert_eq!((packed.w_scale.as_ref(), packed.between_bytes()), (None, 4 * (1 + 2)));
    }
}
