//! Symbolic dimensions that turned out to be equal, under one name everywhere.

use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Operand};
use crate::data::symbolic::{Dim, Factor};

impl Analysis {
    /// Axes that turned out to be equal under one name everywhere.
    pub(crate) fn rename_atoms(&mut self) {
        for (atom, (min, max)) in std::mem::take(&mut self.limits) {
            self.limit_steps(atom, min, max);
        }
        let Self { axes, inputs, ops, recurrents, outputs, .. } = self;
        let dims = |dims: &mut Vec<Dim>| {
            for factor in dims.iter_mut().flat_map(|dim| &mut dim.0) {
                if let Factor::Atom(atom) = factor {
                    *atom = axes.find(*atom);
                }
            }
        };
        let domain = |domain: &mut Domain| domain.time = domain.time.map(|atom| axes.find(atom));
        inputs.iter_mut().for_each(|input| dims(&mut input.dims));
        outputs.iter_mut().for_each(|(_, view)| dims(&mut view.dims));
        for recurrent in recurrents {
            recurrent.views_mut().for_each(|view| dims(&mut view.dims));
            domain(&mut recurrent.domain);
        }
        for op in ops {
            domain(&mut op.domain);
            op.whole.iter_mut().for_each(dims);
            for operand in &mut op.operands {
                match operand {
                    Operand::Whole { dims: of, .. } => dims(of),
                    Operand::Length(atom) => *atom = axes.find(*atom),
                    Operand::Lengths(ints) => {
                        for int in ints {
                            *int = int.renamed(|atom| axes.find(atom));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
