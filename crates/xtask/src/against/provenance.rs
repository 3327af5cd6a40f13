//! The distance that an output may have between two builds: it follows from the kernels and programs that compute
//! it in the cell graph of the request.

use std::collections::HashMap;

use batchmaker_graph::{
    Cell, CellBody, CellGraph, CellRegistry, CellTypeId, CompositeCell, OperationBody, Precision,
    Program, Unfolded, ValueIndex,
};
use batchmaker_model::Model;
use rten_onnx::onnx::ModelProto;

use super::difference::Claim;

/// Operators that compute nothing: what passes them keeps its bits.
const MOVING: [&str; 18] = [
    "Cast",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Reshape",
    "Shape",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// The work of a cell on the values that pass through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A program that only moves elements.
    Moving,
    /// A program.
    General,
    /// A fused kernel over weights in f32.
    Fused,
    /// A fused kernel that rounds its inputs.
    Rounding,
    /// A program that rounds some of what it computes.
    GeneralRounding,
}

/// The cells of a model, by what they do.
#[derive(Debug, Default)]
pub(crate) struct Cells(HashMap<CellTypeId, Cell>);

impl Kind {
    fn of_program(program: &Program, precision: Precision) -> Self {
        if program.has_products && precision != Precision::F32 {
            return Self::GeneralRounding;
        }
        let moves = ModelProto::parse_buf(&program.bytes).ok().and_then(|model| {
            let nodes = model.graph?.node;
            let is_moving = |name: Option<&str>| name.is_some_and(|name| MOVING.contains(&name));
            Some(nodes.iter().all(|node| is_moving(node.op_type.as_deref())))
        });
        if moves == Some(true) { Self::Moving } else { Self::General }
    }

    fn of_kernel(precision: Precision) -> Self {
        if precision == Precision::F32 { Self::Fused } else { Self::Rounding }
    }

    /// The claim for its outputs, if `before` is the weakest claim for its inputs.
    fn after(self, before: Claim) -> Claim {
        match (self, before) {
            (Self::Moving | Self::Fused, _) | (Self::Rounding, Claim::Bits) => before,
            (Self::Rounding | Self::GeneralRounding, _) => Claim::Rounded,
            (Self::General, _) => before.max(Claim::Close),
        }
    }
}

impl Cells {
    /// The cells of a model that was loaded into `registry`.
    pub(crate) fn of(model: &Model, registry: &CellRegistry) -> Self {
        let cell = |of: CellTypeId| (of, Cell::clone(&registry.get(of).cell));
        Self(model.cells.iter().map(|model_cell| cell(model_cell.cell_type)).collect())
    }

    /// Whether any of them has a precision to choose.
    pub(crate) fn have_precisions(&self) -> bool {
        self.0.values().any(Cell::has_precisions)
    }

    /// The claim for each output of a request, by name.
    pub(crate) fn claims(&self, unfolded: &Unfolded) -> HashMap<String, Claim> {
        let values = self.claims_of_values(&unfolded.graph);
        let claim = |value| values.get(&value).copied().unwrap_or(Claim::Bits);
        let outputs = unfolded.outputs.iter();
        outputs.map(|output| (output.name.clone(), claim(output.value))).collect()
    }

    /// The claims for the values that cells write.
    fn claims_of_values(&self, graph: &CellGraph) -> HashMap<ValueIndex, Claim> {
        let mut values: HashMap<ValueIndex, Claim> = HashMap::new();
        // Producers come before consumers.
        for run in graph.runs() {
            let claim = |value| values.get(&value).copied().unwrap_or(Claim::Bits);
            let inputs = run.inputs.iter().map(|rows| claim(rows.value)).collect();
            let first = |rows: &Option<_>| {
                rows.as_ref().map_or(Claim::Bits, |rows: &batchmaker_graph::Rows| claim(rows.value))
            };
            let states = run.initial.iter().map(first).collect();
            let ports = ports(&self.0[&run.cell_type], inputs, states);
            for sink in &run.sinks {
                let value = values.entry(sink.rows.value).or_insert(Claim::Bits);
                *value = (*value).max(ports[sink.port]);
            }
        }
        values
    }
}

