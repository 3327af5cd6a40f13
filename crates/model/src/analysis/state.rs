//! The state of an analysis: all that is known of a file so far.

use std::collections::{BTreeMap, HashMap, HashSet};

use batchmaker_graph::ElementType;
use rten_onnx::onnx::GraphProto;

use crate::analysis::dequantised::DequantisedValues;
use crate::analysis::gemm_matrices::GemmMatrices;
use crate::analysis::index_check::{IndexCheck, Unchecked};
use crate::analysis::loop_body::{BodyEdges, LoopBody};
use crate::analysis::operator::Operators;
use crate::analysis::recurrence::Recurrent;
use crate::analysis::rounded_to_float::RoundedToFloat;
use crate::analysis::value::{InputInfo, RowOp, Source, Val, View};
use crate::data::axes::Axes;
use crate::data::dim::Dim;
use crate::data::int::Int;
use crate::data::named_cell::NamedCell;
use crate::data::scalar::Scalar;
use crate::data::symbol::{Symbol, Windows};
use crate::error::Diagnostic;
use crate::file::node::Node;

/// The role in which a file, or a part of one, is analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A whole network: batch and time are where its recurrent operators have them.
    Network,
    /// A cell: dimension 0 of every input is the batch.
    Cell,
    /// One step of a loop that becomes a chain: the step is a cell.
    LoopStep,
    /// The body of a loop that the executor runs, with whole tensors from around the loop.
    LoopBody,
}

/// The purpose of a pass over a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// It finds which input dimensions are batch and steps. Every dimension that varies is an unknown; the
    /// requirements of operators are learned. A misfit may resolve once the roles are known, so it is no
    /// reason to refuse the file.
    Roles,
    /// It describes every value. The roles are known, and a misfit is a reason to refuse the file.
    Values,
}

/// The input and the axis of it that stands for all axes of that length.
pub(crate) type StepKey = (usize, usize);

/// Lengths that operators bind, whatever the file declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) batch: Option<usize>,
    pub(super) steps: BTreeMap<StepKey, usize>,
    /// Numbers of windows over an axis.
    pub(super) windows: BTreeMap<(StepKey, Windows), usize>,
}

impl Bound {
    pub(crate) fn batch_is_one(&self) -> bool {
        self.batch == Some(1)
    }
}

/// All that is known of a file: in the end, everything that its outputs are made of.
pub(crate) struct Analysis {
    /// The table of operators.
    pub(crate) operators: &'static Operators<Analysis>,
    /// The compiler of the bodies of loops.
    pub(super) bodies: &'static BodyCompiler,
    pub(crate) subject: Subject,
    pass: Pass,
    pub(crate) axes: Axes,
    pub(crate) inputs: Vec<InputInfo>,
    pub(crate) ops: Vec<RowOp>,
    pub(crate) recurrents: Vec<Recurrent>,
    pub(crate) outputs: Vec<(String, View)>,
    /// Floats that hold sums of whole numbers.
    pub(crate) whole: HashSet<Source>,
    pub(crate) dequantised: DequantisedValues,
    pub(crate) rounded_to_float: RoundedToFloat,
    pub(crate) gemm_matrices: GemmMatrices,
    /// The branches that conditions of the request are assumed to take, by the names of their `If`s.
    pub(crate) assumed: BTreeMap<String, bool>,
    /// The branches that conditions known at load took.
    pub(crate) branches: BTreeMap<String, bool>,
    /// The conditions of the request that were met, with the branches taken, and the names of their `If`s.
    pub(crate) conditions: Vec<(Scalar, bool)>,
    pub(crate) forks: Vec<String>,
    /// Integers that must not be below 0 for a request.
    pub(crate) not_negative: Vec<Int>,
    /// How many `If`s on data the node that is analysed lies in.
    pub(crate) selects: usize,
    /// Checks of the last outputs, which no reply shows.
    pub(crate) checks: Vec<IndexCheck>,
    pub(super) unchecked: Vec<Unchecked>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) opset: i64,
    pub(crate) bound: Bound,
    /// Whether the input of a recurrent operator is downstream of a diagnostic, so that axes of time are missed.
    pub(crate) misses_recurrence: bool,
    /// The number of elements that constants which are still to be computed may have in all.
    pub(super) budget: usize,
    /// The elements of weights so far that are one number everywhere.
    pub(super) filled_elements: usize,
    /// The number of nodes that repeated bodies of loops came to so far.
    pub(super) loop_nodes: usize,
    pub(super) values: HashMap<String, Val>,
    /// The surroundings, if this is the body of a loop.
    pub(crate) body: Option<LoopBody>,
    /// The fewest and the most steps that an axis may have.
    pub(crate) limits: BTreeMap<Symbol, (usize, usize)>,
    /// The symbol of each dimension of each input.
    pub(super) symbols: Vec<Vec<Symbol>>,
    pub(super) by_key: BTreeMap<StepKey, Symbol>,
    pub(super) by_name: HashMap<String, Symbol>,
}

/// Compiles the step of a chain, whose body was analysed for `node`, to a cell. The map names, for each input of
/// the body that is a state, the output that is its next value.
pub(crate) type CompileStep =
    fn(&Node, &mut Analysis, &BTreeMap<String, String>) -> Result<NamedCell, Vec<Diagnostic>>;

