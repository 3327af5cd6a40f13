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
//! of a recurrent operator's X is time and batch. The final pass then knows. What varies beside the
//! batch is *steps*: time is, and so is any other input dimension that a file leaves open.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::AttributeProto;

use crate::Blocker;
use crate::literal::Literal;
use crate::loop_body::LoopBody;
use crate::loops;
use crate::onnx_file::{DeclaredDimension, GraphInput, Node, OnnxFile, Subgraph};
use crate::operators::{self, Sequence, whole};
use crate::recurrence::Recurrent;
use crate::symbolic::{AtomId, Axes, BATCH, Dim, Factor, Int, steps};

/// Which axes rows of a matrix run along: those of the batch, and of steps, at most one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Domain {
    pub(crate) time: Option<AtomId>,
    pub(crate) batch: bool,
}

impl Domain {
    /// Of several axes of steps the first.
    pub(crate) fn of(dims: &[Dim]) -> Self {
        let batch = dims.iter().any(|dim| dim.atoms().any(|atom| atom == BATCH));
        Self { time: steps(dims).first().copied(), batch }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { time: self.time.or(other.time), batch: self.batch || other.batch }
    }
}

/// What a chain of steps gives of an output port of its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RecurrentPort {
    /// After every step.
    Every(usize),
    /// After the last step.
    Last(usize),
}

impl RecurrentPort {
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Every(port) | Self::Last(port) => port,
        }
    }

    pub(crate) fn is_every(self) -> bool {
        matches!(self, Self::Every(_))
    }
}

/// A matrix of flat rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    Input(usize),
    Recurrent(usize, RecurrentPort),
    /// An output of a row op.
    Op(usize, usize),
    /// The length of an axis, one integer.
    Length(AtomId),
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
    /// A constant of length 1 along those dimensions that vary, repeated along them.
    Repeat(Rc<Literal>, Vec<Dim>),
    View(View),
    Sequence(Rc<Sequence>),
    /// Downstream of a blocker, which was already reported.
    Unknown,
}

impl Val {
    pub(crate) fn literal(literal: Literal) -> Self {
        Self::Literal(Rc::new(literal))
    }

    pub(crate) fn element(&self) -> Option<ElementType> {
        match self {
            Self::Literal(literal) | Self::Fill(literal, _) | Self::Repeat(literal, _) => {
                Some(literal.element())
            }
            Self::View(view) => Some(view.element),
            Self::Sequence(_) | Self::Unknown => None,
        }
    }

    pub(crate) fn dims(&self) -> Vec<Dim> {
        match self {
            Self::Literal(literal) => literal.shape().iter().map(|&n| Dim::fixed(n)).collect(),
            Self::Fill(_, dims) | Self::Repeat(_, dims) => dims.clone(),
            Self::View(view) => view.dims.clone(),
            Self::Sequence(_) | Self::Unknown => Vec::new(),
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
    /// A whole tensor under its dimensions.
    Whole {
        source: Source,
        at: Option<i64>,
        dims: Vec<Dim>,
    },
    /// A constant as it is, without an axis of rows.
    Constant(Rc<Literal>),
    /// A vector of integers, some of which are lengths that come with the request.
    Lengths(Vec<Int>),
    /// Not an input of the operator: what tells the length of an axis, where no tensor does.
    Length(AtomId),
    Absent,
}

/// How much of a request one application of an operator takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// A row: the operator is the same function of every row of `[rows, ...]`.
    Row,
    /// All steps of a sequence, whatever the others of its batch are.
    Sequence,
    /// All of the request.
    Request,
}

/// An ONNX operator on the rows of its domain, or on whole tensors.
#[derive(Clone, Debug)]
pub(crate) struct RowOp {
    pub(crate) label: String,
    pub(crate) operator: String,
    pub(crate) attributes: Vec<AttributeProto>,
    pub(crate) operands: Vec<Operand>,
    /// The shapes of its outputs, without the axis of rows.
    pub(crate) outputs: Vec<RowSpec>,
    pub(crate) domain: Domain,
    pub(crate) scope: Scope,
    /// Of an operator on whole tensors: the dimensions of each output.
    pub(crate) whole: Vec<Vec<Dim>>,
    /// The number of recurrent operators upstream, along the longest path.
    pub(crate) level: usize,
    /// Integer outputs are at least 0 and below this.
    pub(crate) bound: Option<usize>,
    /// Its integers are at least 0 and less than the length of that axis.
    pub(crate) counts: Option<AtomId>,
}

/// What an input dimension turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Batch,
    /// Time, or open; input dimensions of equal length have one key.
    Steps(StepKey),
    /// A length that weights decide.
    Fixed(usize),
}

