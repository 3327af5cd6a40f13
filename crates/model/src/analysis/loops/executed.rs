//! A loop that the executor runs as it stands, a request at a time: its body reads all steps of a tensor,
//! or a condition ends it.

use rten_onnx::onnx::{AttributeProto, AttributeType, GraphProto};

use crate::analysis::ids::limit_ids;
use crate::analysis::loop_body::{BodyEdges, BodyInput, LoopBody};
use crate::analysis::loops::form::Loop;
use crate::analysis::operators::arguments::{axis_of, dim_of};
use crate::analysis::operators::dispatch::apply;
use crate::analysis::operators::sequence_level::emit::{emit_loop, operand_of};
use crate::analysis::state::{Analysis, Subject};
use crate::analysis::value::{Operand, Source, Val, View};
use crate::data::array::Array;
use crate::data::dim::Dim;
use crate::data::direction::Direction;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;
use crate::file::attribute::ints_attribute;
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// The most steps of a loop that a condition may end.
const TRIPS_MAX: i64 = 1 << 16;

impl Loop<'_> {
    /// The outputs of the loop as one operator on whole tensors.
    pub(super) fn execute(
        &self,
        analysis: &mut Analysis,
        inside: &[&Node],
        file: &OnnxFile,
    ) -> Result<Vec<Val>, String> {
        let trips = self.trips.clone().ok_or("it may never end: it has no trip count")?;
        if trips.as_number().is_some_and(|count| !(1..=TRIPS_MAX).contains(&count)) {
            return Err(format!("it has no steps, or may have more than {TRIPS_MAX}"));
        }
        let outer = self.outer(analysis, inside);
        let iteration = analysis.axes.add("steps of a loop", None);
        let mut nested = analysis.nested(Subject::LoopBody, LoopBody::new(outer, iteration));
        let produced = self.executed_body(&mut nested, inside, file);
        let has_batch = self.has_batch(&nested);
        nested.rename_symbols();
        let prefix = format!("loop{}_", analysis.ops.len());
        let graph = match &produced {
            Ok(edges) if !has_batch && nested.has_roles() => {
                Some((analysis.bodies.graph)(&nested, edges, &prefix))
            }
            _ => None,
        };
        let diagnostics = std::mem::take(&mut nested.diagnostics);
        analysis.take_back(&mut nested);
        if let Some(first) = diagnostics.first() {
            return Err(format!("{} `{}`: {}", first.operator, first.node, first.reason));
        }
        let edges = produced?;
        if has_batch && analysis.has_roles() {
            return match analysis.axes.length(BATCH) {
                // The next pass takes one sequence a request.
                None => {
                    analysis.bind(BATCH, 1);
                    Ok(Vec::new())
                }
                Some(_) => Err("rows of the batch interact".to_owned()),
            };
        }
        let graph = graph.transpose()?;
        self.emit_executed(analysis, &nested, edges, &trips, graph)
    }

    /// Whether anything that it reads or makes has an axis of batch.
    fn has_batch(&self, nested: &Analysis) -> bool {
        let of = |dims: &[Dim]| {
            dims.iter().flat_map(Dim::symbols).any(|symbol| nested.axes.find(symbol) == BATCH)
        };
        let captured = nested.body.iter().flat_map(|body| &body.edges).any(|edge| match edge {
            BodyInput::Captured(view) | BodyInput::Step { of: view, .. } => of(&view.dims),
            BodyInput::State => false,
        });
        captured || self.states.iter().any(|val| of(&val.dims()))
    }

    fn executed_body(
        &self,
        nested: &mut Analysis,
        inside: &[&Node],
        file: &OnnxFile,
    ) -> Result<BodyEdges, String> {
        let shapes: Vec<Vec<Dim>> = self.states.iter().map(Val::dims).collect();
        if self.states.iter().any(|val| val.element().is_none()) {
            return Err("it carries a list from step to step".to_owned());
        }
        self.enter_body(nested, &shapes)?;
        for node in inside {
            nested.add_node(node, file);
        }
        if !nested.diagnostics.is_empty() {
            return Err(String::new());
        }
        let view_of = |nested: &mut Analysis, name: &str| match nested.value(name, file) {
            Val::View(view) => Ok(view),
            Val::Unknown => Err(String::new()),
            _ => Err(format!("its `{name}` does not depend on the step")),
        };
        let going = match self.goes_on.map(|name| nested.value(name, file)) {
            None => None,
            Some(Val::Literal(bits)) if bits.as_bools().is_some_and(|bits| bits.data[0]) => None,
            Some(Val::Literal(_)) => return Err("its condition ends it after one step".to_owned()),
            Some(Val::View(view)) if view.dims.iter().all(Dim::is_one) => Some(view),
            Some(_) => return Err("its condition is more than one truth value".to_owned()),
        };
        let mut next = Vec::new();
        for (name, (first, before)) in
            self.state_outputs.iter().zip(self.states.iter().zip(&shapes))
        {
            let view = view_of(nested, name)?;
            let mut pairs = view.dims.iter().zip(before);
            let is_same = view.dims.len() == before.len()
                && pairs.all(|(a, b)| nested.axes.same_dim(a, b))
                && Some(view.element) == first.element();
            nested.require(is_same, || {
                let (a, b) = (nested.axes.show(before), nested.axes.show(&view.dims));
                format!("its state `{name}` is {a} before a step and {b} after it")
            })?;
            next.push(view);
        }
        let mut every = Vec::new();
        for (name, ..) in &self.every {
            every.push(view_of(nested, name)?);
        }
        Ok(BodyEdges { going, next, every })
    }

    fn emit_executed(
        &self,
        analysis: &mut Analysis,
        nested: &Analysis,
        edges: BodyEdges,
        trips: &Int,
        graph: Option<GraphProto>,
    ) -> Result<Vec<Val>, String> {
        if edges.going.is_some() && (0..self.every.len()).any(|at| self.is_used(at)) {
            return Err("how many steps it puts together depends on a condition".to_owned());
        }
        let along = match trips.as_number() {
            Some(count) => Dim::fixed(count as usize),
            None => dim_of(trips)?,
        };
        if !analysis.has_roles() {
            return Ok(self.outputs_of(&edges, &along));
        }
        let captured: Vec<(usize, View)> = nested
            .body
            .iter()
            .flat_map(|body| body.edges.iter().enumerate())
            .filter_map(|(index, edge)| match edge {
                BodyInput::Captured(view) | BodyInput::Step { of: view, .. } => {
                    Some((index, view.clone()))
                }
                BodyInput::State => None,
            })
            .collect();
        for (index, view) in &captured {
            if let Some(rows) = nested.inputs[*index].ids {
                limit_ids(analysis, view, rows)?;
            }
        }
        let body = AttributeProto {
            name: Some("body".to_owned()),
            g: graph,
            r#type: Some(AttributeType::GRAPH),
            ..AttributeProto::default()
        };
        let mut operands = vec![Operand::Lengths(vec![trips.clone()])];
        operands.push(Operand::Constant(std::rc::Rc::new(Literal::Bool(Array::scalar(true)))));
        for val in &self.states {
            operands.push(operand_of(analysis, self.node, val)?);
        }
        operands.extend(captured.iter().map(|(_, view)| Operand::Tensor {
            source: view.source,
            at: view.at,
            dims: view.dims.clone(),
        }));
        operands
            .extend(trips.terms().flat_map(|(_, symbols)| symbols.to_vec()).map(Operand::Length));
        let dims = self.outputs_of(&edges, &along);
        let outputs = dims.iter().filter_map(|val| Some((val.element()?, val.dims()))).collect();
        let mut vals = emit_loop(analysis, self.node, vec![body], operands, outputs)?;
        for (val, (_, axis, direction)) in vals.iter_mut().skip(self.states.len()).zip(&self.every)
        {
            let rank = val.dims().len();
            if *direction == Direction::Reverse {
                let ends = [-1, i64::from(i32::MIN), 0, -1]
                    .map(|n| Val::literal(Literal::ints(vec![Int::number(n)])));
                let inputs = [&[val.clone()][..], &ends].concat();
                *val = apply(analysis, self.node, "Slice", vec![], inputs)?;
            }
            let axis = axis_of(*axis, rank)?;
            let mut order: Vec<i64> = (1..rank as i64).collect();
            order.insert(axis, 0);
            if axis != 0 {
                let perm = vec![ints_attribute("perm", order)];
                *val = apply(analysis, self.node, "Transpose", perm, vec![val.clone()])?;
            }
        }
        Ok(vals)
    }

    /// Views of the outputs' shapes, the steps along axis 0.
    fn outputs_of(&self, edges: &BodyEdges, along: &Dim) -> Vec<Val> {
        let of = |view: &View, dims: Vec<Dim>| {
            Val::View(View { source: Source::Input(0), at: None, dims, ..view.clone() })
        };
        let states = edges.next.iter().map(|view| of(view, view.dims.clone()));
        let every =
            edges.every.iter().map(|view| of(view, [&[along.clone()][..], &view.dims].concat()));
        states.chain(every).collect()
    }
}
