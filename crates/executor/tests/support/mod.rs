//! Programs made in the tests.

#![allow(dead_code, reason = "every test uses a part of it")]

use batchmaker_graph::{
    BYTE_PRODUCTS, ElementType, PortAxes, Program, RowSpec, SequenceCell, TensorData,
};
use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataType, Dimension, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto, TypeProto,
    TypeProtoTensor, ValueInfoProto,
};

pub(crate) mod networks;

/// A program that is being written: inputs `in0`, `in1`, …, outputs `out0`, `out1`, ….
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) graph: GraphProto,
    pub(crate) inputs: Vec<(RowSpec, PortAxes)>,
    pub(crate) outputs: Vec<(RowSpec, PortAxes)>,
    /// Outputs of products that are marked as ones of bytes.
    pub(crate) byte_products: Vec<String>,
    values: usize,
}

pub(crate) const ROWS: PortAxes = PortAxes { batch: true, steps: false };
pub(crate) const STEPS: PortAxes = PortAxes { batch: true, steps: true };

impl Writer {
    pub(crate) fn input(&mut self, element: ElementType, axes: PortAxes, row: &[usize]) -> String {
        let name = format!("in{}", self.inputs.len());
        let row = RowSpec::new(element, row);
        self.graph.input.push(info(&name, &row, axes));
        self.inputs.push((row, axes));
        name
    }

    pub(crate) fn floats(&mut self, row: &[usize]) -> String {
        self.input(ElementType::F32, ROWS, row)
    }

    pub(crate) fn output(
        &mut self,
        from: &str,
        element: ElementType,
        axes: PortAxes,
        row: &[usize],
    ) {
        let name = format!("out{}", self.outputs.len());
        let row = RowSpec::new(element, row);
        self.graph.output.push(info(&name, &row, axes));
        self.outputs.push((row, axes));
        self.graph.node.push(node("Identity", &[from], &[&name], vec![]));
    }

    /// A constant of numbers from -1 to 1, by a fixed rule.
    pub(crate) fn weights(&mut self, dims: &[usize]) -> String {
        let name = self.fresh();
        let count: usize = dims.iter().product();
        self.graph.initializer.push(TensorProto {
            name: Some(name.clone()),
            dims: dims.iter().map(|&n| n as i64).collect(),
            data_type: Some(DataType::FLOAT),
            float_data: numbers(count, self.values as u32),
            ..TensorProto::default()
        });
        name
    }

    pub(crate) fn ints(&mut self, values: &[i64]) -> String {
        let name = self.fresh();
        self.graph.initializer.push(TensorProto {
            name: Some(name.clone()),
            dims: vec![values.len() as i64],
            data_type: Some(DataType::INT64),
            int64_data: values.to_vec(),
            ..TensorProto::default()
        });
        name
    }

    pub(crate) fn int(&mut self, value: i64) -> String {
        let name = self.ints(&[value]);
        self.graph.initializer.last_mut().unwrap().dims.clear();
        name
    }

    pub(crate) fn float(&mut self, value: f32) -> String {
        let name = self.weights(&[]);
        self.graph.initializer.last_mut().unwrap().float_data = vec![value];
        name
    }