/// The input and the axis of it that stands for all axes of that length.
pub(crate) type StepKey = (usize, usize);

/// Lengths that operators bind, whatever the file declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) batch: Option<usize>,
    steps: BTreeMap<StepKey, usize>,
}

impl Bound {
    pub(crate) fn batch_is_one(&self) -> bool {
        self.batch == Some(1)
    }
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
    /// Whether the file is one cell.
    pub(crate) is_cell: bool,
    pub(crate) bound: Bound,
    /// Whether the input of a recurrent operator is downstream of a blocker.
    pub(crate) hidden: bool,
    /// Elements that constants which are still to be computed may have.
    pub(crate) budget: usize,
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

/// Elements that constants computed in a file may have, beside four times those it holds.
const BUDGET: usize = 1 << 23;

/// Elements that a row may have between two operators.
const ROW_MAX: usize = 1 << 22;

/// Parts that a product or sum of one operator's chain may have.
const PARTS_MAX: usize = 4096;

/// Operators that a file may come to.
const OPERATORS_MAX: usize = 20_000;

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
        let draft = Analysis::pass(file, kind, &roles, true, Bound::default());
        let mut found = draft.roles();
        if !draft.axes.has_time()
            && draft.recurrents.is_empty()
            && kind == FileKind::Network
            && !draft.hidden
        {
            found.extend(first_axes(file));
        }
        found.extend(&known);
        if found == roles {
            break;
        }
        roles = found;
    }
    let mut bound = Bound::default();
    loop {
        let analysis = Analysis::pass(file, kind, &roles, false, bound.clone());
        if analysis.bound == bound || kind == FileKind::Cell {
            return analysis;
        }
        bound = analysis.bound;
    }
}