/// Writes an analysed body as a graph inside a program, where all names begin with the given prefix.
pub(crate) type CompileGraph = fn(&Analysis, &BodyEdges, &str) -> Result<GraphProto, String>;

/// Compiles the bodies of loops. Whether a body compiles decides how its loop is served, so the analysis calls
/// this part of the compiler, which comes after it.
pub(crate) struct BodyCompiler {
    pub(crate) step: CompileStep,
    pub(crate) graph: CompileGraph,
}

impl Analysis {
    /// An analysis that knows nothing yet. `budget`: elements that computed constants may have.
    pub(super) fn new(
        subject: Subject,
        pass: Pass,
        (operators, bodies): (&'static Operators<Analysis>, &'static BodyCompiler),
        opset: i64,
        budget: usize,
    ) -> Self {
        Self {
            operators,
            bodies,
            subject,
            pass,
            axes: Axes::new(None),
            inputs: Vec::new(),
            ops: Vec::new(),
            recurrents: Vec::new(),
            outputs: Vec::new(),
            whole: HashSet::new(),
            dequantised: DequantisedValues::default(),
            rounded_to_float: RoundedToFloat::default(),
            gemm_matrices: GemmMatrices::default(),
            assumed: BTreeMap::new(),
            branches: BTreeMap::new(),
            conditions: Vec::new(),
            forks: Vec::new(),
            not_negative: Vec::new(),
            selects: 0,
            checks: Vec::new(),
            unchecked: Vec::new(),
            diagnostics: Vec::new(),
            opset,
            bound: Bound::default(),
            misses_recurrence: false,
            budget,
            filled_elements: 0,
            loop_nodes: 0,
            values: HashMap::new(),
            body: None,
            limits: BTreeMap::new(),
            symbols: Vec::new(),
            by_key: BTreeMap::new(),
            by_name: HashMap::new(),
        }
    }

    /// An analysis of the body of one of this one's loops, which has its axes meanwhile.
    pub(super) fn nested(&mut self, subject: Subject, body: LoopBody) -> Self {
        let of_table = (self.operators, self.bodies);
        let mut nested = Self::new(subject, self.pass, of_table, self.opset, self.budget);
        std::mem::swap(&mut nested.axes, &mut self.axes);
        nested.bound = self.bound.clone();
        nested.loop_nodes = self.loop_nodes;
        nested.by_key = self.by_key.clone();
        nested.body = Some(body);
        nested
    }

    /// Takes back what [`Self::nested`] lent.
    pub(super) fn take_back(&mut self, nested: &mut Self) {
        std::mem::swap(&mut self.axes, &mut nested.axes);
        self.bound = nested.bound.clone();
        self.misses_recurrence |= nested.misses_recurrence;
        self.budget = nested.budget;
        self.loop_nodes = nested.loop_nodes;
        for (symbol, (min, max)) in std::mem::take(&mut nested.limits) {
            self.limit_steps(symbol, min, max);
        }
    }

    /// Whether it is known which input dimensions are batch and steps.
    pub(super) fn has_roles(&self) -> bool {
        self.pass == Pass::Values
    }

    /// Fails unless `fits`. While the roles of dimensions are still being found it never fails, as the
    /// misfit may resolve.
    pub(super) fn require(
        &self,
        fits: bool,
        reason: impl FnOnce() -> String,
    ) -> Result<(), String> {
        match fits || !self.has_roles() {
            true => Ok(()),
            false => Err(reason()),
        }
    }

    /// Whether all of it becomes one cell.
    pub(crate) fn is_cell(&self) -> bool {
        matches!(self.subject, Subject::Cell | Subject::LoopStep)
    }

    pub(super) fn push_input(
        &mut self,
        name: &str,
        element: ElementType,
        dims: Vec<Dim>,
        val: Val,
    ) {
        if self.symbols.len() <= self.inputs.len() {
            self.symbols.push(Vec::new());
        }
        self.values.insert(name.to_owned(), val);
        self.inputs.push(InputInfo {
            name: name.to_owned(),
            element,
            dims,
            ids: None,
            derived: None,
        });
    }

    /// Adds a diagnostic: a reason that the file cannot be served.
    pub(crate) fn diagnose(&mut self, operator: &str, node: &str, reason: &str) {
        let diagnostic = Diagnostic {
            operator: operator.to_owned(),
            node: node.to_owned(),
            reason: reason.to_owned(),
        };
        self.diagnostics.push(diagnostic);
    }

    /// Requires that a sum of lengths is not below 0 for a request.
    pub(crate) fn require_length(&mut self, rest: Int) {
        let is_known = rest.as_number().is_some_and(|n| n >= 0);
        if self.has_roles() && !is_known && !self.not_negative.contains(&rest) {
            self.not_negative.push(rest);
        }
    }

    /// Learns that an axis has at least `min` and at most `max` steps.
    pub(crate) fn limit_steps(&mut self, symbol: Symbol, min: usize, max: usize) {
        let known = self.limits.entry(self.axes.find(symbol)).or_insert((min, max));
        *known = (known.0.max(min), known.1.min(max));
    }
}
