//! Writes the few ONNX files that the suite needs, as protocol buffers by hand. Field numbers are those
//! of `onnx.proto`.

use batchmaker_graph::ElementType;

/// The version of the operators.
const OPSET: u64 = 20;

/// A message: its fields, encoded.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds an integer field.
    fn int(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// Adds a field of bytes: text, or a message.
    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(self, field: u64, message: Self) -> Self {
        self.bytes(field, &message.0)
    }
}

/// `TensorProto.DataType`.
fn data_type(element: ElementType) -> u64 {
    match element {
        ElementType::F32 => 1,
        ElementType::I32 => 6,
        ElementType::I64 => 7,
        ElementType::Bool => 9,
        _ => unreachable!("cells hold stored types"),
    }
}

/// An input or output, and its axes: none is one of any length.
pub(super) struct Port(pub(super) ElementType, pub(super) &'static [Option<u64>]);

fn value_info(name: &str, Port(element, axes): &Port) -> Message {
    let axis = |shape: Message, axis: &Option<u64>| match axis {
        Some(length) => shape.message(1, Message::default().int(1, *length)),
        None => shape.message(1, Message::default().bytes(2, b"n")),
    };
    let shape = axes.iter().fold(Message::default(), axis);
    let tensor = Message::default().int(1, data_type(*element)).message(2, shape);
    Message::default().bytes(1, name.as_bytes()).message(2, Message::default().message(1, tensor))
}

/// A node of an operator.
pub(super) fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> Message {
    let named = |field| move |node: Message, name: &&str| node.bytes(field, name.as_bytes());
    let node = inputs.iter().fold(Message::default(), named(1));
    outputs.iter().fold(node, named(2)).bytes(4, operator.as_bytes())
}

/// The same node with an integer attribute.
pub(super) fn with_attribute(node: Message, name: &str, value: u64) -> Message {
    let attribute = Message::default().bytes(1, name.as_bytes()).int(3, value).int(20, 2);
    node.message(5, attribute)
}

/// A constant of these axes; its elements as they lie in memory, little-endian.
pub(super) fn constant(name: &str, element: ElementType, axes: &[u64], bytes: &[u8]) -> Message {
    let tensor = axes.iter().fold(Message::default(), |tensor, &axis| tensor.int(1, axis));
    tensor.int(2, data_type(element)).bytes(8, name.as_bytes()).bytes(9, bytes)
}

/// A file whose inputs are named `in0`, `in1`, … and whose outputs `out0`, `out1`, ….
pub(super) fn file(
    inputs: &[Port],
    outputs: &[Port],
    constants: Vec<Message>,
    nodes: Vec<Message>,
) -> Vec<u8> {
    let mut graph = Message::default().bytes(2, b"g");
    graph = nodes.into_iter().fold(graph, |graph, node| graph.message(1, node));
    graph = constants.into_iter().fold(graph, |graph, constant| graph.message(5, constant));
    for (field, prefix, ports) in [(11, "in", inputs), (12, "out", outputs)] {
        for (index, port) in ports.iter().enumerate() {
            graph = graph.message(field, value_info(&format!("{prefix}{index}"), port));
        }
    }
    let opset = Message::default().int(2, OPSET);
    Message::default().int(1, 9).message(7, graph).message(8, opset).0
}
