//! `DynamicQuantizeLSTM` as an `LSTM`: X as its whole numbers, and weights that stay bytes.

use std::rc::Rc;

use batchmaker_graph::LstmBytes;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::input;
use crate::analysis::operators::composed::composer::{Composer, ints, number};
use crate::analysis::operators::composed::quantised::dynamically_quantised;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::literal::Literal;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;

/// The `LSTM` that a `DynamicQuantizeLSTM` is.
pub(crate) struct QuantisedLstm {
    /// The inputs of the `LSTM`. Weights are FLOAT.
    pub(crate) inputs: Vec<Option<Val>>,
    /// The scales of each direction, if weights stay bytes. X and W are as [`LstmBytes`] has them, with an element more than the
    /// file's.
    pub(crate) bytes: Option<Vec<LstmBytes>>,
}

/// The weights of all directions, as FLOAT.
struct Weights {
    directions: usize,
    /// Elements of a row.
    inputs: usize,
    /// `[directions, 4 * hidden_size, inputs]`.
    data: Vec<f32>,
    /// The scales of rows, `[directions, 4 * hidden_size]`.
    scales: Vec<Vec<f32>>,
}

/// The `LSTM` that a `DynamicQuantizeLSTM` (of `com.microsoft`) is. Its W and R are `[directions, input_size or hidden_size,
/// 4 * hidden_size]`. `keeps_bytes` says whether a kernel for bytes may do its steps.
pub(crate) fn quantised_lstm(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    keeps_bytes: bool,
) -> Result<QuantisedLstm, String> {
    let mut w = Weights::of(analysis, inputs, [1, 8, 9])?;
    let mut r = Weights::of(analysis, inputs, [2, 10, 11])?;
    let [x, scale, zero_point] = dynamically_quantised(analysis, node, input(inputs, 0)?)?;
    let mut to = Composer { analysis, node };
    let (x, zero_point) = (to.as_float(&x)?, to.as_float(&zero_point)?);
    let whole = to.op("Sub", &[&x, &zero_point])?;
    let (x, bytes) = match keeps_bytes {
        true => {
            w.add_column();
            let scales =
                std::mem::take(&mut r.scales).into_iter().zip(std::mem::take(&mut w.scales));
            let bytes = scales.map(|(r_scale, w_scale)| LstmBytes {
                r_scale: r_scale.into(),
                w_scale: Some(w_scale.into()),
            });
            (to.with_scale(&whole, &scale)?, Some(bytes.collect()))
        }
        false => (to.op("Mul", &[&whole, &scale])?, None),
    };
    let given = |at: usize| inputs.get(at).cloned().flatten();
    let mut inputs: Vec<Option<Val>> = (0..8).map(given).collect();
    inputs[..3].clone_from_slice(&[Some(x), Some(w.into_val()), Some(r.into_val())]);
    Ok(QuantisedLstm { inputs, bytes })
}

impl Composer<'_> {
    /// Rows of whole numbers, and behind each the value that 1 stands for.
    fn with_scale(&mut self, whole: &Val, scale: &Val) -> Result<Val, String> {
        let last = ints([whole.dims().len() as i64 - 1]);
        let first = self.op("Slice", &[whole, &ints([0]), &ints([1]), &last])?;
        let zeros = self.op("Mul", &[&first, &number(0.0)])?;
        let scales = self.op("Add", &[&zeros, scale])?;
        self.op_with("Concat", vec![int_attribute("axis", -1)], &[whole, &scales])
    }
}

impl Weights {
    /// Reads weights, their scales and their zero points, which are at these places among the inputs.
    fn of(analysis: &mut Analysis, inputs: &Inputs, places: [usize; 3]) -> Result<Self, String> {
        let Val::Literal(weights) = input(inputs, places[0])? else {
            return Err("its weights are not constant".to_owned());
        };
        analysis.afford(weights.shape())?;
        let numbers = |at: usize| match inputs.get(at).and_then(Option::as_ref) {
            Some(Val::Literal(literal)) => {
                literal.as_whole().map(|array| array.data.clone()).ok_or("no scale")
            }
            None => Ok(vec![0.0]),
            Some(_) => Err("its scales are not constant"),
        };
        let (scales, zero_points) = (numbers(places[1])?, numbers(places[2])?);
        let whole = weights.as_whole().ok_or("its weights are not INT8 or UINT8")?;
        let &[directions, rows, columns] = &whole.shape[..] else {
            return Err(format!("W of {:?}", whole.shape));
        };
        // One scale a direction, or one a column of each.
        let of = |values: &[f32], direction: usize, column: usize| match values.len() {
            1 => Some(values[0]),
            n if n == directions => Some(values[direction]),
            n if n == directions * columns => Some(values[direction * columns + column]),
            _ => None,
        };
        let mut data = Vec::with_capacity(whole.data.len());
        let mut scales_of_directions = Vec::new();
        for direction in 0..directions {
            let mut of_columns = Vec::with_capacity(columns);
            for column in 0..columns {
                let scale = of(&scales, direction, column).ok_or("its scales do not fit")?;
                let zero = of(&zero_points, direction, column).ok_or("its zero points")?;
                let first = direction * rows * columns + column;
                let elements = whole.data[first..].iter().step_by(columns).take(rows);
                data.extend(elements.map(|&q| (q - zero) * scale));
                of_columns.push(scale);
            }
            scales_of_directions.push(of_columns);
        }
        Ok(Self { directions, inputs: rows, data, scales: scales_of_directions })
    }

    /// Adds an element to each row, which is 0.
    fn add_column(&mut self) {
        let rows = self.data.chunks(self.inputs.max(1));
        self.data = rows.flat_map(|row| row.iter().copied().chain([0.0])).collect();
        self.inputs += 1;
    }

    fn into_val(self) -> Val {
        let rows = self.data.len() / (self.directions * self.inputs).max(1);
        let shape = vec![self.directions, rows, self.inputs];
        Val::Literal(Rc::new(Literal::F32(Array::new(shape, self.data))))
    }
}
