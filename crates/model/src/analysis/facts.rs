//! Facts about dimensions and sources.

use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Source, Val};
use crate::data::dim::{Dim, Factor, steps};
use crate::data::symbol::{BATCH, Symbol};

impl Analysis {
    /// The length of a dimension, if it is the same in all requests and lies within a row.
    pub(crate) fn fixed(&self, dim: &Dim) -> Option<usize> {
        let mut lengths = dim.0.iter().map(|factor| match factor {
            Factor::Fixed(n) => Some(*n),
            Factor::Symbol(symbol) => match self.axes.find(*symbol) {
                BATCH => None,
                _ if self.has_roles() || self.axes.is_time(*symbol) => None,
                symbol => self.axes.length(symbol),
            },
        });
        lengths.try_fold(1_usize, |product, length| product.checked_mul(length?))
    }

    /// While roles are being found, learns a length that weights decide.
    pub(crate) fn learn(&mut self, dim: &Dim, length: usize) {
        if let Some(symbol) = dim.as_symbol().filter(|_| !self.has_roles()) {
            self.axes.learn(symbol, length);
        }
    }

    /// As [`Self::fixed`]; the error names the operation, `what`, that needs the length.
    pub(crate) fn need_fixed(&self, dim: &Dim, what: &str) -> Result<usize, String> {
        self.fixed(dim).ok_or_else(|| {
            let name = self.axes.show(std::slice::from_ref(dim));
            let name = name.trim_matches(['[', ']']);
            format!("it {what} the axis of {name}: its rows interact")
        })
    }

    /// Whether the batch and steps are at most an axis each.
    pub(crate) fn has_axes_once(&self, val: &Val) -> bool {
        let Val::View(view) = val else { return true };
        let symbols = view.dims.iter().flat_map(Dim::symbols);
        let batch = symbols.filter(|&symbol| symbol == BATCH).count();
        !self.has_roles() || (batch <= 1 && steps(&view.dims).len() <= 1)
    }

    pub(crate) fn recurrence_depth(&self, source: Source) -> usize {
        match source {
            Source::Input(_) | Source::Length(_) => 0,
            Source::Recurrent(index, _) => self.recurrents[index].recurrence_depth + 1,
            Source::Op(index, _) => self.ops[index].recurrence_depth,
        }
    }

    /// The axes that rows of a tensor run along.
    pub(crate) fn domain_of(&self, dims: &[Dim]) -> Domain {
        Domain { time: self.axes.steps_of(dims), ..Domain::of(dims) }
    }

    /// Makes known the product of the axes of steps of a tensor, where they are several.
    pub(crate) fn join_steps(&mut self, dims: &[Dim]) {
        let several = steps(dims);
        if several.len() > 1 && self.has_roles() {
            self.axes.product(&several);
        }
    }

    /// The number of steps along an axis, or along all axes that it is the product of, if the file fixes it.
    pub(crate) fn fixed_length(&self, time: Symbol) -> Option<usize> {
        let mut lengths =
            self.axes.factors(time).into_iter().map(|factor| self.axes.length(factor));
        lengths.try_fold(1, |product: usize, length| product.checked_mul(length?))
    }

    /// Whether every sequence has step `at` (below 0: from the end), by the length that the file fixes.
    pub(crate) fn has_step(&self, time: Symbol, at: i64) -> bool {
        let length = self.fixed_length(time).map_or(0, |length| length as i64);
        (-length..length).contains(&at)
    }

    /// The axes that rows of a source run along.
    pub(crate) fn domain(&self, source: Source) -> Domain {
        match source {
            Source::Input(index) => self.domain_of(&self.inputs[index].dims),
            Source::Length(_) => Domain::default(),
            // Outputs of an operator on whole tensors may have axes of their own.
            Source::Op(index, port) => match self.ops[index].tensor_dims.get(port) {
                Some(dims) => self.domain_of(dims),
                None => self.ops[index].domain,
            },
            Source::Recurrent(index, port) => {
                let domain = self.recurrents[index].domain;
                Domain { time: domain.time.filter(|_| port.is_every()), ..domain }
            }
        }
    }
}
