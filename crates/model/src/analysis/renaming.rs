//! Symbolic dimensions that turned out to be equal, under one name everywhere.

use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Operand};
use crate::data::dim::{Dim, Factor};

impl Analysis {
    /// Axes that turned out to be equal under one name everywhere.
    pub(crate) fn rename_symbols(&mut self) {
        for (symbol, (min, max)) in std::mem::take(&mut self.limits) {
            self.limit_steps(symbol, min, max);
        }
        let Self {
            axes, inputs, ops, recurrents, outputs, checks, conditions, not_negative, ..
        } = self;
        let dims = |dims: &mut Vec<Dim>| {
            for factor in dims.iter_mut().flat_map(|dim| &mut dim.0) {
                if let Factor::Symbol(symbol) = factor {
                    *symbol = axes.find(*symbol);
                }
            }
        };
        let domain =
            |domain: &mut Domain| domain.time = domain.time.map(|symbol| axes.find(symbol));
        inputs.iter_mut().for_each(|input| dims(&mut input.dims));
        outputs.iter_mut().for_each(|(_, view)| dims(&mut view.dims));
        for recurrent in recurrents {
            recurrent.views_mut().for_each(|view| dims(&mut view.dims));
            domain(&mut recurrent.domain);
        }
        for (condition, _) in conditions {
            *condition = condition.renamed(&|symbol| axes.find(symbol));
        }
        for int in not_negative {
            *int = int.renamed(|symbol| axes.find(symbol));
        }
        for check in checks {
            for bound in [&mut check.low, &mut check.high] {
                *bound = bound.renamed(|symbol| axes.find(symbol));
            }
        }
        for op in ops {
            domain(&mut op.domain);
            op.tensor_dims.iter_mut().for_each(dims);
            for operand in &mut op.operands {
                match operand {
                    Operand::Tensor { dims: of, .. } => dims(of),
                    Operand::Length(symbol) => *symbol = axes.find(*symbol),
                    Operand::Lengths(ints) => {
                        for int in ints {
                            *int = int.renamed(|symbol| axes.find(symbol));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
