//! Changes to an ONNX file before it is analysed: inputs bound to constants, and the batch brought to the
//! front.

use std::collections::BTreeMap;

use batchmaker_graph::{ElementType, Tensor, TensorData};

use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::node::Node;
use crate::file::onnx_file::{DeclaredDimension, GraphInput, OnnxFile};

/// Changes to an ONNX file.
#[derive(Clone, Debug, Default)]
pub struct Amendments {
    /// Inputs that are constants: of the input's shape, or one number for all of it. Where the file leaves an axis
    /// of the input open, one number has length 1 along it.
    pub fixed: BTreeMap<String, Tensor>,
    /// Inputs and outputs whose batch is another axis than 0. Outside of the file it is
    /// axis 0, with the others after it in their order.
    pub batch_axis: BTreeMap<String, usize>,
    /// Inputs whose shape the file leaves open: their axes, the batch left out, in the file's order.
    pub rows: BTreeMap<String, Vec<usize>>,
}

impl OnnxFile {
    /// Applies the changes to inputs and outputs that the file has.
    ///
    /// # Errors
    /// If a change does not fit them.
    pub(crate) fn amend(&mut self, amendments: &Amendments) -> Result<(), String> {
        for (name, tensor) in &amendments.fixed {
            let Some(at) = self.inputs.iter().position(|input| input.name == *name) else {
                continue;
            };
            let literal =
                constant(&self.inputs[at], tensor).map_err(|e| format!("fixed `{name}`: {e}"))?;
            self.inputs.remove(at);
            self.initializers.insert(name.clone(), Ok(literal));
        }
        for (name, row) in &amendments.rows {
            let axis = amendments.batch_axis.get(name).copied().unwrap_or(0);
            self.set_row(name, axis, row).map_err(|reason| format!("row of `{name}`: {reason}"))?;
        }
        for (name, &axis) in &amendments.batch_axis {
            self.bring_to_front(name, axis)
                .map_err(|reason| format!("batch_axis of `{name}`: {reason}"))?;
        }
        Ok(())
    }

    /// Whether the file has an input of that name.
    pub(crate) fn has_input(&self, name: &str) -> bool {
        self.inputs.iter().any(|input| input.name == name)
    }

    fn set_row(&mut self, name: &str, batch_axis: usize, row: &[usize]) -> Result<(), String> {
        let input = self.inputs.iter_mut().find(|input| input.name == name);
        let input = input.ok_or("there is no such input")?;
        let shape = input.shape.as_mut().ok_or("the file does not declare its rank")?;
        check_axis(batch_axis, shape.len())?;
        let axes = (0..shape.len()).filter(|&axis| axis != batch_axis);
        if shape.len() != row.len() + 1 {
            return Err(format!(
                "it has {} axes beside the batch, not {}",
                shape.len() - 1,
                row.len()
            ));
        }
        for (axis, &length) in axes.zip(row) {
            match shape[axis] {
                DeclaredDimension::Static(declared) if declared != length => {
                    return Err(format!("axis {axis} is {declared} in the file, not {length}"));
                }
                _ => shape[axis] = DeclaredDimension::Static(length),
            }
        }
        Ok(())
    }

