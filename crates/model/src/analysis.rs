//! Symbolic execution of a file: what every value is, in terms of rows.
//!
//! A value that depends on the request is a [`View`]: the logical dimensions of an ONNX
//! tensor over a *source*, a matrix of rows where the axes of batch and time are gone and
//! what is left of a row is flat. Transposing, squeezing and reshaping around those two
//! axes change the view alone; everything else becomes a [`RowOp`] (the same function of
//! every row) or a [`Recurrent`]. An operator that is neither is a [`Blocker`].
//!
//! Which input dimensions are batch and time is not declared in a file. Draft passes find
//! it: every input dimension is an unknown, and whatever reaches the first two axes
//! of a recurrent operator's X is time and batch. The final pass then knows.

use std::collections::HashMap;
use std::rc::Rc;

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::AttributeProto;

use crate::Blocker;
use crate::literal::Literal;
use crate::onnx_file::{DeclaredDimension, Node, OnnxFile};
use crate::operators;
use crate::recurrent::Recurrent;
use crate::symbolic::{Axes, BATCH, Dim, Factor, TIME};

/// Which of the two axes rows of a matrix run along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Domain {
    pub(crate) time: bool,
    pub(crate) batch: bool,
}

impl Domain {
    pub(crate) fn of(dims: &[Dim]) -> Self {
        let has = |atom| dims.iter().any(|dim| dim.atoms().any(|a| a == atom));
        Self { time: has(TIME), batch: has(BATCH) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { time: self.time || other.time, batch: self.batch || other.batch }
    }
}

/// An output of a recurrent operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RecurrentPort {
    /// h after every step.
    Every,
    /// h after the last step.
    Hidden,
    /// c after the last step.
    Cell,
}

/// A matrix of flat rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    Input(usize),
    Recurrent(usize, RecurrentPort),
    /// An output of a row op.
    Op(usize, usize),
}

/// A tensor that depends on the request.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) source: Source,
    /// The step chosen, where the source has rows along time and the view has not; below
    /// 0: from the end.
    pub(crate) at: Option<i64>,
    pub(crate) element: ElementType,
    pub(crate) dims: Vec<Dim>,
}

/// What is known of an ONNX value.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    Literal(Rc<Literal>),
    /// One element (a literal of one) everywhere.
    Fill(Rc<Literal>, Vec<Dim>),
    View(View),
    /// Downstream of a blocker, which was already reported.
    Unknown,
}

impl Val {
    pub(crate) fn literal(literal: Literal) -> Self {
        Self::Literal(Rc::new(literal))
    }

    pub(crate) fn element(&self) -> Option<ElementType> {
        match self {
            Self::Literal(literal) | Self::Fill(literal, _) => Some(literal.element()),
            Self::View(view) => Some(view.element),
            Self::Unknown => None,
        }
    }

    pub(crate) fn dims(&self) -> Vec<Dim> {
        match self {
            Self::Literal(literal) => literal.shape().iter().map(|&n| Dim::fixed(n)).collect(),
            Self::Fill(_, dims) => dims.clone(),
            Self::View(view) => view.dims.clone(),
            Self::Unknown => Vec::new(),
        }
    }
}

/// An input of a row op.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    /// Rows of a source under a shape (`[rows, ...shape]`), `at` as in [`View`].
    Rows {
        source: Source,
        at: Option<i64>,
        shape: Vec<usize>,
    },
    /// A constant as it is, without an axis of rows.
    Constant(Rc<Literal>),
    Absent,
}

/// An ONNX operator applied to `[rows, ...]`: the same function of every row.
#[derive(Clone, Debug)]
pub(crate) struct RowOp {
    pub(crate) label: String,
    pub(crate) operator: String,
    pub(crate) attributes: Vec<AttributeProto>,
    pub(crate) operands: Vec<Operand>,
    /// The shapes of its outputs, without the axis of rows.
    pub(crate) outputs: Vec<RowSpec>,
    pub(crate) domain: Domain,
    /// The number of recurrent operators upstream, along the longest path.
    pub(crate) level: usize,
    /// Integer outputs are at least 0 and below this.
    pub(crate) bound: Option<usize>,
}