    pub(crate) fn op(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> String {
        let name = self.fresh();
        self.graph.node.push(node(operator, inputs, &[&name], attributes));
        name
    }

    pub(crate) fn reshape(&mut self, x: &str, dims: &[i64]) -> String {
        let dims = self.ints(dims);
        self.op("Reshape", &[x, &dims], vec![])
    }

    /// A constant of these numbers.
    pub(crate) fn numbers(&mut self, dims: &[usize], numbers: Vec<f32>) -> String {
        let name = self.weights(dims);
        self.graph.initializer.last_mut().unwrap().float_data = numbers;
        name
    }

    /// x W + b.
    pub(crate) fn linear(&mut self, x: &str, from: usize, to: usize) -> String {
        let (w, b) = (self.weights(&[from, to]), self.weights(&[to]));
        let product = self.op("MatMul", &[x, &w], vec![]);
        self.op("Add", &[&product, &b], vec![])
    }

    fn fresh(&mut self) -> String {
        self.values += 1;
        format!("v{}", self.values)
    }

    pub(crate) fn program(&self) -> Program {
        let GraphProto { node, initializer, input, output, .. } = &self.graph;
        let graph = GraphProto {
            node: node.clone(),
            initializer: initializer.clone(),
            input: input.clone(),
            output: output.clone(),
            ..GraphProto::default()
        };
        let byte_products = StringStringEntryProto {
            key: Some(BYTE_PRODUCTS.to_owned()),
            value: Some(self.byte_products.join(" ")),
        };
        let model = ModelProto {
            metadata_props: vec![byte_products],
            ir_version: Some(9),
            graph: Some(graph),
            opset_import: vec![OperatorSetIdProto { domain: None, version: Some(20) }],
            ..ModelProto::default()
        };
        let bytes = model.write_buf().unwrap().into();
        Program { bytes, summary: "test".to_owned(), has_products: true }
    }

    pub(crate) fn sequence_cell(&self) -> SequenceCell {
        let axes = |ports: &[(RowSpec, PortAxes)]| ports.iter().map(|(_, axes)| *axes).collect();
        let (inputs, outputs) = (axes(&self.inputs), axes(&self.outputs));
        SequenceCell { program: self.program(), inputs, outputs }
    }

    pub(crate) fn rows(ports: &[(RowSpec, PortAxes)]) -> Vec<RowSpec> {
        ports.iter().map(|(row, _)| row.clone()).collect()
    }
}

pub(crate) fn node(
    operator: &str,
    inputs: &[&str],
    outputs: &[&str],
    attribute: Vec<AttributeProto>,
) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    NodeProto {
        op_type: Some(operator.to_owned()),
        input: names(inputs),
        output: names(outputs),
        attribute,
        ..NodeProto::default()
    }
}

pub(crate) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        i: Some(i),
        r#type: Some(AttributeType::INT),
        ..AttributeProto::default()
    }
}

pub(crate) fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        ints: ints.to_vec(),
        r#type: Some(AttributeType::INTS),
        ..AttributeProto::default()
    }
}

fn info(name: &str, row: &RowSpec, axes: PortAxes) -> ValueInfoProto {
    let symbol = |text: String| Dimension { dim_param: Some(text), dim_value: None };
    let mut dim = Vec::new();
    dim.extend(axes.batch.then(|| symbol("batch".to_owned())));
    dim.extend(axes.steps.then(|| symbol(format!("steps of {name}"))));
    dim.extend(row.shape.iter().map(|&n| Dimension { dim_value: Some(n as i64), dim_param: None }));
    let elem_type = Some(match row.element {
        ElementType::F32 => DataType::FLOAT,
        ElementType::I64 => DataType::INT64,
        ElementType::I32 => DataType::INT32,
        _ => DataType::BOOL,
    });
    let tensor = TypeProtoTensor { elem_type, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { tensor_type: Some(tensor), sequence: None }),
    }
}

/// Numbers from -1 to 1.
pub(crate) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let number = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(number).collect()
}

/// Values of a port: of integers small ones, of floats many sizes.
pub(crate) fn values(row: &RowSpec, count: usize, seed: u32) -> TensorData {
    let numbers = numbers(count * row.elements(), seed);
    match row.element {
        ElementType::F32 => TensorData::F32(numbers.into_iter().map(|x| 3.0 * x).collect()),
        ElementType::I64 => {
            TensorData::I64(numbers.into_iter().map(|x| (x.abs() * 5.0) as i64).collect())
        }
        ElementType::Bool => TensorData::Bool(numbers.into_iter().map(|x| x > 0.0).collect()),
        other => panic!("{other}"),
    }
}

/// The bits of elements `first..first + count`.
pub(crate) fn bits(data: &TensorData, first: usize, count: usize) -> Vec<u64> {
    match data {
        TensorData::F32(x) => x[first..][..count].iter().map(|x| u64::from(x.to_bits())).collect(),
        TensorData::I64(x) => x[first..][..count].iter().map(|&x| x as u64).collect(),
        TensorData::Bool(x) => x[first..][..count].iter().map(|&x| u64::from(x)).collect(),
        other => panic!("{other:?}"),
    }
}

/// Elements `first..first + count`.
pub(crate) fn part(data: &TensorData, first: usize, count: usize) -> TensorData {
    match data {
        TensorData::F32(x) => TensorData::F32(x[first..][..count].to_vec()),
        TensorData::I64(x) => TensorData::I64(x[first..][..count].to_vec()),
        TensorData::Bool(x) => TensorData::Bool(x[first..][..count].to_vec()),
        other => panic!("{other:?}"),
    }
}