/// Where there is no recurrent operator, the batch is the first input's first axis, if that is open, and
/// those that are called like it.
fn first_axes(file: &OnnxFile) -> Roles {
    let first = |input: &GraphInput| input.shape.as_ref()?.first().cloned();
    let Some(batch) = file.inputs.first().and_then(first) else { return Roles::new() };
    if matches!(batch, DeclaredDimension::Static(_)) {
        return Roles::new();
    }
    let inputs = file.inputs.iter().enumerate();
    let of = inputs.filter(|(_, input)| first(input).as_ref() == Some(&batch));
    of.map(|(index, _)| ((index, 0), Role::Batch)).collect()
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
            blockers: Vec::new(),
            opset: self.opset,
            draft: self.draft,
            is_cell: true,
            bound: self.bound.clone(),
            hidden: false,
            budget: self.budget,
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
        for (atom, (min, max)) in std::mem::take(&mut nested.limits) {
            self.limit_steps(atom, min, max);
        }
    }

    /// Learns that an axis has at least `min` and at most `max` steps.
    pub(crate) fn limit_steps(&mut self, atom: AtomId, min: usize, max: usize) {
        let known = self.limits.entry(self.axes.find(atom)).or_insert((min, max));
        *known = (known.0.max(min), known.1.min(max));
    }

    fn pass(file: &OnnxFile, kind: FileKind, roles: &Roles, draft: bool, bound: Bound) -> Self {
        let mut analysis = Self {
            axes: Axes::new(None),
            inputs: Vec::new(),
            ops: Vec::new(),
            recurrents: Vec::new(),
            outputs: Vec::new(),
            blockers: file.blockers.clone(),
            opset: file.opset,
            draft,
            is_cell: kind == FileKind::Cell,
            bound,
            hidden: false,
            budget: BUDGET + 4 * file.elements(),
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

    /// That no operator makes rows too long to have many of them.
    pub(crate) fn check_rows(&mut self) {
        if self.ops.len() > OPERATORS_MAX && !self.draft {
            let reason =
                format!("it comes to {} operators; at most {OPERATORS_MAX}", self.ops.len());
            self.block("graph", "graph", &reason);
        }
        let too_long = |op: &&RowOp| {
            let elements = |row: &RowSpec| {
                row.shape.iter().try_fold(1usize, |count, &length| count.checked_mul(length))
            };
            op.outputs.iter().any(|row| elements(row).is_none_or(|count| count > ROW_MAX))
        };
        let found: Vec<(String, String)> = self
            .ops
            .iter()
            .filter(too_long)
            .map(|op| (op.operator.clone(), op.label.clone()))
            .collect();
        for (operator, label) in found.into_iter().filter(|_| !self.draft).collect::<Vec<_>>() {
            self.block(&operator, &label, &format!("its rows have more than {ROW_MAX} elements"));
        }
        self.check_factors();
    }

    /// That no product or sum, multiplied out, has more parts than the executor can look through: a value
    /// multiplied by itself again and again doubles them each time.
    fn check_factors(&mut self) {
        let mut parts: Vec<usize> = Vec::new();
        let mut too_many = None;
        for op in &self.ops {
            let is_chain = matches!(op.operator.as_str(), "Mul" | "Add" | "And" | "Or");
            let of = |operand: &Operand| match operand {
                Operand::Rows { source: Source::Op(before, 0), .. }
                | Operand::Whole { source: Source::Op(before, 0), .. }
                    if self.ops[*before].operator == op.operator =>
                {
                    parts[*before]
                }
                _ => 1,
            };
            let count = match is_chain {
                true => op.operands.iter().map(of).fold(0, usize::saturating_add),
                false => 1,
            };
            if count > PARTS_MAX && too_many.is_none() {
                too_many = Some((op.operator.clone(), op.label.clone()));
            }
            parts.push(count);
        }
        if let Some((operator, label)) = too_many.filter(|_| !self.draft) {
            self.block(
                &operator,
                &label,
                &format!("multiplied out it has more than {PARTS_MAX} parts"),
            );
        }
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
            recurrent.inputs.iter_mut().for_each(|(view, _)| dims(&mut view.dims));
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

    /// Static dimensions with a role fix the length of batch and steps, before they are used.
    fn bind_lengths(&mut self, file: &OnnxFile, roles: &Roles) {
        let (mut batch, mut steps) = (None, BTreeMap::new());
        let mut keys: Vec<_> = roles.iter().collect();
        keys.sort_by_key(|(key, _)| **key);
        for (&(input, axis), role) in keys {
            let shape = file.inputs[input].shape.as_deref().unwrap_or(&[]);
            let (length, label) = match shape.get(axis) {
                Some(DeclaredDimension::Static(n)) => (Some(*n), n.to_string()),
                Some(DeclaredDimension::Named(name)) => (None, name.clone()),
                _ => (None, format!("dimension {axis} of `{}`", file.inputs[input].name)),
            };
            match role {
                Role::Batch => batch = batch.or(length),
                Role::Steps(key) => {
                    let known: &mut (Option<usize>, String) =
                        steps.entry(*key).or_insert((None, label));
                    known.0 = known.0.or(length);
                }
                Role::Fixed(_) => {}
            }
        }
        let batch = batch.or(self.bound.batch);
        self.axes = Axes::new(batch);
        for (key, (length, label)) in steps {
            let length = length.or(self.bound.steps.get(&key).copied());
            let atom = self.axes.add(&label, length);
            self.by_key.insert(key, atom);
            if let Some(1) = length.filter(|_| !self.draft) {
                self.bound.steps.insert(key, 1);
            }
        }
        if batch == Some(1) && !self.draft {
            self.bound.batch = batch;
        }
    }

    fn add_input(&mut self, index: usize, input: &GraphInput, roles: &Roles, kind: FileKind) {
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
                (DeclaredDimension::Static(0), _) => {
                    let reason = format!("its dimension {axis} is 0: there is nothing in it");
                    self.block("input", &input.name, &reason);
                    Some(1)
                }
                (DeclaredDimension::Static(n), _) => Some(*n),
                (_, Some(Role::Fixed(n))) => Some(*n),
                _ => None,
            };
            let atom = match (role, declared) {
                (Some(Role::Batch), _) => BATCH,
                (Some(Role::Steps(key)), _) => self.by_key[key],
                (None, DeclaredDimension::Named(name)) if kind == FileKind::Network => {
                    let axes = &mut self.axes;
                    *self.by_name.entry(name.clone()).or_insert_with(|| axes.add(&label, None))
                }
                _ => self.axes.add(&label, length),
            };
            atoms.push(atom);
            let is_one = match role {
                Some(Role::Batch) => self.bound.batch_is_one(),
                Some(Role::Steps(key)) => self.bound.steps.get(key) == Some(&1),
                _ => false,
            };
            dims.push(match (role, length) {
                _ if is_one && !self.draft => Dim::fixed(1),
                (None | Some(Role::Fixed(_)), Some(n)) if !self.draft || kind == FileKind::Cell => {
                    Dim::fixed(n)
                }
                _ => Dim::atom(atom),
            });
        }
        self.atoms.push(atoms);
        let element = match &input.element {
            Ok(element) => *element,
            Err(reason) => {
                self.block("input", &input.name, reason);
                ElementType::F32
            }
        };
        let view = View { source: Source::Input(index), at: None, element, dims: dims.clone() };
        self.push_input(&input.name, element, dims, Val::View(view));
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
                let (results, reasons) = crate::recurrent::evaluate(self, node, &inputs);
                self.blockers.extend(reasons.into_iter().map(|reason| node.blocker(reason)));
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
        if operators::is_any_shape(&node.operator) {
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
        match on_rows {
            Err(reason) if operators::is_arithmetic(&node.operator) => {
                if let Some(data) = operators::as_data(self, node, inputs)? {
                    return self.operator(node, &data);
                }
                match is_constant {
                    true if whole::varies(inputs) => {
                        let made = whole::made(self, node, inputs)?;
                        whole::evaluate(self, node, &made)
                    }
                    true => Err(reason),
                    false => self.on_whole_tensors(node, inputs, reason),
                }
            }
            Err(_) if is_constant && whole::varies(inputs) => {
                let made = whole::made(self, node, inputs)?;
                whole::evaluate(self, node, &made)
            }
            Err(_) if !is_constant && operators::is_whole(node) => {
                whole::evaluate(self, node, inputs)
            }
            Err(reason) if !is_constant => self.on_whole_tensors(node, inputs, reason),
            found => found,
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
            Val::Literal(_) | Val::Fill(..) | Val::Repeat(..) => {
                self.block("output", name, "it does not depend on the request");
            }
        }
    }

    /// Takes so many elements of what constants that are computed may come to.
    pub(crate) fn afford(&mut self, shape: &[usize]) -> Result<(), String> {
        let count = shape.iter().try_fold(1usize, |count, &length| count.checked_mul(length));
        match count.and_then(|count| self.budget.checked_sub(count)) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err("constants computed in the file grow beyond all reason".to_owned()),
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
        let mut keys: HashMap<AtomId, StepKey> = HashMap::new();
        for (input, atoms) in self.atoms.iter().enumerate() {
            for (axis, &atom) in atoms.iter().enumerate() {
                match self.axes.find(atom) {
                    BATCH => roles.insert((input, axis), Role::Batch),
                    atom if self.axes.is_open(atom) && !self.is_cell => {
                        let key = *keys.entry(atom).or_insert((input, axis));
                        roles.insert((input, axis), Role::Steps(key))
                    }
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
                BATCH => None,
                _ if !self.draft || self.axes.is_time(*atom) => None,
                atom => self.axes.length(atom),
            },
        });
        lengths.product()
    }

    /// Binds an axis of inputs to a length, in the next pass; whether it is one.
    pub(crate) fn bind(&mut self, atom: AtomId, length: usize) -> bool {
        if atom == BATCH {
            self.bound.batch = Some(length);
            return true;
        }
        let of = |(_, known): &(&StepKey, &AtomId)| self.axes.find(**known) == atom;
        let key = self.by_key.iter().find(of).map(|(key, _)| *key);
        key.is_some_and(|key| {
            self.bound.steps.insert(key, length);
            true
        })
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
            Source::Op(index, _) => self.ops[index].domain,
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
            .map(|(element, dims)| RowSpec::new(*element, crate::symbolic::row_shape(dims)))
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
            shape: crate::symbolic::row_shape(&view.dims),
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
