//! References between operators, recurrent operators and outputs.

use batchmaker_graph::{ElementType, RowSpec};

use crate::analysis::recurrence::Recurrent;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RecurrentPort, Source, ValueRef, View};
use crate::data::dim::{Dim, row_shape};

impl Analysis {
    /// Step `at` of a view that has dimension `axis` as time; the dimension becomes 1.
    pub(crate) fn select_time(&self, view: &View, axis: usize, at: i64) -> View {
        let mut view = view.clone();
        let own = self.domain(view.source).time.map(|symbol| self.axes.find(symbol));
        let along = view.dims[axis].as_symbol().map(|symbol| self.axes.find(symbol));
        view.dims[axis] = Dim::fixed(1);
        if view.at.is_some() || own != along {
            // The same at all steps of that axis.
            return view;
        }
        match view.source {
            Source::Recurrent(index, RecurrentPort::Every(port))
                if self.recurrents[index].last_step(port) == Some(at) =>
            {
                view.source = Source::Recurrent(index, RecurrentPort::Last(port));
            }
            source if self.domain(source).time.is_some() => view.at = Some(at),
            _ => {}
        }
        view
    }

    /// The value that reading `source` at step `at` refers to.
    pub(crate) fn resolve(&self, source: Source, at: Option<i64>) -> ValueRef {
        let at = at.filter(|_| self.domain(source).time.is_some());
        match (source, at) {
            (Source::Recurrent(index, RecurrentPort::Every(port)), Some(at))
                if self.recurrents[index].last_step(port) == Some(at) =>
            {
                ValueRef { source: Source::Recurrent(index, RecurrentPort::Last(port)), at: None }
            }
            _ => ValueRef { source, at },
        }
    }

    /// The value that instance `at` of an op reads for an operand.
    pub(crate) fn reads(&self, operand: &Operand, at: Option<i64>) -> Option<ValueRef> {
        match operand {
            Operand::Rows { source, at: own, .. } => Some(self.resolve(*source, own.or(at))),
            Operand::Tensor { source, at: own, .. } => Some(self.resolve(*source, *own)),
            Operand::Length(symbol) => {
                Some(ValueRef { source: Source::Length(self.axes.base(*symbol)), at: None })
            }
            _ => None,
        }
    }
}

/// The number of operands, states and outputs that read a source.
pub(crate) fn uses(analysis: &Analysis, source: Source) -> usize {
    let operands = analysis.ops.iter().flat_map(|op| &op.operands);
    let by_ops = operands
        .filter(|operand| match operand {
            Operand::Rows { source: read, .. } | Operand::Tensor { source: read, .. } => {
                *read == source
            }
            _ => false,
        })
        .count();
    let views = analysis.recurrents.iter().flat_map(Recurrent::views);
    let outputs = analysis.outputs.iter().map(|(_, view)| view);
    by_ops + views.chain(outputs).filter(|view| view.source == source).count()
}

/// The type and number of elements of a row of `source`, flat.
pub(crate) fn row_of(analysis: &Analysis, source: Source) -> RowSpec {
    match source {
        Source::Input(index) => {
            let input = &analysis.inputs[index];
            RowSpec::flat(
                input.element,
                row_shape(&input.dims).into_iter().fold(1, usize::saturating_mul),
            )
        }
        Source::Length(_) => RowSpec::flat(ElementType::I64, 1),
        Source::Recurrent(index, port) => analysis.recurrents[index].row(port),
        Source::Op(index, port) => {
            let spec = &analysis.ops[index].outputs[port];
            RowSpec::flat(spec.element, spec.elements())
        }
    }
}

/// For each op, whether `sources` depend on it.
pub(crate) fn needed(analysis: &Analysis, sources: impl Iterator<Item = Source>) -> Vec<bool> {
    let mut needed = vec![false; analysis.ops.len()];
    let mut open: Vec<Source> = sources.collect();
    while let Some(source) = open.pop() {
        let Source::Op(op, _) = source else { continue };
        if !std::mem::replace(&mut needed[op], true) {
            let operands = analysis.ops[op].operands.iter();
            open.extend(operands.filter_map(|o| Some(analysis.reads(o, None)?.source)));
        }
    }
    needed
}