/// The claims for a cell's output ports, from the claims for its inputs and first states.
fn ports(cell: &Cell, inputs: Vec<Claim>, states: Vec<Claim>) -> Vec<Claim> {
    let all = |kind: Kind| {
        let before = inputs.iter().chain(&states).copied().max().unwrap_or(Claim::Bits);
        vec![kind.after(before); cell.outputs.len()]
    };
    match &cell.body {
        CellBody::Recurrent(_) | CellBody::Tree(_) => all(Kind::of_kernel(cell.precision)),
        CellBody::Program(program) => all(Kind::of_program(program, cell.precision)),
        CellBody::Sequence(sequence) => all(Kind::of_program(&sequence.program, cell.precision)),
        CellBody::Composite(composite) => of_operations(composite, cell.precision, inputs, states),
    }
}

/// Operation by operation, and step by step until nothing more changes.
fn of_operations(
    cell: &CompositeCell,
    precision: Precision,
    inputs: Vec<Claim>,
    states: Vec<Claim>,
) -> Vec<Claim> {
    let (first_state, count) = (inputs.len(), states.len());
    let mut registers = [inputs, states].concat();
    registers.resize(cell.registers.len(), Claim::Bits);
    loop {
        let before = registers.clone();
        for operation in &cell.operations {
            let kind = match &operation.body {
                OperationBody::Program(program) => Kind::of_program(program, precision),
                OperationBody::Step(_) | OperationBody::LinearArgMax(_) => {
                    Kind::of_kernel(precision)
                }
            };
            let read = operation.reads.iter().flatten().map(|&register| registers[register]).max();
            let written = kind.after(read.unwrap_or(Claim::Bits));
            for &register in &operation.writes {
                registers[register] = registers[register].max(written);
            }
        }
        // The first outputs are the states of the next step.
        for (state, &output) in cell.outputs.iter().enumerate().take(count) {
            let state = first_state + state;
            registers[state] = registers[state].max(registers[output]);
        }
        if registers == before {
            return cell.outputs.iter().map(|&register| registers[register]).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use batchmaker_graph::{ModelId, NamedTensor, Tensor, TensorData};
    use batchmaker_model::{LoadOptions, PerCell};

    use super::*;
    use Claim::{Bits, Close, Rounded};

    /// The claims of the replies of a committed model, to a request of three ids or rows.
    fn claims(model: &str, input: &str, data: TensorData, precision: Precision) -> Vec<Claim> {
        let options = LoadOptions {
            precision: PerCell { all: Some(precision), ..PerCell::default() },
            ..LoadOptions::new(ModelId(0))
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(model);
        let mut registry = CellRegistry::default();
        let model = batchmaker_model::load(&path, &options, &mut registry).unwrap();
        let shape = model.inputs[0].shape.iter().map(|&size| match size {
            -1 if input == "text" => 1,
            -1 => 3,
            size => size as usize,
        });
        let tensor = Tensor::new(shape.collect(), data);
        let request = vec![NamedTensor { name: input.to_owned(), tensor }];
        let (unfolded, _) = model.unfold(request, &Default::default(), &[]).unwrap();
        let claims = Cells::of(&model, &registry).claims(&unfolded);
        unfolded.outputs.iter().map(|output| claims[&output.name]).collect()
    }

    #[test]
    fn kinds_pass_on_what_they_may() {
        assert_eq!([Kind::Moving, Kind::Fused, Kind::Rounding].map(|of| of.after(Bits)), [Bits; 3]);
        assert_eq!(Kind::General.after(Bits), Close);
        assert_eq!(
            [Kind::Moving, Kind::Fused, Kind::General].map(|of| of.after(Close)),
            [Close; 3]
        );
        assert_eq!(Kind::Rounding.after(Close), Rounded);
        assert_eq!(Kind::General.after(Rounded), Rounded);
        assert_eq!(Kind::GeneralRounding.after(Bits), Rounded);
    }

    #[test]
    fn states_keep_their_bits_and_heads_do_not() {
        let ids = || TensorData::I64(vec![1; 9]);
        let tagger = "crates/model/tests/vectors/tagger.onnx";
        assert_eq!(claims(tagger, "ids", ids(), Precision::F32), [Close]);
        let text = TensorData::Bytes(vec![b"word".to_vec()]);
        // An encoder, and a decoder whose arg-max is a fused kernel: nothing else computes.
        for precision in [Precision::F32, Precision::Bf16] {
            assert_eq!(claims("models/g2p", "text", text.clone(), precision), [Bits]);
        }
        assert_eq!(claims("models/langid", "text", text, Precision::Bf16), [Rounded, Rounded]);
    }
}
