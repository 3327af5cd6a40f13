//! Symbolic execution of a file: what every value is, in terms of rows.
//!
//! A value that depends on the request is a [`View`]: the logical dimensions of an ONNX
//! tensor over a *source*, a matrix of rows where the axes of batch and time are gone and
//! what is left of a row is flat. Transposing, squeezing and reshaping around those two
//! axes change the view alone; everything else becomes a [`RowOp`] (the same function of
//! every row) or a [`Recurrent`]. An operator that is neither is a [`Diagnostic`].
//!
//! Which input dimensions are batch and time is not declared in a file. Draft passes find
//! it: every input dimension is an unknown, and whatever reaches the first two axes
//! of a recurrent operator's X is time and batch. The final pass then knows. What varies beside the
//! batch is *steps*: time is, and so is any other input dimension that a file leaves open.

use std::collections::{BTreeMap, HashMap};

use batchmaker_graph::{ElementType, RowSpec};
use limits::BUDGET;
use roles::Roles;
use rten_onnx::onnx::AttributeProto;

use self::loops::LoopBody;
use self::operators::whole;
use crate::analysis::recurrence::Recurrent;
use crate::data::symbolic::{AtomId, Axes, BATCH, Dim, Factor, steps};
use crate::error::Diagnostic;
use crate::file::node::{Node, Subgraph};
use crate::file::onnx_file::OnnxFile;

mod limits;
pub(crate) mod loops;
pub(crate) mod operators;
pub(crate) mod recurrence;
pub(crate) mod recurrent;
mod roles;
pub(crate) mod step_rule;
mod value;

pub(crate) use roles::{Bound, FileKind, StepKey, analyse};
pub(crate) use value::{
    Domain, InputInfo, Operand, RecurrentPort, RowOp, Scope, Source, Val, View,
};

/// The outcome: everything that the outputs are made of.
pub(crate) struct Analysis {
    pub(crate) axes: Axes,
    pub(crate) inputs: Vec<InputInfo>,
    pub(crate) ops: Vec<RowOp>,
    pub(crate) recurrents: Vec<Recurrent>,
    pub(crate) outputs: Vec<(String, View)>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) opset: i64,
    /// Whether roles are still being found; then nothing is emitted.
    pub(crate) draft: bool,
    /// Whether the file is one cell.
    pub(crate) is_cell: bool,
    pub(crate) bound: Bound,
    /// Whether the input of a recurrent operator is downstream of a diagnostic.
    pub(crate) hidden: bool,
    /// Elements that constants which are still to be computed may have.
    pub(crate) budget: usize,
    /// Nodes that loops came to so far, body by body.
    pub(crate) loop_nodes: usize,
    pub(crate) values: HashMap<String, Val>,
    /// Where this is the body of a loop.
    pub(crate) body: Option<LoopBody>,
    /// Whether operators are taken on whole tensors, where an axis of rows is as good as another.
    pub(crate) on_whole: bool,
    /// The fewest and the most steps that an axis may have.
    pub(crate) limits: BTreeMap<AtomId, (usize, usize)>,
    /// Of each input's dimensions.
    atoms: Vec<Vec<AtomId>>,
    pub(crate) by_key: BTreeMap<StepKey, AtomId>,
    by_name: HashMap<String, AtomId>,
}

impl Analysis {
    /// An analysis of part of this one's file, which has its axes meanwhile.
    pub(crate) fn nested(&mut self, body: LoopBody) -> Self {
        Self {
            axes: std::mem::replace(&mut self.axes, Axes::new(None)),
            inputs: Vec::new(),
            ops: Vec::new(),
            recurrents: Vec::new(),
            outputs: Vec::new(),
            diagnostics: Vec::new(),
            opset: self.opset,
            draft: self.draft,
            is_cell: true,
            bound: self.bound.clone(),
            hidden: false,
            budget: self.budget,
            loop_nodes: self.loop_nodes,
            values: HashMap::new(),
            body: Some(body),
            on_whole: false,
            limits: BTreeMap::new(),
            atoms: Vec::new(),
            by_key: self.by_key.clone(),
            by_name: HashMap::new(),
        }
    }

    /// Takes back what [`Self::nested`] lent.
    pub(crate) fn take_back(&mut self, nested: &mut Self) {
        self.axes = std::mem::replace(&mut nested.axes, Axes::new(None));
        self.bound = nested.bound.clone();
        self.hidden |= nested.hidden;
        self.budget = nested.budget;
        self.loop_nodes = nested.loop_nodes;
        for (atom, (min, max)) in std::mem::take(&mut nested.limits) {
            self.limit_steps(atom, min, max);
        }
    }

