//! Adds a branch for a single row or sequence to a program: a second copy of some operators, which runs on the row or
//! sequence twice.
//!
//! ```text
//!   image ─ Conv ─ Relu ─ GlobalAveragePool ─┬─ MatMul ─ Add ─ out0
//!                                            └─ Concat ─ MatMul ─ Add ─ single out0, of which the first row counts
//! ```
//!
//! Rows stay double from a sensitive operator up to one that is costly, as cutting them in between would cost more
//! than computing a few numbers twice. Optimisations of rten's that join an operator with the one after it stay as they
//! are too: operators that are joined are double or not together. (An optimisation that joins others is found when the
//! program is loaded: there one row is compared with two.)

use std::collections::BTreeMap;

use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataType, GraphProto, NodeProto, TensorProto, TypeProto,
    TypeProtoTensor, ValueInfoProto,
};

use crate::operator::operator;
use crate::probe::Probe;
use crate::row_count::is_sensitive;
use crate::shape_check::Operation;

/// A product of more multiplications than this, for one row, is costly: about a microsecond.
const COSTLY_PRODUCT: usize = 1 << 15;

/// The tensor that gives an output port's value for a single row or sequence.
pub(crate) struct BranchOutput {
    pub(crate) name: String,
    /// Whether it holds the row or sequence twice.
    pub(crate) is_double: bool,
}

/// The tensors of a branch by their names: the tensor of the program that each stands for, and whether it holds the row
/// or sequence twice.
pub(crate) type Copies = BTreeMap<String, (String, bool)>;

/// A branch that was added.
pub(crate) struct AddedBranch {
    /// Its outputs, one for each output port.
    pub(crate) outputs: Vec<BranchOutput>,
    /// The operators that run once and may be sensitive for other lengths.
    pub(crate) operations: Vec<Operation>,
    pub(crate) copies: Copies,
}

/// The names of one tensor in the branch.
#[derive(Clone, Default)]
struct Form {
    /// The tensor that holds the row or sequence once.
    once: Option<String>,
    /// The tensor that holds it twice.
    twice: Option<String>,
    /// Whether the operator that computes the tensor runs on the row or sequence twice.
    is_double: bool,
}

/// Adds the branch to the graph. None where a tensor that must be doubled has no axis of its own for the batch.
pub(crate) fn add_branch(graph: &mut GraphProto, probe: &Probe) -> Option<AddedBranch> {
    let mut writer = BranchWriter {
        probe,
        forms: BTreeMap::new(),
        copies: Copies::new(),
        nodes: Vec::new(),
        axes: Vec::new(),
    };
    let mut operations = Vec::new();
    for (node, is_needed) in graph.node.iter().zip(needed_twice(graph, probe)?) {
        let is_double = writer.node(node, is_needed)?;
        if let Some(mut operation) = Operation::of(node).filter(|_| !is_double) {
            for name in &mut operation.reads {
                let form = writer.forms.get(name);
                *name = form.and_then(|form| form.once.clone()).unwrap_or_else(|| name.clone());
            }
            operations.push(operation);
        }
    }
    let mut outputs = Vec::new();
    let mut infos = Vec::new();
    for output in &graph.output {
        let name = output.name.clone()?;
        let form = writer.forms.get(&name);
        let is_double = form.is_some_and(|form| form.is_double);
        let own = form.and_then(|form| if is_double { &form.twice } else { &form.once }.clone());
        let own = own.unwrap_or_else(|| name.clone());
        if own != name {
            infos.push(output_info(own.clone(), element(output)));
        }
        outputs.push(BranchOutput { name: own, is_double });
    }
    let BranchWriter { nodes, axes, copies, .. } = writer;
    graph.node.extend(nodes);
    graph.output.extend(infos);
    if !axes.is_empty() {
        graph.initializer.extend([ints(FIRST.to_owned(), 0), ints(SECOND.to_owned(), 1)]);
        graph.initializer.extend(axes.into_iter().map(|axis| ints(axis_name(axis), axis as i64)));
    }
    Some(AddedBranch { outputs, operations, copies })
}

/// Whether each node takes the row or sequence twice whatever it reads: nodes that are sensitive do, and factors in
/// front of products that are, which rten draws into the product.
fn needed_twice(graph: &GraphProto, probe: &Probe) -> Option<Vec<bool>> {
    let mut needed: Vec<bool> =
        graph.node.iter().map(|node| is_sensitive(node, probe)).collect::<Option<_>>()?;
    for at in 0..graph.node.len() {
        if !needed[at] || operator(&graph.node[at]) != "MatMul" {
            continue;
        }
        for (before, node) in graph.node[..at].iter().enumerate() {
            let is_factor = matches!(operator(node), "Mul" | "Div");
            let is_read = node.output.iter().any(|name| graph.node[at].input.contains(name));
            if is_factor && is_read && node.output.iter().all(|name| probe.is_batched(name)) {
                needed[before] = true;
            }
        }
    }
    Some(needed)
}

const FIRST: &str = "single first";
const SECOND: &str = "single second";

fn axis_name(axis: usize) -> String {
    format!("single axis {axis}")
}

/// Writes the operators of the branch one after the other.
struct BranchWriter<'a> {
    probe: &'a Probe,
    /// The forms of each tensor that the branch computes or converts, by its name in the program.
    forms: BTreeMap<String, Form>,
    copies: Copies,
    nodes: Vec<NodeProto>,
    /// Axes along which tensors are cut.
    axes: Vec<usize>,
}

