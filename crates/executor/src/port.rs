//! Ports of a program and the shapes of their tensors.

use batchmaker_graph::{ElementType, PortAxes, RowSpec};
use rten_onnx::onnx::ValueInfoProto;

/// An input or output port: `[count, steps, ...row]`, as far as it has these axes, where `count` is the number
/// of rows or sequences in the batch.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) row: RowSpec,
    pub(crate) axes: PortAxes,
    /// The lengths whose product is the number of steps, where several axes vary; else none.
    pub(crate) factors: Vec<Factor>,
}

/// The length of one of several axes that are one axis of steps: `floor((multiple * value + extra) / stride) + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Factor {
    /// The input port that holds the value.
    pub(crate) port: usize,
    multiple: i64,
    extra: i64,
    stride: i64,
}

impl Factor {
    /// Reads `inA`, or `inA:multiple:extra:stride`.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let port = parts.next()?.strip_prefix("in")?.parse().ok()?;
        let numbers: Vec<i64> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
        match numbers[..] {
            [] => Some(Self { port, multiple: 1, extra: -1, stride: 1 }),
            [multiple, extra, stride] if multiple > 0 && stride > 0 => {
                Some(Self { port, multiple, extra, stride })
            }
            _ => None,
        }
    }

    /// The length where the port holds `value`.
    pub(crate) fn length(self, value: usize) -> usize {
        // An axis that lacks elements for its first window has one.
        let count = (self.multiple * value as i64 + self.extra) / self.stride + 1;
        usize::try_from(count).unwrap_or(0)
    }

    /// The least value, or one a little above it, where the length is as large.
    pub(crate) fn value(self, length: f64) -> f64 {
        let [multiple, extra, stride] = [self.multiple, self.extra, self.stride].map(|n| n as f64);
        ((length * stride - extra) / multiple).ceil().max(1.0)
    }
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
    /// port is `inA*inB`, the input ports that hold the axes' lengths, each perhaps with windows.
    pub(crate) fn read_factors(ports: &mut [Self], values: &[ValueInfoProto]) {
        for (port, info) in ports.iter_mut().zip(values) {
            let tensor = info.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref());
            let dims = tensor.and_then(|tensor| tensor.shape.as_ref()).map(|shape| &shape.dim[..]);
            let steps = dims.unwrap_or(&[]).get(usize::from(port.axes.batch));
            let name = steps.and_then(|dim| dim.dim_param.as_deref()).filter(|_| port.axes.steps);
            let factors = name.and_then(|name| name.split('*').map(Factor::read).collect());
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
