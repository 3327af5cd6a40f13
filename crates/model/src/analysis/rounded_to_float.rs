//! The FLOATs that INT32 numbers round to, as far as they are known.

use std::collections::HashMap;

use crate::analysis::value::{Source, View};
use crate::data::dim::Dim;

/// The FLOATs of INT32 values. A value is known by the dimensions that a view gives it: operators that move numbers may change these
/// alone.
#[derive(Default)]
pub(crate) struct RoundedToFloat {
    exact: HashMap<Key, View>,
    sums: HashMap<Key, View>,
}

type Key = (Source, Vec<Dim>);

fn key(view: &View) -> Key {
    (view.source, view.dims.clone())
}

impl RoundedToFloat {
    /// Notes the FLOATs that hold the numbers of a view of a whole source.
    pub(crate) fn add_exact(&mut self, view: &View, floats: View) {
        self.exact.insert(key(view), floats);
    }

    /// Notes what the sums that a view of a whole source has round to. Both terms of a sum are numbers that FLOAT holds.
    pub(crate) fn add_sum(&mut self, view: &View, floats: View) {
        self.sums.insert(key(view), floats);
    }

    /// The FLOATs that hold the numbers of a view.
    pub(crate) fn exact(&self, view: &View) -> Option<&View> {
        self.exact.get(&key(view)).filter(|_| view.at.is_none())
    }

    /// The FLOATs that the numbers of a view round to, where these are sums.
    pub(crate) fn sum(&self, view: &View) -> Option<&View> {
        self.sums.get(&key(view)).filter(|_| view.at.is_none())
    }
}