    fn pass(file: &OnnxFile, kind: FileKind, roles: &Roles, draft: bool, bound: Bound) -> Self {
        let mut analysis = Self {
            axes: Axes::new(None),
            inputs: Vec::new(),
            ops: Vec::new(),
            recurrents: Vec::new(),
            outputs: Vec::new(),
            diagnostics: file.diagnostics.clone(),
            opset: file.opset,
            draft,
            is_cell: kind == FileKind::Cell,
            bound,
            hidden: false,
            budget: BUDGET + 4 * file.elements(),
            loop_nodes: 0,
            values: HashMap::new(),
            body: None,
            on_whole: false,
            limits: BTreeMap::new(),
            atoms: Vec::new(),
            by_key: BTreeMap::new(),
            by_name: HashMap::new(),
        };
        if kind == FileKind::Network {
            analysis.bind_lengths(file, roles);
        }
        for (index, input) in file.inputs.iter().enumerate() {
            analysis.add_input(index, input, roles, kind);
        }
        for node in &file.nodes {
            analysis.add_node(node, file);
        }
        for name in &file.outputs {
            analysis.add_output(name, file);
        }
        analysis.rename_atoms();
        analysis.check_rows();
        analysis
    }

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

    pub(crate) fn push_input(
        &mut self,
        name: &str,
        element: ElementType,
        dims: Vec<Dim>,
        val: Val,
    ) {
        if self.atoms.len() <= self.inputs.len() {
            self.atoms.push(Vec::new());
        }
        self.values.insert(name.to_owned(), val);
        self.inputs.push(InputInfo { name: name.to_owned(), element, dims, ids: None });
    }

    pub(crate) fn add_node(&mut self, node: &Node, file: &OnnxFile) {
        let mut inputs = Vec::new();
        for name in &node.inputs {
            inputs.push(if name.is_empty() { None } else { Some(self.value(name, file)) });
        }
        let results = match operators::unsupported(node) {
            Some(reason) => Err(reason),
            None if operators::is_recurrent(node) => {
                let (results, reasons) = crate::analysis::recurrent::evaluate(self, node, &inputs);
                self.diagnostics.extend(reasons.into_iter().map(|reason| node.diagnostic(reason)));
                Ok(results)
            }
            None if inputs.iter().flatten().any(|val| matches!(val, Val::Unknown)) => {
                self.hidden |= loops::is_loop(node);
                Ok(Vec::new())
            }
            None if node.operator == "If" => self.branch(node, &inputs, file),
            None if loops::is_loop(node) => loops::evaluate(self, node, &inputs, file),
            None => self.operator(node, &inputs),
        };
        let results = results.unwrap_or_else(|reason| {
            self.diagnostics.push(node.diagnostic(reason));
            Vec::new()
        });
        let mut results = results.into_iter();
        for output in &node.outputs {
            let val = results.next().unwrap_or(Val::Unknown);
            if !output.is_empty() {
                self.values.insert(output.clone(), val);
            }
        }
    }

    /// An operator on rows if it is one, else on whole tensors.
    pub(crate) fn operator(
        &mut self,
        node: &Node,
        inputs: &[Option<Val>],
    ) -> Result<Vec<Val>, String> {
        let is_sequence = |val: &Val| matches!(val, Val::Sequence(_));
        if inputs.iter().flatten().any(is_sequence) && !operators::takes_sequences(&node.operator) {
            return Err("its input is a sequence of tensors".to_owned());
        }
        if operators::is_any_shape(node) {
            return operators::evaluate(self, node, inputs);
        }
        let views = inputs.iter().flatten().filter_map(|val| match val {
            Val::View(view) => Some(view),
            _ => None,
        });
        self.on_whole = false;
        let mut views = views.peekable();
        let is_constant = views.peek().is_none();
        let has_one_axis = self.draft || views.all(|view| steps(&view.dims).len() <= 1);
        let on_rows = match has_one_axis {
            true => operators::evaluate(self, node, inputs),
            false => Err("its input varies along more than one axis".to_owned()),
        };
        let on_rows =
            on_rows.and_then(|vals| match vals.iter().all(|val| self.has_axes_once(val)) {
                true => Ok(vals),
                false => Err("its output varies along more than one axis".to_owned()),
            });
        let reason = match on_rows {
            Ok(vals) => return Ok(vals),
            Err(reason) => reason,
        };
        if operators::is_elementwise(&node.operator)
            && let Some(data) = operators::as_data(self, node, inputs)?
        {
            return self.operator(node, &data);
        }
        match is_constant {
            true if whole::varies(inputs) => {
                let made = whole::made(self, node, inputs)?;
                whole::evaluate(self, node, &made)
            }
            true => Err(reason),
            false if operators::is_whole(node) => whole::evaluate(self, node, inputs),
            false => self.on_whole_tensors(node, inputs, reason),
        }
    }

