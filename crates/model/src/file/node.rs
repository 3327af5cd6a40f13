//! The nodes of an ONNX graph: operators over named values.

use std::borrow::Cow;

use rten_onnx::onnx::AttributeProto;

use crate::data::literal::Literal;
use crate::error::Diagnostic;
use crate::file::tensor::literal;

/// An operator with its inputs and outputs by name.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) operator: String,
    pub(crate) domain: String,
    /// The node's name, or `OP_k`: the k-th node of the file.
    pub(crate) label: String,
    /// Empty: an optional input that is absent.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(super) attributes: Vec<AttributeProto>,
    /// The subgraphs, by the name of their attribute.
    pub(super) subgraphs: Vec<(String, Subgraph)>,
}

/// A graph inside a node, which may read values of the graphs around it.
#[derive(Clone)]
pub(crate) struct Subgraph {
    /// The names of its inputs, in order.
    pub(crate) inputs: Vec<String>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) initializers: Vec<(String, Result<Literal, String>)>,
    pub(crate) outputs: Vec<String>,
}

impl Node {
    /// A `Transpose` of the value `from` to the value `to`.
    pub(crate) fn transpose(label: String, from: &str, to: &str, permutation: &[usize]) -> Self {
        let perm = AttributeProto {
            name: Some("perm".to_owned()),
            ints: permutation.iter().map(|&axis| axis as i64).collect(),
            ..AttributeProto::default()
        };
        Self {
            operator: "Transpose".to_owned(),
            domain: String::new(),
            label,
            inputs: vec![from.to_owned()],
            outputs: vec![to.to_owned()],
            attributes: vec![perm],
            subgraphs: Vec::new(),
        }
    }

    /// An `If` that picks one of two values from around it.
    pub(crate) fn select(
        label: String,
        condition: &str,
        [then, otherwise]: [&str; 2],
        to: &str,
    ) -> Self {
        let branch = |value: &str| Subgraph {
            inputs: Vec::new(),
            nodes: Vec::new(),
            initializers: Vec::new(),
            outputs: vec![value.to_owned()],
        };
        let then = ("then_branch".to_owned(), branch(then));
        let otherwise = ("else_branch".to_owned(), branch(otherwise));
        Self { subgraphs: vec![then, otherwise], ..Self::named("If", label, &[condition], to) }
    }

    /// An operator of ONNX's own without attributes.
    pub(crate) fn named(operator: &str, label: String, inputs: &[&str], to: &str) -> Self {
        Self {
            operator: operator.to_owned(),
            domain: String::new(),
            label,
            inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
            outputs: vec![to.to_owned()],
            attributes: Vec::new(),
            subgraphs: Vec::new(),
        }
    }

    /// The same operator with another body, inputs and outputs.
    pub(crate) fn with_body(
        &self,
        body: Subgraph,
        inputs: Vec<String>,
        outputs: Vec<String>,
    ) -> Self {
        Self {
            inputs,
            outputs,
            attributes: self.attributes.clone(),
            subgraphs: vec![("body".to_owned(), body)],
            ..Self::plain(&self.operator, self)
        }
    }

    /// Whether it has graphs inside.
    pub(crate) fn has_subgraphs(&self) -> bool {
        !self.subgraphs.is_empty()
    }

    /// An operator without attributes, in the place of `node`.
    pub(crate) fn plain(operator: &str, node: &Self) -> Self {
        Self {
            operator: operator.to_owned(),
            domain: String::new(),
            label: node.label.clone(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: Vec::new(),
            subgraphs: Vec::new(),
        }
    }

    pub(crate) fn with(self, attributes: Vec<AttributeProto>) -> Self {
        Self { attributes, ..self }
    }

    /// The operator's name, behind its domain if that is another than ONNX's own.
    pub(crate) fn qualified(&self) -> Cow<'_, str> {
        match self.domain.is_empty() {
            true => Cow::Borrowed(&self.operator),
            false => Cow::Owned(format!("{}.{}", self.domain, self.operator)),
        }
    }

    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attribute| attribute.name.as_deref() == Some(name))
    }

    /// Those of its attributes that have one of these names.
    pub(crate) fn attributes_named(&self, names: &[&str]) -> Vec<AttributeProto> {
        let is_named = |attribute: &&AttributeProto| {
            attribute.name.as_deref().is_some_and(|n| names.contains(&n))
        };
        self.attributes.iter().filter(is_named).cloned().collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|attribute| attribute.i.unwrap_or(0))
    }

    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name).map(|attribute| attribute.f.unwrap_or(0.0))
    }

    pub(crate) fn string(&self, name: &str) -> Option<&str> {
        self.attribute(name).map(|attribute| attribute.s.as_deref().unwrap_or(""))
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    pub(crate) fn floats(&self, name: &str) -> Option<&[f32]> {
        self.attribute(name).map(|attribute| attribute.floats.as_slice())
    }

    pub(crate) fn strings(&self, name: &str) -> &[String] {
        self.attribute(name).map_or(&[], |attribute| attribute.strings.as_slice())
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<Result<Literal, String>> {
        let tensor = self.attribute(name)?.t.as_ref()?;
        Some(literal(tensor, None))
    }

    pub(crate) fn subgraph(&self, name: &str) -> Option<&Subgraph> {
        self.subgraphs.iter().find(|(attribute, _)| attribute == name).map(|(_, graph)| graph)
    }

    /// All names of values in it, those of its subgraphs included.
    pub(crate) fn names_mut(&mut self) -> Vec<&mut String> {
        let mut names: Vec<&mut String> = self.inputs.iter_mut().chain(&mut self.outputs).collect();
        for (_, graph) in &mut self.subgraphs {
            names.extend(&mut graph.outputs);
            names.extend(graph.nodes.iter_mut().flat_map(Node::names_mut));
        }
        names
    }

    /// The values that it and its subgraphs read; some may be produced inside.
    pub(crate) fn reads(&self) -> Vec<&String> {
        let mut names: Vec<&String> = self.inputs.iter().collect();
        for (_, graph) in &self.subgraphs {
            names.extend(&graph.outputs);
            names.extend(graph.nodes.iter().flat_map(Node::reads));
        }
        names
    }

    pub(crate) fn output(&self, index: usize) -> Option<&str> {
        self.outputs.get(index).map(String::as_str).filter(|name| !name.is_empty())
    }

    pub(crate) fn diagnostic(&self, reason: impl Into<String>) -> Diagnostic {
        Diagnostic {
            operator: self.operator.clone(),
            node: self.label.clone(),
            reason: reason.into(),
        }
    }
}