    fn bring_to_front(&mut self, name: &str, axis: usize) -> Result<(), String> {
        let input = self.inputs.iter_mut().find(|input| input.name == name);
        let output = self.outputs.iter().position(|output| output == name);
        if input.is_none() && output.is_none() {
            return Err("there is no such input or output".to_owned());
        }
        let label = format!("batch_axis of {name}");
        // A name that no file can give: names of values are not empty, nor do they hold this.
        let elsewhere = format!("{name}\u{0}{axis}");
        // An input that is an output as it is has the batch in front once.
        let output = output.filter(|_| input.is_none());
        if let Some(input) = input {
            let shape = input.shape.as_mut().ok_or("the file does not declare its rank")?;
            check_axis(axis, shape.len())?;
            let rank = shape.len();
            let batch = shape.remove(axis);
            shape.insert(0, batch);
            let values = self.nodes.iter_mut().flat_map(Node::names_mut);
            values.filter(|value| *value == name).for_each(|value| value.clone_from(&elsewhere));
            // The batch goes from the front to where the file has it.
            let mut permutation: Vec<usize> = (1..rank).collect();
            permutation.insert(axis, 0);
            self.nodes.insert(0, Node::transpose(label.clone(), name, &elsewhere, &permutation));
        }
        if let Some(output) = output {
            let rank = self.output_ranks[output].ok_or("the file does not declare its rank")?;
            check_axis(axis, rank)?;
            let values = self.nodes.iter_mut().flat_map(Node::names_mut);
            values.filter(|value| *value == name).for_each(|value| value.clone_from(&elsewhere));
            let mut permutation: Vec<usize> = (0..rank).filter(|&at| at != axis).collect();
            permutation.insert(0, axis);
            self.nodes.push(Node::transpose(label, &elsewhere, name, &permutation));
        }
        Ok(())
    }
}

fn check_axis(axis: usize, rank: usize) -> Result<(), String> {
    match axis < rank {
        true => Ok(()),
        false => Err(format!("there is no axis {axis}: its rank is {rank}")),
    }
}

/// The constant that takes an input's place.
fn constant(input: &GraphInput, tensor: &Tensor) -> Result<Literal, String> {
    let element = input.element.clone()?;
    let declared = input.shape.as_ref().ok_or("the file does not declare its rank")?;
    let fits = |shape: &[usize]| {
        let pairs = shape.iter().zip(declared);
        let is_like = |(&n, of): (&usize, &DeclaredDimension)| match of {
            DeclaredDimension::Static(of) => n == *of,
            DeclaredDimension::Named(_) | DeclaredDimension::Unnamed => true,
        };
        shape.len() == declared.len() && pairs.into_iter().all(is_like)
    };
    let with_open_as_one = || {
        declared.iter().map(|of| match of {
            DeclaredDimension::Static(n) => *n,
            DeclaredDimension::Named(_) | DeclaredDimension::Unnamed => 1,
        })
    };
    let shape: Vec<usize> = match tensor.shape() {
        shape if fits(shape) => shape.to_vec(),
        [] => with_open_as_one().collect(),
        got => {
            let show = |of: &DeclaredDimension| match of {
                DeclaredDimension::Static(n) => n.to_string(),
                DeclaredDimension::Named(name) => name.clone(),
                DeclaredDimension::Unnamed => "?".to_owned(),
            };
            let declared: Vec<String> = declared.iter().map(show).collect();
            let declared = declared.join(", ");
            return Err(format!("expected shape [{declared}] or one number, got {got:?}"));
        }
    };
    let count: usize = shape.iter().product();
    let misfit = || format!("the input is {element}, the value is {}", tensor.data().element());
    Ok(match (element, tensor.data()) {
        (ElementType::Bool, TensorData::Bool(data)) => {
            Literal::Bool(Array::new(shape, all(data, count)))
        }
        (ElementType::F32, TensorData::F32(data)) => {
            Literal::F32(Array::new(shape, all(data, count)))
        }
        (ElementType::F32, TensorData::I64(data)) => {
            let data: Vec<f32> = data.iter().map(|&x| x as f32).collect();
            Literal::F32(Array::new(shape, all(&data, count)))
        }
        (ElementType::I64 | ElementType::I32, TensorData::I64(data)) => {
            let is_wide = |x: &&i64| element == ElementType::I32 && i32::try_from(**x).is_err();
            if let Some(wide) = data.iter().find(is_wide) {
                return Err(format!("{wide} does not fit INT32"));
            }
            let data: Vec<Int> = data.iter().map(|&x| Int::number(x)).collect();
            Literal::Int(Array::new(shape, all(&data, count)), element)
        }
        _ => return Err(misfit()),
    })
}

/// `count` elements: those of `data`, or its only one repeated.
fn all<T: Clone>(data: &[T], count: usize) -> Vec<T> {
    if data.len() == count { data.to_vec() } else { vec![data[0].clone(); count] }
}