    /// An operator on whole tensors, where it is known on these; on rows it is not, for that reason.
    fn on_whole_tensors(
        &mut self,
        node: &Node,
        inputs: &[Option<Val>],
        reason: String,
    ) -> Result<Vec<Val>, String> {
        if !whole::is_known(&node.operator) {
            return Err(reason);
        }
        whole::evaluate(self, node, inputs).map_err(|whole| match whole == reason {
            true => reason,
            false => format!("{reason}; on whole sequences: {whole}"),
        })
    }

    /// Whether the batch and steps are at most an axis each.
    pub(crate) fn has_axes_once(&self, val: &Val) -> bool {
        let Val::View(view) = val else { return true };
        let atoms = view.dims.iter().flat_map(Dim::atoms);
        let batch = atoms.filter(|&atom| atom == BATCH).count();
        self.draft || (batch <= 1 && steps(&view.dims).len() <= 1)
    }

    /// The outputs of an `If` whose condition is known: those of that branch.
    fn branch(
        &mut self,
        node: &Node,
        inputs: &[Option<Val>],
        file: &OnnxFile,
    ) -> Result<Vec<Val>, String> {
        let condition = match inputs.first() {
            Some(Some(Val::Literal(literal) | Val::Fill(literal, _))) => literal.as_bools(),
            _ => None,
        };
        let condition = condition.and_then(|bits| bits.data.first().copied());
        let condition = condition.ok_or("its condition depends on the request")?;
        let name = if condition { "then_branch" } else { "else_branch" };
        let graph = node.subgraph(name).ok_or_else(|| format!("it has no {name}"))?;
        self.add_initializers(graph);
        for node in &graph.nodes {
            self.add_node(node, file);
        }
        Ok(graph.outputs.iter().map(|name| self.value(name, file)).collect())
    }

    /// The constants of a graph inside a node.
    pub(crate) fn add_initializers(&mut self, graph: &Subgraph) {
        for (name, literal) in &graph.initializers {
            let val = match literal {
                Ok(literal) => Val::literal(literal.clone()),
                Err(reason) => {
                    self.block("initializer", name, reason);
                    Val::Unknown
                }
            };
            self.values.insert(name.clone(), val);
        }
    }

    pub(crate) fn value(&mut self, name: &str, file: &OnnxFile) -> Val {
        if let Some(val) = self.values.get(name) {
            return val.clone();
        }
        let val = match file.initializers.get(name) {
            _ if self.body.as_ref().is_some_and(|body| body.has(name)) => self.capture(name),
            Some(Ok(literal)) => Val::literal(literal.clone()),
            Some(Err(reason)) => {
                self.block("initializer", name, reason);
                Val::Unknown
            }
            None => {
                let reason = "nothing in the file makes it (sparse initializers and values from \
                              outside a subgraph are not supported)";
                self.block("value", name, reason);
                Val::Unknown
            }
        };
        self.values.insert(name.to_owned(), val.clone());
        val
    }

    pub(crate) fn add_output(&mut self, name: &str, file: &OnnxFile) {
        match self.value(name, file) {
            Val::View(view) => self.outputs.push((name.to_owned(), view)),
            Val::Unknown => {}
            Val::Sequence(_) => self.block("output", name, "it is a sequence of tensors"),
            Val::Literal(literal) if literal.data().is_none() => {
                self.block("output", name, "it is made of the request's lengths alone");
            }
            Val::Literal(_) | Val::Fill(..) | Val::Repeat(..) => {
                self.block("output", name, "it does not depend on the request");
            }
        }
    }

    pub(crate) fn block(&mut self, operator: &str, node: &str, reason: &str) {
        let diagnostic = Diagnostic {
            operator: operator.to_owned(),
            node: node.to_owned(),
            reason: reason.to_owned(),
        };
        self.diagnostics.push(diagnostic);
    }

