//! Ports of a program and the shapes of their tensors.

use batchmaker_graph::{ElementType, PortAxes, RowSpec};
use rten_onnx::onnx::ValueInfoProto;

/// An input or output port: `[count, steps, ...row]`, as far as it has these axes, where `count` is the number
/// of rows or sequences in the batch.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) row: RowSpec,
    pub(crate) axes: PortAxes,
    /// The input ports whose values' product is the number of steps, where several axes vary; else none.
    pub(crate) factors: Vec<usize>,
}

impl Port {
    /// Ports of a program over rows.
    pub(crate) fn of_rows(rows: &[RowSpec]) -> Vec<Self> {
        let axes = PortAxes { batch: true, steps: false };
        rows.iter().map(|row| Self { row: row.clone(), axes, factors: Vec::new() }).collect()
    }

    /// Ports of a program over sequences.
    pub(crate) fn of_sequences(rows: &[RowSpec], axes: &[PortAxes]) -> Vec<Self> {
        let port = |(row, &axes): (&RowSpec, &PortAxes)| {
            let (row, factors) = (row.clone(), Vec::new());
            Self { row, axes, factors }
        };
        rows.iter().zip(axes).map(port).collect()
    }

    /// Reads from a program's file which ports have several axes that vary: the name of the axis of steps of such a
    /// port is `inA*inB`, the input ports that hold the axes' lengths.
    pub(crate) fn read_factors(ports: &mut [Self], values: &[ValueInfoProto]) {
        for (port, info) in ports.iter_mut().zip(values) {
            let tensor = info.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref());
            let dims = tensor.and_then(|tensor| tensor.shape.as_ref()).map(|shape| &shape.dim[..]);
            let steps = dims.unwrap_or(&[]).get(usize::from(port.axes.batch));
            let name = steps.and_then(|dim| dim.dim_param.as_deref()).filter(|_| port.axes.steps);
            let number = |factor: &str| factor.strip_prefix("in")?.parse().ok();
            let factors = name.and_then(|name| name.split('*').map(number).collect());
            port.factors = factors.unwrap_or_default();
        }
    }

    /// The shape of `count` rows or sequences, each of `span` steps.
    pub(crate) fn shape(&self, count: usize, span: usize) -> Vec<usize> {
        let mut shape = Vec::new();
        shape.extend(self.axes.batch.then_some(count));
        shape.extend(self.axes.steps.then_some(span));
        shape.extend(&self.row.shape);
        shape
    }

    /// Whether the port holds one integer for all sequences: perhaps the number of steps of a tensor.
    pub(crate) fn is_count(&self) -> bool {
        let is_integer = matches!(self.row.element, ElementType::I32 | ElementType::I64);
        is_integer && !self.axes.batch && !self.axes.steps && self.row.elements() == 1
    }

    /// Bytes of the tensors of `count` rows or sequences, each of `span` steps.
    pub(crate) fn bytes(&self, count: u64, span: u32) -> u64 {
        let row = self.row.bytes().unwrap_or(usize::MAX) as u64;
        let count = if self.axes.batch { count } else { 1 };
        let span = if self.axes.steps { u64::from(span) } else { 1 };
        row.saturating_mul(count).saturating_mul(span)
    }
}
