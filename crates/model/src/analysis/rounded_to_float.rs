//! The FLOATs that INT32 numbers round to, as far as they are known.

use std::collections::HashMap;

use crate::analysis::value::{Source, View};

/// The FLOATs of INT32 values.
#[derive(Default)]
pub(crate) struct RoundedToFloat {
    exact: HashMap<Source, View>,
    sums: HashMap<Source, View>,
}

impl RoundedToFloat {
    /// Notes the FLOATs that hold the numbers of a view of a whole source.
    pub(crate) fn add_exact(&mut self, view: &View, floats: View) {
        self.exact.insert(view.source, floats);
    }

    /// Notes the FLOATs that the numbers of a view of a whole source, sums of two that FLOAT holds, round to.
    pub(crate) fn add_sum(&mut self, view: &View, floats: View) {
        self.sums.insert(view.source, floats);
    }

    /// The FLOATs that hold the numbers of a view.
    pub(crate) fn exact(&self, view: &View) -> Option<&View> {
        self.exact.get(&view.source).filter(|_| view.at.is_none())
    }

    /// The FLOATs that the numbers of a view round to, where these are sums.
    pub(crate) fn sum(&self, view: &View) -> Option<&View> {
        self.sums.get(&view.source).filter(|_| view.at.is_none())
    }
}
