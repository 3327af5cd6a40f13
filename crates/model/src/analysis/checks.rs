//! Checks of computed integers: a request for which one of them is out of range is refused when its values are there. Until
//! then those that index a tensor are clamped, so that no other request of the batch is touched.

use crate::analysis::index_check::{CheckKind, IndexCheck, Unchecked};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Source, View};
use crate::data::int::Int;
use crate::data::int_range::IntRange;
use crate::file::node::Node;

impl Analysis {
    /// Whether integers are known to index an axis of `length`: ONNX counts those below 0 from its end.
    pub(crate) fn is_index(&self, ids: Source, length: &Int) -> bool {
        let range = self.range(ids);
        match length.as_number() {
            Some(length) => range.is_within(IntRange { low: -length, high: length - 1 }),
            // A length is at least 1.
            None => range.is_within(IntRange { low: -1, high: 0 }),
        }
    }

    /// Has every request checked for integers of a view that do not index an axis of `length`.
    ///
    /// # Errors
    /// In a cell or the body of a loop, whose values nobody sees.
    pub(crate) fn check_index(
        &mut self,
        node: &Node,
        ids: &View,
        length: &Int,
    ) -> Result<(), String> {
        if !self.has_roles() {
            return Ok(());
        }
        self.refuse_checks()?;
        let reason = out_of_range(node);
        let low = length.times(&Int::number(-1));
        let high = length.minus(&Int::number(1)).ok_or("an axis beyond all reason")?;
        self.check(ids, [low, high], reason, CheckKind::Index);
        Ok(())
    }

    /// Has every request checked for integers of a view that are not 0: by so much an index is out of range.
    ///
    /// # Errors
    /// As [`Self::check_index`].
    pub(crate) fn check_zero(&mut self, node: &Node, excess: &View) -> Result<(), String> {
        self.refuse_checks()?;
        let zero = Int::number(0);
        self.check(excess, [zero.clone(), zero], out_of_range(node), CheckKind::Index);
        Ok(())
    }

    /// Has every request checked for integers of a view that are not 0: those of a node do not fit 32 bits.
    pub(crate) fn check_fits(&mut self, node: &Node, passes: &View) {
        let reason = format!(
            "an integer that node `{}` computes passes 32 bits, which integers have in programs",
            node.label
        );
        let zero = Int::number(0);
        self.check(passes, [zero.clone(), zero], reason, CheckKind::Number);
    }

    /// Has every request checked for integers of a view that a cast of FLOAT cut off at the ends of 32 bits.
    pub(crate) fn check_cast(&mut self, node: &Node, cast: &View) {
        if self.can_check() {
            let reason = format!(
                "a number that node `{}` casts passes 32 bits, which integers have in programs",
                node.label
            );
            let IntRange { low, high } = IntRange::ALL;
            let bounds = [low + 1, high - 1].map(Int::number);
            self.check(cast, bounds, reason, CheckKind::Cast);
        }
    }

    /// Has every request checked for integers of a view that are below 0, which a node casts to integers without sign.
    pub(crate) fn check_not_negative(&mut self, node: &Node, view: &View) {
        if self.can_check() {
            let reason = format!(
                "an integer that node `{}` casts to one without sign is below 0",
                node.label
            );
            let bounds = [0, IntRange::ALL.high].map(Int::number);
            self.check(view, bounds, reason, CheckKind::Number);
        }
    }

    /// Whether requests can be checked for what is computed here.
    pub(crate) fn can_check(&self) -> bool {
        self.has_roles() && self.refuse_checks().is_ok()
    }

    fn refuse_checks(&self) -> Result<(), String> {
        match self.is_cell() || self.body.is_some() || self.selects > 0 {
            true => {
                Err("its indices are computed inside a cell, a loop or a branch, where a bad one \
                         could not be refused"
                    .to_owned())
            }
            false => Ok(()),
        }
    }

    fn check(&mut self, ids: &View, [low, high]: [Int; 2], reason: String, kind: CheckKind) {
        let is_same = |known: &&mut Unchecked| {
            (known.view.source, known.view.at) == (ids.source, ids.at)
                && known.view.dims == ids.dims
                && (&known.low, &known.high) == (&low, &high)
        };
        if self.unchecked.iter_mut().find(is_same).is_none() {
            self.unchecked.push(Unchecked { view: ids.clone(), low, high, reason, kind });
        }
    }

    /// Adds an output for each check.
    pub(super) fn add_checks(&mut self) {
        let unchecked = std::mem::take(&mut self.unchecked);
        let needed: Vec<Unchecked> =
            unchecked.into_iter().flat_map(|check| self.where_cuts_show(check)).collect();
        for (number, Unchecked { view, low, high, reason, kind }) in needed.into_iter().enumerate()
        {
            self.checks.push(IndexCheck { low, high, reason, kind });
            // No name that a file may have by chance.
            self.outputs.push((format!("\u{1}indices {number}"), view));
        }
    }
}

fn out_of_range(node: &Node) -> String {
    format!("an index that node `{}` computes is out of range", node.label)
}
