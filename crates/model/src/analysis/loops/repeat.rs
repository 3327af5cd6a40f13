//! A loop as its body again and again.

use crate::analysis::loops::form::{Loop, integer, truth};
use crate::analysis::operators::arguments::axis_of;
use crate::analysis::operators::dispatch::apply;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::direction::Direction;
use crate::data::int::Int;
use crate::file::attribute::{int_attribute, ints_attribute};
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// The most nodes that all loops of a file may come to.
const NODES_MAX: usize = 50_000;

impl Loop<'_> {
    /// The body `count` times.
    pub(super) fn repeat(
        &self,
        analysis: &mut Analysis,
        count: i64,
        inside: &[&Node],
        file: &OnnxFile,
    ) -> Result<Vec<Val>, String> {
        let mut states = self.states.clone();
        let mut every: Vec<Vec<Val>> = vec![Vec::new(); self.every.len()];
        for step in 0..count {
            analysis.loop_nodes += inside.len();
            if analysis.loop_nodes > NODES_MAX {
                return Err("with the loops around it, it comes to too many nodes".to_owned());
            }
            let mut set = |name: &str, val: Val| {
                analysis.values.insert(name.to_owned(), val);
            };
            self.number.into_iter().for_each(|name| set(name, integer(Int::number(step))));
            self.condition.into_iter().for_each(|name| set(name, truth()));
            for (name, val) in self.state_inputs.iter().zip(&states) {
                set(name, val.clone());
            }
            for (name, (val, axis, direction)) in self.step_inputs.iter().zip(&self.scanned) {
                let at = match direction {
                    Direction::Forward => step,
                    Direction::Reverse => count - 1 - step,
                };
                let axis = vec![int_attribute("axis", *axis as i64)];
                let index = integer(Int::number(at));
                let val = apply(analysis, self.node, "Gather", axis, vec![val.clone(), index])?;
                analysis.values.insert(name.clone(), val);
            }
            for node in inside {
                analysis.add_node(node, file);
            }
            for (known, (name, ..)) in every.iter_mut().zip(&self.every) {
                known.push(analysis.value(name, file));
            }
            states = self.state_outputs.iter().map(|name| analysis.value(name, file)).collect();
            match self.goes_on.map(|name| analysis.value(name, file)) {
                Some(Val::Literal(bits)) if bits.as_bools().is_some_and(|b| !b.data[0]) => break,
                None | Some(Val::Literal(_) | Val::Unknown) => {}
                Some(_) => return Err("its condition depends on the request".to_owned()),
            }
        }
        for (at, (mut vals, (_, axis, direction))) in every.into_iter().zip(&self.every).enumerate()
        {
            if !self.is_used(at) || vals.iter().any(|val| matches!(val, Val::Unknown)) {
                states.push(Val::Unknown);
                continue;
            }
            if *direction == Direction::Reverse {
                vals.reverse();
            }
            let rank = vals.first().ok_or("it has no steps to put together")?.dims().len();
            let axis = axis_of(*axis, rank + 1)? as i64;
            let mut parts = Vec::new();
            for val in vals {
                let axes = vec![ints_attribute("axes", vec![axis])];
                parts.push(apply(analysis, self.node, "Unsqueeze", axes, vec![val])?);
            }
            let axis = vec![int_attribute("axis", axis)];
            states.push(apply(analysis, self.node, "Concat", axis, parts)?);
        }
        Ok(states)
    }
}
