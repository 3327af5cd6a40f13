//! Writes programs: small ONNX files, in a form that depends on their computation alone, not on names.

use std::collections::BTreeMap;
use std::rc::Rc;

use batchmaker_graph::{BYTE_PRODUCTS, ElementType, Program, RowSpec};
use rten_onnx::onnx::{
    AttributeProto, DataType, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TypeProto, TypeProtoTensor,
    ValueInfoProto,
};

use crate::analysis::operator::ExecutorForm;
use crate::analysis::table::OPERATORS;
use crate::analysis::value::{OF_BYTES, ValueRef};
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::attribute::named_int;
use crate::file::tensor::to_tensor;

/// The opset that programs are written in.
const PROGRAM_OPSET: i64 = 20;

/// Writes a program.
#[derive(Default)]
pub(crate) struct Writer {
    /// The prefix of all names.
    pub(crate) prefix: String,
    graph: GraphProto,
    /// The name of a matrix under a shape.
    pub(super) names: BTreeMap<(ValueRef, Vec<usize>), String>,
    /// The name and shape under which a matrix is produced.
    pub(super) natural: BTreeMap<ValueRef, (String, Vec<usize>)>,
    constants: Vec<(Rc<Literal>, String)>,
    values: usize,
    /// See [`BYTE_PRODUCTS`].
    byte_products: Vec<String>,
}

impl Writer {
    /// The next input, whose rows are `row`; its name.
    pub(crate) fn input(&mut self, row: &RowSpec) -> String {
        self.input_as(|name| value_info(name, row))
    }

    /// As [`Self::input`], described by `info`.
    pub(crate) fn input_as(&mut self, info: impl FnOnce(&str) -> ValueInfoProto) -> String {
        let name = format!("{}in{}", self.prefix, self.graph.input.len());
        self.graph.input.push(info(&name));
        name
    }

    /// Declares the value `name` as the next output.
    pub(crate) fn output(&mut self, name: &str, row: &RowSpec) {
        self.output_as(value_info(name, row));
    }

    pub(crate) fn output_as(&mut self, info: ValueInfoProto) {
        self.graph.output.push(info);
    }

    /// The graph alone.
    pub(crate) fn into_graph(self) -> GraphProto {
        self.graph
    }

    /// Whether an operator multiplies with a constant matrix. Products of bytes are computed as bytes anyway.
    fn has_products(&self) -> bool {
        let is_matrix = |name: &str| {
            let of_name = |tensor: &&TensorProto| tensor.name.as_deref() == Some(name);
            let constant = self.graph.initializer.iter().find(of_name);
            constant.is_some_and(|constant| {
                constant.dims.len() == 2 && constant.data_type == Some(DataType::FLOAT)
            })
        };
        self.graph.node.iter().any(|node| {
            node.op_type.as_deref() == Some("MatMul")
                && node.input.get(1).is_some_and(|name| is_matrix(name))
                && !node.output.iter().any(|name| self.byte_products.contains(name))
        })
    }

    /// The program, and what `summary` says of it.
    pub(crate) fn finish(self, summary: String) -> Program {
        let has_products = self.has_products();
        let byte_products = (!self.byte_products.is_empty()).then(|| StringStringEntryProto {
            key: Some(BYTE_PRODUCTS.to_owned()),
            value: Some(self.byte_products.join(" ")),
        });
        let model = ModelProto {
            metadata_props: byte_products.into_iter().collect(),
            ir_version: Some(9),
            graph: Some(self.graph),
            opset_import: vec![OperatorSetIdProto { domain: None, version: Some(PROGRAM_OPSET) }],
            ..ModelProto::default()
        };
        let bytes = model.write_buf().expect("writing to memory does not fail").into();
        Program { bytes, summary, has_products }
    }

    /// A name that is not taken.
    pub(crate) fn fresh(&mut self) -> String {
        self.values += 1;
        format!("{}v{}", self.prefix, self.values - 1)
    }