impl BranchWriter<'_> {
    /// Writes `node` a second time if what it reads is not what the first reads, or it `is_needed` twice. Gives
    /// whether it runs on the row or sequence twice.
    fn node(&mut self, node: &NodeProto, is_needed: bool) -> Option<bool> {
        let is_new = |name: &String| {
            self.forms
                .get(name)
                .is_some_and(|form| form.is_double || form.once.as_ref() != Some(name))
        };
        if !is_needed && !node.input.iter().any(is_new) {
            return Some(false);
        }
        // What a graph inside reads by name would have to be renamed too.
        if node.attribute.iter().any(|attribute| attribute.g.is_some()) {
            return None;
        }
        let is_double = is_needed || self.follows(node)?;
        let mut copy = node.clone();
        for name in &mut copy.input {
            if self.probe.is_batched(name) {
                *name = if is_double { self.twice(name)? } else { self.once(name)? };
            } else if let Some(Form { once: Some(once), .. }) = self.forms.get(name) {
                // A shape, which is that of one row or sequence.
                name.clone_from(once);
            }
        }
        for name in copy.output.iter_mut().filter(|name| !name.is_empty()) {
            let made = format!("single {name}");
            let is_double = is_double && self.probe.is_batched(name);
            self.copies.insert(made.clone(), (name.clone(), is_double));
            let form = match is_double {
                true => Form { twice: Some(made.clone()), is_double, ..Form::default() },
                false => Form { once: Some(made.clone()), ..Form::default() },
            };
            self.forms.insert(std::mem::replace(name, made), form);
        }
        self.nodes.push(copy);
        Some(is_double)
    }

    /// Whether a node that is not sensitive itself takes tensors twice, as some that it reads are.
    fn follows(&self, node: &NodeProto) -> Option<bool> {
        let batched = || node.input.iter().filter(|name| self.probe.is_batched(name));
        let is_double = |name: &str| self.forms.get(name).is_some_and(|form| form.is_double);
        let elements =
            |name: &String| -> Option<usize> { Some(self.probe.shapes(name)?[0].iter().product()) };
        if !batched().any(|name| is_double(name)) {
            return Some(false);
        }
        let is_costly = match operator(node) {
            "Conv" => true,
            "MatMul" => {
                let depth = self.probe.shapes(node.input.first()?)?[0].last().copied()?;
                elements(node.output.first()?)? * depth > COSTLY_PRODUCT
            }
            _ => false,
        };
        // Of operands of both kinds, the smaller ones are converted.
        let (mut doubles, mut others) = (0, 0);
        for name in batched() {
            *if is_double(name) { &mut doubles } else { &mut others } += elements(name)?;
        }
        Some(!is_costly && doubles >= others)
    }

    /// The name of a tensor that holds the row or sequence twice.
    fn twice(&mut self, name: &str) -> Option<String> {
        let axis = self.probe.batch_axis(name)?;
        let form = self.form(name);
        if let Some(twice) = form.twice {
            return Some(twice);
        }
        let (once, made) = (form.once?, format!("twice {name}"));
        self.copies.insert(made.clone(), (name.to_owned(), true));
        self.nodes.push(NodeProto {
            op_type: Some("Concat".to_owned()),
            input: vec![once.clone(), once],
            output: vec![made.clone()],
            attribute: vec![AttributeProto {
                name: Some("axis".to_owned()),
                i: Some(axis as i64),
                r#type: Some(AttributeType::INT),
                ..AttributeProto::default()
            }],
            ..NodeProto::default()
        });
        self.forms.entry(name.to_owned()).or_default().twice = Some(made.clone());
        Some(made)
    }

    /// The name of a tensor that holds the row or sequence once.
    fn once(&mut self, name: &str) -> Option<String> {
        let form = self.form(name);
        if let Some(once) = form.once {
            return Some(once);
        }
        let axis = self.probe.batch_axis(name)?;
        let (twice, made) = (form.twice?, format!("once {name}"));
        self.copies.insert(made.clone(), (name.to_owned(), false));
        self.nodes.push(NodeProto {
            op_type: Some("Slice".to_owned()),
            input: vec![twice, FIRST.to_owned(), SECOND.to_owned(), axis_name(axis)],
            output: vec![made.clone()],
            ..NodeProto::default()
        });
        if !self.axes.contains(&axis) {
            self.axes.push(axis);
        }
        self.forms.entry(name.to_owned()).or_default().once = Some(made.clone());
        Some(made)
    }

    /// The forms of a tensor. A tensor that the branch does not compute has its own name.
    fn form(&mut self, name: &str) -> Form {
        let own = || Form { once: Some(name.to_owned()), ..Form::default() };
        self.forms.entry(name.to_owned()).or_insert_with(own).clone()
    }
}

/// An output of any shape.
pub(crate) fn output_info(name: String, elem_type: Option<DataType>) -> ValueInfoProto {
    let tensor_type = Some(TypeProtoTensor { elem_type, shape: None });
    let r#type = Some(TypeProto { tensor_type, sequence: None });
    ValueInfoProto { name: Some(name), r#type }
}

/// A constant of one integer.
fn ints(name: String, value: i64) -> TensorProto {
    TensorProto {
        name: Some(name),
        dims: vec![1],
        data_type: Some(DataType::INT64),
        int64_data: vec![value],
        ..TensorProto::default()
    }
}

/// The type of an output's elements.
fn element(info: &ValueInfoProto) -> Option<DataType> {
    info.r#type.as_ref()?.tensor_type.as_ref()?.elem_type
}
