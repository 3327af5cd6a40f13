//! Dimensions: ordered products of fixed numbers and symbolic dimensions.

use crate::data::symbol::{BATCH, Symbol};

/// One factor of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Factor {
    Fixed(usize),
    Symbol(Symbol),
}

/// A dimension: the product of its factors, the first varying slowest. No factor: 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dim(pub(crate) Vec<Factor>);

impl Dim {
    pub(crate) fn fixed(n: usize) -> Self {
        Self(if n == 1 { Vec::new() } else { vec![Factor::Fixed(n)] })
    }

    pub(crate) fn symbol(symbol: Symbol) -> Self {
        Self(vec![Factor::Symbol(symbol)])
    }

    pub(crate) fn is_one(&self) -> bool {
        self.0.is_empty()
    }

    /// The symbol that the dimension consists of, if it consists of one symbol alone.
    pub(crate) fn as_symbol(&self) -> Option<Symbol> {
        match self.0[..] {
            [Factor::Symbol(symbol)] => Some(symbol),
            _ => None,
        }
    }

    pub(crate) fn symbols(&self) -> impl Iterator<Item = Symbol> + '_ {
        self.0.iter().filter_map(|factor| match factor {
            Factor::Symbol(symbol) => Some(*symbol),
            Factor::Fixed(_) => None,
        })
    }

    /// The product of the fixed factors; the largest number if it is larger.
    pub(crate) fn fixed_part(&self) -> usize {
        let fixed = self.0.iter().map(|factor| match factor {
            Factor::Fixed(n) => *n,
            Factor::Symbol(_) => 1,
        });
        fixed.fold(1, usize::saturating_mul)
    }

    /// One dimension in the place of several that follow each other.
    pub(crate) fn joined(dims: &[Self]) -> Self {
        let mut joined = Self(Vec::new());
        dims.iter().flat_map(|dim| dim.0.iter().copied()).for_each(|factor| joined.push(factor));
        joined
    }

    /// Whether rows have an axis for it: it has a fixed factor, or is 1.
    pub(crate) fn in_row(&self) -> bool {
        self.0.is_empty() || self.0.iter().any(|factor| matches!(factor, Factor::Fixed(_)))
    }

    pub(crate) fn push(&mut self, factor: Factor) {
        match (self.0.last_mut(), factor) {
            (_, Factor::Fixed(1)) => {}
            (Some(Factor::Fixed(last)), Factor::Fixed(n)) => *last *= n,
            _ => self.0.push(factor),
        }
    }
}

/// All symbols of `dims` other than the batch, each as often as it occurs.
pub(crate) fn steps(dims: &[Dim]) -> Vec<Symbol> {
    dims.iter().flat_map(Dim::symbols).filter(|&symbol| symbol != BATCH).collect()
}

/// The shape of one row of a tensor of dimensions `dims`: the fixed parts of its axes, in order.
pub(crate) fn row_shape(dims: &[Dim]) -> Vec<usize> {
    dims.iter().filter(|dim| dim.in_row()).map(Dim::fixed_part).collect()
}

/// The position in [`row_shape`] of dimension `axis`, which must be in the row.
pub(crate) fn row_axis(dims: &[Dim], axis: usize) -> usize {
    dims[..axis].iter().filter(|dim| dim.in_row()).count()
}