    /// An operator as the specification has it, whatever the executor does with equal elements.
    pub(crate) fn op(
        &mut self,
        operator: &str,
        inputs: Vec<String>,
        outputs: Vec<String>,
        mut attributes: Vec<AttributeProto>,
    ) {
        let operator = if operator == "If" { "Where" } else { operator };
        let wants_last = named_int(&attributes, "select_last_index").unwrap_or(0) != 0;
        if named_int(&attributes, OF_BYTES).is_some() {
            self.byte_products.extend(outputs.first().cloned());
        }
        let is_ours = |name: &str| ["select_last_index", OF_BYTES].contains(&name);
        attributes.retain(|attribute| !attribute.name.as_deref().is_some_and(is_ours));
        let form = OPERATORS.find(operator).map(|operator| operator.executor);
        if form != Some(ExecutorForm::LastOfEquals) || wants_last {
            return self.node(operator, inputs, outputs, attributes);
        }
        // The last of the elements backwards is the first.
        let axis = named_int(&attributes, "axis").unwrap_or(0);
        let mut number = |n: i64| self.constant(&Rc::new(Literal::ints(vec![Int::number(n)])));
        let (along, back) = (number(axis), number(-1));
        let end = number(i64::from(i32::MIN));
        let [backwards, shape, length, last, found] = [(); 5].map(|()| self.fresh());
        let scalar =
            |n: i64| Rc::new(Literal::Int(Array::scalar(Int::number(n)), ElementType::I64));
        let (axis, one) = (self.constant(&scalar(axis)), self.constant(&scalar(1)));
        let slice = vec![inputs[0].clone(), back.clone(), end, along, back];
        self.node("Slice", slice, vec![backwards.clone()], Vec::new());
        self.node("Shape", vec![inputs[0].clone()], vec![shape.clone()], Vec::new());
        self.node("Gather", vec![shape, axis], vec![length.clone()], Vec::new());
        self.node("Sub", vec![length, one], vec![last.clone()], Vec::new());
        self.node(operator, vec![backwards], vec![found.clone()], attributes);
        self.node("Sub", vec![last, found], outputs, Vec::new());
    }

    pub(crate) fn node(
        &mut self,
        operator: &str,
        mut inputs: Vec<String>,
        outputs: Vec<String>,
        attribute: Vec<rten_onnx::onnx::AttributeProto>,
    ) {
        while inputs.last().is_some_and(String::is_empty) {
            inputs.pop();
        }
        self.graph.node.push(NodeProto {
            op_type: Some(operator.to_owned()),
            input: inputs,
            output: outputs,
            attribute,
            ..NodeProto::default()
        });
    }

    /// The name of a constant.
    pub(crate) fn constant(&mut self, literal: &Rc<Literal>) -> String {
        let known = self.constants.iter().find(|(known, _)| Rc::ptr_eq(known, literal));
        if let Some((_, name)) = known {
            return name.clone();
        }
        let name = format!("{}c{}", self.prefix, self.graph.initializer.len());
        self.graph.initializer.push(to_tensor(literal, &name));
        self.constants.push((literal.clone(), name.clone()));
        name
    }

    /// A matrix as `[rows, ...shape]`.
    pub(super) fn rows(&mut self, reference: ValueRef, shape: &[usize]) -> String {
        if let Some(name) = self.names.get(&(reference, shape.to_vec())) {
            return name.clone();
        }
        let (produced, _) = self.natural[&reference].clone();
        let name = self.fresh();
        self.reshape(produced, shape, name.clone());
        self.names.insert((reference, shape.to_vec()), name.clone());
        name
    }

    pub(super) fn reshape(&mut self, from: String, shape: &[usize], to: String) {
        let mut target = vec![Int::number(-1)];
        target.extend(shape.iter().map(|&n| Int::number(n as i64)));
        let target = self.constant(&Rc::new(Literal::ints(target)));
        self.node("Reshape", vec![from, target], vec![to], Vec::new());
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        for node in &mut self.graph.node {
            let names = node.input.iter_mut().chain(&mut node.output);
            names.filter(|name| *name == from).for_each(|name| to.clone_into(name));
        }
        let products = self.byte_products.iter_mut();
        for name in self.names.values_mut().chain(products).filter(|name| *name == from) {
            to.clone_into(name);
        }
        for (name, _) in self.natural.values_mut().filter(|(name, _)| name == from) {
            to.clone_into(name);
        }
    }
}

/// An input or output whose first axis is that of rows.
pub(crate) fn value_info(name: &str, row: &RowSpec) -> ValueInfoProto {
    let data_type = match row.element {
        ElementType::I64 => DataType::INT64,
        ElementType::I32 => DataType::INT32,
        ElementType::Bool => DataType::BOOL,
        _ => DataType::FLOAT,
    };
    let mut dim = vec![Dimension { dim_param: Some("rows".to_owned()), dim_value: None }];
    let row = row.shape.iter().map(|&n| Dimension { dim_value: Some(n as i64), dim_param: None });
    dim.extend(row);
    let tensor =
        TypeProtoTensor { elem_type: Some(data_type), shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { tensor_type: Some(tensor), sequence: None }),
    }
}