/// What an input dimension turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Batch,
    Time,
    /// A length that weights decide.
    Fixed(usize),
}

/// A graph input as the analysis sees it.
#[derive(Clone, Debug)]
pub(crate) struct InputInfo {
    pub(crate) name: String,
    pub(crate) element: ElementType,
    pub(crate) dims: Vec<Dim>,
    /// Elements index a table of this many rows.
    pub(crate) ids: Option<usize>,
}

/// The outcome: everything that the outputs are made of.
pub(crate) struct Analysis {
    pub(crate) axes: Axes,
    pub(crate) inputs: Vec<InputInfo>,
    pub(crate) ops: Vec<RowOp>,
    pub(crate) recurrents: Vec<Recurrent>,
    pub(crate) outputs: Vec<(String, View)>,
    pub(crate) blockers: Vec<Blocker>,
    pub(crate) opset: i64,
    /// Whether roles are still being found; then nothing is emitted.
    pub(crate) draft: bool,
    /// Whether something binds the length of batch (of time) to 1.
    pub(crate) batch_is_one: bool,
    pub(crate) time_is_one: bool,
    /// The name of the input dimension that is time.
    pub(crate) time_name: Option<String>,
    /// Whether the input of a recurrent operator is downstream of a blocker.
    pub(crate) hidden: bool,
    unknown_axes: Vec<Blocker>,
    values: HashMap<String, Val>,
    atoms: Vec<Vec<crate::symbolic::AtomId>>,
}

type Roles = HashMap<(usize, usize), Role>;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A whole network: batch and time are where its recurrent operators have them.
    Network,
    /// A cell: dimension 0 of every input is the batch.
    Cell,
}

/// Finds out what every value of a file is.
pub(crate) fn analyse(file: &OnnxFile, kind: FileKind) -> Analysis {
    let known = match kind {
        FileKind::Network => Roles::new(),
        FileKind::Cell => (0..file.inputs.len()).map(|input| ((input, 0), Role::Batch)).collect(),
    };
    let mut roles = known.clone();
    for _ in 0..4 {
        let draft = Analysis::pass(file, kind, &roles, true, (false, false));
        let mut found = draft.roles();
        found.extend(&known);
        if found == roles {
            break;
        }
        roles = found;
    }
    let mut ones = (false, false);
    loop {
        let analysis = Analysis::pass(file, kind, &roles, false, ones);
        let now = (analysis.batch_is_one, analysis.time_is_one);
        if now == ones || kind == FileKind::Cell {
            return analysis;
        }
        ones = now;
    }
}

