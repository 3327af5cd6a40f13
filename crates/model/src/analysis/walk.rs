//! Goes through the nodes of a graph, each by its rule in the table of operators.

use crate::analysis::operator::Inputs;
use crate::analysis::operators::dispatch;
use crate::analysis::operators::overflow::check_overflow;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::symbol::BATCH;
use crate::file::node::{Node, Subgraph};
use crate::file::onnx_file::OnnxFile;

impl Analysis {
    /// Adds a node: afterwards its outputs are known, or the diagnostics say why not.
    pub(crate) fn add_node(&mut self, node: &Node, file: &OnnxFile) {
        let mut inputs = Vec::new();
        for name in &node.inputs {
            inputs.push(if name.is_empty() { None } else { Some(self.value(name, file)) });
        }
        let results = self.results(node, &inputs, file);
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

    fn results(
        &mut self,
        node: &Node,
        inputs: &Inputs,
        file: &OnnxFile,
    ) -> Result<Vec<Val>, String> {
        if !node.domain.is_empty() && self.operators.find(&node.qualified()).is_none() {
            let domain = &node.domain;
            return Err(format!(
                "operators of domain `{domain}` (functions of the file included) are not supported"
            ));
        }
        match dispatch::entry(self, node)?.in_graph {
            Some(rule) => rule(self, node, inputs, file),
            None if inputs.iter().flatten().any(|val| matches!(val, Val::Unknown)) => {
                Ok(Vec::new())
            }
            None => {
                let outputs = dispatch::evaluate(self, node, inputs)?;
                check_overflow(self, node, inputs, &outputs)?;
                self.note_rounded_to_float(node, inputs, &outputs);
                Ok(outputs)
            }
        }
    }

    /// Adds the constants of a graph inside a node.
    pub(crate) fn add_initializers(&mut self, graph: &Subgraph) {
        for (name, literal) in &graph.initializers {
            let val = match literal {
                Ok(literal) => Val::literal(literal.clone()),
                Err(reason) => {
                    self.diagnose("initializer", name, reason);
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
                self.diagnose("initializer", name, reason);
                Val::Unknown
            }
            None => {
                let reason = "nothing in the file makes it (sparse initializers and values from \
                              outside a subgraph are not supported)";
                self.diagnose("value", name, reason);
                Val::Unknown
            }
        };
        self.values.insert(name.to_owned(), val.clone());
        val
    }

    pub(crate) fn add_output(&mut self, name: &str, file: &OnnxFile) {
        match self.value(name, file) {
            Val::View(mut view) => {
                // Floats of all types are computed with as FLOAT: the file says which they are.
                let at = file.outputs.iter().position(|output| output == name);
                let declared = at.and_then(|at| file.output_elements[at]);
                if let Some(declared) = declared.filter(|declared| declared.is_float())
                    && view.element.is_float()
                {
                    view.element = declared;
                }
                self.outputs.push((name.to_owned(), view));
            }
            Val::Unknown => {}
            Val::PerSequence(_) => {
                // The next pass takes one sequence a request.
                self.bind(BATCH, 1);
                self.diagnose("output", name, "each sequence has it for itself");
            }
            Val::List(_) => self.diagnose("output", name, "it is a sequence of tensors"),
            Val::Literal(literal) if literal.data().is_none() => {
                self.diagnose("output", name, "it is made of the request's lengths alone");
            }
            Val::Literal(_) | Val::Fill(..) | Val::Repeat(..) => {
                self.diagnose("output", name, "it does not depend on the request");
            }
        }
    }
}