    /// The length of a dimension that is the same in all requests and within a row.
    pub(crate) fn fixed(&self, dim: &Dim) -> Option<usize> {
        let lengths = dim.0.iter().map(|factor| match factor {
            Factor::Fixed(n) => Some(*n),
            Factor::Atom(atom) => match self.axes.find(*atom) {
                BATCH => None,
                _ if !self.draft || self.axes.is_time(*atom) => None,
                atom => self.axes.length(atom),
            },
        });
        lengths.product()
    }

    /// In a draft, learns a length that weights decide.
    pub(crate) fn learn(&mut self, dim: &Dim, length: usize) {
        if let Some(atom) = dim.as_atom().filter(|_| self.draft) {
            self.axes.learn(atom, length);
        }
    }

    /// As [`Self::fixed`], or why not.
    pub(crate) fn need_fixed(&self, dim: &Dim, what: &str) -> Result<usize, String> {
        self.fixed(dim).ok_or_else(|| {
            let name = self.axes.show(std::slice::from_ref(dim));
            let name = name.trim_matches(['[', ']']);
            format!("it {what} the axis of {name}: its rows interact")
        })
    }

    pub(crate) fn level(&self, source: Source) -> usize {
        match source {
            Source::Input(_) | Source::Length(_) => 0,
            Source::Recurrent(index, _) => self.recurrents[index].level + 1,
            Source::Op(index, _) => self.ops[index].level,
        }
    }

    /// The axes that rows of a source run along.
    pub(crate) fn domain(&self, source: Source) -> Domain {
        match source {
            Source::Input(index) => Domain::of(&self.inputs[index].dims),
            Source::Length(_) => Domain::default(),
            // Outputs of an operator on whole tensors may have axes of their own.
            Source::Op(index, port) => match self.ops[index].whole.get(port) {
                Some(dims) => Domain::of(dims),
                None => self.ops[index].domain,
            },
            Source::Recurrent(index, port) => {
                let domain = self.recurrents[index].domain;
                Domain { time: domain.time.filter(|_| port.is_every()), ..domain }
            }
        }
    }

    /// Adds a row op; gives a view of each output.
    pub(crate) fn emit(
        &mut self,
        node: &Node,
        operator: &str,
        attributes: Vec<AttributeProto>,
        operands: Vec<Operand>,
        outputs: Vec<(ElementType, Vec<Dim>)>,
    ) -> Vec<Val> {
        let index = self.ops.len();
        let mut domain = Domain::default();
        for (_, dims) in &outputs {
            domain = domain.union(Domain::of(dims));
        }
        let sources = operands.iter().filter_map(|operand| match operand {
            Operand::Rows { source, .. } => Some(*source),
            _ => None,
        });
        let level = sources.map(|source| self.level(source)).max().unwrap_or(0);
        let specs = outputs
            .iter()
            .map(|(element, dims)| RowSpec::new(*element, crate::data::symbolic::row_shape(dims)))
            .collect();
        self.ops.push(RowOp {
            label: node.label.clone(),
            operator: operator.to_owned(),
            attributes,
            operands,
            outputs: specs,
            domain,
            scope: Scope::Row,
            whole: Vec::new(),
            level,
            bound: None,
            counts: None,
        });
        outputs
            .into_iter()
            .enumerate()
            .map(|(port, (element, dims))| {
                Val::View(View { source: Source::Op(index, port), at: None, element, dims })
            })
            .collect()
    }

    /// A view as an operand under its own row shape.
    pub(crate) fn operand(&self, view: &View) -> Operand {
        Operand::Rows {
            source: view.source,
            at: view.at,
            shape: crate::data::symbolic::row_shape(&view.dims),
        }
    }

    /// Step `at` of a view that has dimension `axis` as time; the dimension becomes 1.
    pub(crate) fn select_time(&self, view: &View, axis: usize, at: i64) -> View {
        let mut view = view.clone();
        let own = self.domain(view.source).time.map(|atom| self.axes.find(atom));
        let along = view.dims[axis].as_atom().map(|atom| self.axes.find(atom));
        view.dims[axis] = Dim::fixed(1);
        if view.at.is_some() || own != along {
            // The same at all steps of that axis.
            return view;
        }
        match view.source {
            Source::Recurrent(index, RecurrentPort::Every(port))
                if self.recurrents[index].last_step(port) == Some(at) =>
            {
                view.source = Source::Recurrent(index, RecurrentPort::Last(port));
            }
            source if self.domain(source).time.is_some() => view.at = Some(at),
            _ => {}
        }
        view
    }
}