impl Analysis {
    fn pass(
        file: &OnnxFile,
        kind: FileKind,
        roles: &Roles,
        draft: bool,
        ones: (bool, bool),
    ) -> Self {
        let mut analysis = Self {
            axes: Axes::new(None, None),
            inputs: Vec::new(),
            ops: Vec::new(),
            recurrents: Vec::new(),
            outputs: Vec::new(),
            blockers: file.blockers.clone(),
            opset: file.opset,
            draft,
            batch_is_one: ones.0,
            time_is_one: ones.1,
            time_name: None,
            hidden: false,
            unknown_axes: Vec::new(),
            values: HashMap::new(),
            atoms: Vec::new(),
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
        // Where a blocker hides what a recurrent operator reads, axes cannot be known.
        if !analysis.hidden {
            let unknown = std::mem::take(&mut analysis.unknown_axes);
            analysis.blockers.splice(0..0, unknown);
        }
        if kind == FileKind::Network && analysis.recurrents.is_empty() && !analysis.hidden {
            analysis.block(
                "graph",
                &file.name,
                "there is no recurrent operator (LSTM, GRU, RNN) in it",
            );
        }
        for name in &file.outputs {
            analysis.add_output(name, file);
        }
        analysis
    }

    /// Static dimensions with a role fix the length of batch or time, before they are used.
    fn bind_lengths(&mut self, file: &OnnxFile, roles: &Roles) {
        let (mut batch, mut time) = (None, None);
        let mut keys: Vec<_> = roles.iter().collect();
        keys.sort_by_key(|(key, _)| **key);
        for (&(input, axis), role) in keys {
            let shape = file.inputs[input].shape.as_deref().unwrap_or(&[]);
            if let Some(DeclaredDimension::Static(n)) = shape.get(axis) {
                match role {
                    Role::Batch => batch = batch.or(Some(*n)),
                    Role::Time => time = time.or(Some(*n)),
                    Role::Fixed(_) => {}
                }
            }
        }
        if !self.draft {
            self.batch_is_one |= batch == Some(1);
            self.time_is_one |= time == Some(1);
        }
        self.axes = Axes::new(batch, time);
    }

    fn add_input(
        &mut self,
        index: usize,
        input: &crate::onnx_file::GraphInput,
        roles: &Roles,
        kind: FileKind,
    ) {
        let Some(shape) = &input.shape else {
            self.block("input", &input.name, "the file does not declare its rank");
            return self.push_input(&input.name, ElementType::F32, Vec::new(), Val::Unknown);
        };
        let mut dims = Vec::new();
        let mut atoms = Vec::new();
        for (axis, declared) in shape.iter().enumerate() {
            let role = roles.get(&(index, axis));
            let label = match declared {
                DeclaredDimension::Named(name) => name.clone(),
                DeclaredDimension::Static(n) => n.to_string(),
                DeclaredDimension::Unnamed => format!("dimension {axis} of `{}`", input.name),
            };
            let length = match (declared, role) {
                (DeclaredDimension::Static(n), _) => Some(*n),
                (_, Some(Role::Fixed(n))) => Some(*n),
                _ => None,
            };
            let atom = match role {
                Some(Role::Batch) => BATCH,
                Some(Role::Time) => TIME,
                _ => self.axes.add(&label, length),
            };
            atoms.push(atom);
            dims.push(match (role, length) {
                (Some(Role::Batch), _) if !self.draft && self.batch_is_one => Dim::fixed(1),
                (Some(Role::Time), _) if !self.draft && self.time_is_one => Dim::fixed(1),
                (None | Some(Role::Fixed(_)), Some(n)) if !self.draft || kind == FileKind::Cell => {
                    Dim::fixed(n)
                }
                _ => Dim::atom(atom),
            });
            if let (Some(Role::Time), DeclaredDimension::Named(name)) = (role, declared) {
                let known = self.time_name.get_or_insert_with(|| name.clone());
                if known != name && !self.draft {
                    let reason = format!(
                        "its time axis is `{name}`, that of an earlier input `{known}`: one time \
                         axis is supported"
                    );
                    self.block("input", &input.name, &reason);
                }
            }
        }
        self.atoms.push(atoms);
        let element = match &input.element {
            Ok(element) => *element,
            Err(reason) => {
                self.block("input", &input.name, reason);
                ElementType::F32
            }
        };
        // An input dimension without a role that is not static cannot be told apart.
        let unknown = dims.iter().flat_map(Dim::atoms).find(|&atom| atom != BATCH && atom != TIME);
        if let Some(atom) = unknown.filter(|_| !self.draft) {
            let label = self.axes.label(atom).to_owned();
            let reason = format!(
                "its dimension `{label}` varies and is neither batch nor time of a recurrent \
                 operator"
            );
            self.unknown_axes.push(Blocker {
                operator: "input".to_owned(),
                node: input.name.clone(),
                reason,
            });
        }
        let view = View { source: Source::Input(index), at: None, element, dims: dims.clone() };
        self.push_input(&input.name, element, dims, Val::View(view));
    }

    fn push_input(&mut self, name: &str, element: ElementType, dims: Vec<Dim>, val: Val) {
        if self.atoms.len() <= self.inputs.len() {
            self.atoms.push(Vec::new());
        }
        self.values.insert(name.to_owned(), val);
        self.inputs.push(InputInfo { name: name.to_owned(), element, dims, ids: None });
    }

    fn add_node(&mut self, node: &Node, file: &OnnxFile) {
        let mut inputs = Vec::new();
        for name in &node.inputs {
            inputs.push(if name.is_empty() { None } else { Some(self.value(name, file)) });
        }
        let results = match operators::unsupported(node) {
            Some(reason) => Err(reason),
            None if operators::is_recurrent(node) => {
                let (results, reasons) = crate::recurrent::evaluate(self, node, &inputs);
                self.blockers.extend(reasons.into_iter().map(|reason| node.blocker(reason)));
                Ok(results)
            }
            None if inputs.iter().flatten().any(|val| matches!(val, Val::Unknown)) => {
                Ok(Vec::new())
            }
            None if node.operator == "If" => self.branch(node, &inputs, file),
            None => operators::evaluate(self, node, &inputs),
        };
        let results = results.unwrap_or_else(|reason| {
            self.blockers.push(node.blocker(reason));
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
        for node in &graph.nodes {
            self.add_node(node, file);
        }
        Ok(graph.outputs.iter().map(|name| self.value(name, file)).collect())
    }

    fn value(&mut self, name: &str, file: &OnnxFile) -> Val {
        if let Some(val) = self.values.get(name) {
            return val.clone();
        }
        let val = match file.initializers.get(name) {
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

    fn add_output(&mut self, name: &str, file: &OnnxFile) {
        match self.value(name, file) {
            Val::View(view) => {
                let batch = self.recurrents.iter().any(|cell| cell.domain.batch);
                if batch && !self.draft && !Domain::of(&view.dims).batch {
                    self.batch_is_one = true;
                }
                self.outputs.push((name.to_owned(), view));
            }
            Val::Unknown => {}
            Val::Literal(_) | Val::Fill(..) => {
                self.block("output", name, "it does not depend on the request");
            }
        }
    }

    pub(crate) fn block(&mut self, operator: &str, node: &str, reason: &str) {
        let blocker = Blocker {
            operator: operator.to_owned(),
            node: node.to_owned(),
            reason: reason.to_owned(),
        };
        self.blockers.push(blocker);
    }

    /// The roles of all input dimensions, as found so far.
    fn roles(&self) -> Roles {
        let mut roles = Roles::new();
        for (input, atoms) in self.atoms.iter().enumerate() {
            for (axis, &atom) in atoms.iter().enumerate() {
                match self.axes.find(atom) {
                    BATCH => roles.insert((input, axis), Role::Batch),
                    TIME => roles.insert((input, axis), Role::Time),
                    atom => match self.axes.length(atom) {
                        Some(n) if self.axes.learned(atom) => {
                            roles.insert((input, axis), Role::Fixed(n))
                        }
                        _ => None,
                    },
                };
            }
        }
        roles
    }

    /// The length of a dimension that is the same in all requests and within a row.
    pub(crate) fn fixed(&self, dim: &Dim) -> Option<usize> {
        let lengths = dim.0.iter().map(|factor| match factor {
            Factor::Fixed(n) => Some(*n),
            Factor::Atom(atom) => match self.axes.find(*atom) {
                BATCH | TIME => None,
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
            Source::Input(_) => 0,
            Source::Recurrent(index, _) => self.recurrents[index].level + 1,
            Source::Op(index, _) => self.ops[index].level,
        }
    }

    /// The axes that rows of a source run along.
    pub(crate) fn domain(&self, source: Source) -> Domain {
        match source {
            Source::Input(index) => Domain::of(&self.inputs[index].dims),
            Source::Op(index, _) => self.ops[index].domain,
            Source::Recurrent(index, port) => {
                let domain = self.recurrents[index].domain;
                Domain { time: domain.time && port == RecurrentPort::Every, ..domain }
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
            .map(|(element, dims)| RowSpec::new(*element, crate::symbolic::row_shape(dims)))
            .collect();
        self.ops.push(RowOp {
            label: node.label.clone(),
            operator: operator.to_owned(),
            attributes,
            operands,
            outputs: specs,
            domain,
            level,
            bound: None,
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
            shape: crate::symbolic::row_shape(&view.dims),
        }
    }

    /// Step `at` of a view that has dimension `axis` as time; the dimension becomes 1.
    pub(crate) fn select_time(&self, view: &View, axis: usize, at: i64) -> View {
        let mut view = view.clone();
        view.dims[axis] = Dim::fixed(1);
        match view.source {
            Source::Recurrent(index, RecurrentPort::Every)
                if self.recurrents[index].last_step() == Some(at) =>
            {
                view.source = Source::Recurrent(index, RecurrentPort::Hidden);
            }
            source if self.domain(source).time => view.at = Some(at),
            _ => {}
        }
        view
    }
}
