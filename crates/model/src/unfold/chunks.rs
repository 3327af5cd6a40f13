//! Checks whether a sequence may come in chunks: every output must depend on the steps so far alone.

use crate::analysis::derivation::DerivedOperand;
use crate::analysis::recurrence::SequenceLengths;
use crate::unfold::plan::{Extent, PlanCell, PlanInput, PlanRead, UnfoldPlan};

impl UnfoldPlan {
    /// The reason that a sequence cannot come in chunks, if a value depends on more than the steps so far.
    pub(crate) fn why_no_chunks(&self) -> Option<&'static str> {
        self.check_chunks().err()
    }

    fn check_chunks(&self) -> Result<(), &'static str> {
        let has_length = |cell: &PlanCell| {
            cell.domain.time.is_some_and(|axis| self.axes[axis.0 as usize].length.is_some())
        };
        if self.cells.iter().any(|cell| cell.chain.is_some() && has_length(cell)) {
            return Err("its sequences have one length");
        }
        let has_windows = match &self.overlap {
            Ok(overlap) => overlap.is_some(),
            Err(reason) => return Err(reason),
        };
        if has_windows && self.checks.iter().any(|check| check.is_of_indices) {
            return Err("its windows read places that it computes");
        }
        let mut time = None;
        for cell in self.cells.iter().filter(|cell| cell.chain.is_some()) {
            let own = cell.domain.time;
            let is_of_windows =
                own.is_some_and(|axis| !self.axes[axis.0 as usize].windows.is_empty());
            if !has_windows && (is_of_windows || *time.get_or_insert(own) != own) {
                return Err("its steps are not those of its input");
            }
        }
        if !self.lengths.is_empty() {
            return Err("it computes on the length of its sequence");
        }
        if !has_windows && self.cells.iter().all(|cell| cell.chain.is_none()) {
            return Err("it keeps no state");
        }
        // Values without an axis of time that are computed from a sequence: the state so far, or a step.
        let mut so_far = self.derived_so_far()?;
        if has_windows && so_far.contains(&true) {
            return Err("a part of it takes all steps at once");
        }
        for cell in &self.cells {
            let over_time = cell.domain.time.is_some();
            let is_so_far = |read: &PlanRead| {
                let over_time = self.values[read.value].domain.time.is_some();
                let is_step = over_time && read.at.is_some();
                so_far[read.value] || is_step
            };
            let reads = cell.inputs.iter().chain(cell.initial.iter().flatten());
            if let Some(order) = &cell.chain
                && order.is_backwards()
            {
                return Err("its steps depend on the end of its sequence");
            }
            if let Some(order) = &cell.chain
                && order.lengths != SequenceLengths::All
            {
                return Err("it is told the lengths of its sequences");
            }
            if reads.clone().any(|read| read.at.is_some_and(|at| at != -1)) {
                return Err("it reads a step by its number");
            }
            if cell.initial.iter().flatten().any(is_so_far)
                || (over_time && cell.inputs.iter().any(is_so_far))
            {
                return Err("its steps depend on the end of its sequence");
            }
            let is_made_of = over_time || reads.clone().any(is_so_far);
            for sink in &cell.sinks {
                so_far[sink.value] |= is_made_of && self.values[sink.value].domain.time.is_none();
            }
        }
        Ok(())
    }

    /// For each value, whether it is derived of the last step of a sequence.
    fn derived_so_far(&self) -> Result<Vec<bool>, &'static str> {
        let mut so_far = vec![false; self.values.len()];
        let mut inputs = vec![false; self.inputs.len()];
        let has_steps =
            |input: &PlanInput| input.axes.iter().any(|axis| matches!(axis, Extent::Steps(_)));
        for (index, input) in self.inputs.iter().enumerate() {
            for operand in input.derived.iter().flat_map(|derived| &derived.operands) {
                let DerivedOperand::Rows { input: read, at, .. } = *operand else { continue };
                let is_step = at.is_some() && has_steps(&self.inputs[read]);
                if is_step && at != Some(-1) {
                    return Err("it reads a step by its number");
                }
                inputs[index] |= is_step || inputs[read];
            }
            if inputs[index] && has_steps(input) {
                return Err("its steps depend on the end of its sequence");
            }
            if let Some(value) = input.value {
                so_far[value] |= inputs[index];
            }
        }
        Ok(so_far)
    }
}
