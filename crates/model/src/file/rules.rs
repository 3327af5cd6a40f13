//! Rules by which a request leaves a file's network early, or skips a part of it. Each becomes an `If` on data in the file, so that
//! whatever follows knows nothing else.

use std::collections::BTreeMap;

use crate::data::array::Array;
use crate::data::literal::Literal;
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// The rules of a `model.toml`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) exits: Vec<Exit>,
    pub(crate) skips: Vec<Skip>,
}

/// A condition on a tensor of one number, or truth value, for each sequence.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    /// The tensor.
    pub(crate) tensor: String,
    pub(crate) is: Comparison,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Comparison {
    Above(f32),
    Below(f32),
    Equal(bool),
}

/// An early exit: a sequence for which the condition holds is answered with other tensors.
#[derive(Clone, Debug)]
pub(crate) struct Exit {
    pub(crate) when: Condition,
    /// For each output, the tensor that takes its place.
    pub(crate) reply: BTreeMap<String, String>,
}

/// A part of the network that a sequence skips: where the condition holds, one tensor takes another's place.
#[derive(Clone, Debug)]
pub(crate) struct Skip {
    pub(crate) when: Condition,
    /// The tensor that is not computed then.
    pub(crate) tensor: String,
    /// The one in its place.
    pub(crate) from: String,
}

impl OnnxFile {
    /// Puts the rules into the file. Outputs that only exits name are no outputs any more.
    ///
    /// # Errors
    /// If a rule names a tensor that the file has not, or an exit leaves an output without its tensor.
    pub(crate) fn apply(&mut self, rules: &Rules) -> Result<(), String> {
        for (number, skip) in (1..).zip(&rules.skips) {
            let label = format!("skip {number}");
            self.skip(skip, &label).map_err(|reason| format!("[[skip]] {number}: {reason}"))?;
        }
        let internal: Vec<String> = rules.exits.iter().flat_map(Exit::internal).collect();
        let is_asked_for =
            |name: &String| rules.exits.iter().any(|exit| exit.reply.contains_key(name));
        let kept: Vec<bool> = self
            .outputs
            .iter()
            .map(|name| is_asked_for(name) || !internal.contains(name))
            .collect();
        let mut at = kept.iter();
        self.outputs.retain(|_| *at.next().expect("one for each"));
        let mut at = kept.iter();
        self.output_elements.retain(|_| *at.next().expect("one for each"));
        let mut at = kept.iter();
        self.output_ranks.retain(|_| *at.next().expect("one for each"));
        // A sequence takes the first exit that it may: the last rule is innermost.
        for (at, exit) in rules.exits.iter().enumerate().rev() {
            let number = at + 1;
            self.exit(exit, number).map_err(|reason| format!("[[exit]] {number}: {reason}"))?;
        }
        Ok(())
    }

    fn exit(&mut self, exit: &Exit, number: usize) -> Result<(), String> {
        exit.internal().iter().try_for_each(|name| self.expect_tensor(name))?;
        if let Some(name) = exit.reply.keys().find(|name| !self.outputs.contains(name)) {
            return Err(format!("reply: there is no output `{name}`"));
        }
        if let Some(name) = self.outputs.iter().find(|name| !exit.reply.contains_key(*name)) {
            return Err(format!("reply: nothing for the output `{name}`"));
        }
        // What an exit replaces is another tensor afterwards.
        if let Some(name) = exit.internal().iter().find(|name| exit.reply.contains_key(*name)) {
            return Err(format!("`{name}` is replaced, so that no exit can take it"));
        }
        let label = format!("exit {number}");
        let condition = self.condition(&exit.when, &label)?;
        for (output, tensor) in &exit.reply {
            self.replace(&condition, tensor, output, &label)?;
        }
        Ok(())
    }

    fn skip(&mut self, skip: &Skip, label: &str) -> Result<(), String> {
        let Skip { when, tensor, from } = skip;
        self.expect_tensor(from)?;
        let condition = self.condition(when, label)?;
        self.replace(&condition, from, tensor, label)
    }

    /// Lets `tensor` be `from` where the condition holds.
    fn replace(
        &mut self,
        condition: &str,
        from: &str,
        tensor: &str,
        label: &str,
    ) -> Result<(), String> {
        let elsewhere = hidden(tensor, label);
        let producer = self.nodes.iter_mut().flat_map(|node| &mut node.outputs);
        let mut producers = producer.filter(|output| *output == tensor);
        let Some(output) = producers.next() else {
            return Err(format!("no operator computes `{tensor}`"));
        };
        output.clone_from(&elsewhere);
        // A name of its own, by which a stage may begin with it.
        let select =
            Node::select(format!("{label}: {tensor}"), condition, [from, &elsewhere], tensor);
        self.insert(select)
    }

    /// Adds the condition to the file, and returns the tensor that holds it.
    fn condition(&mut self, when: &Condition, label: &str) -> Result<String, String> {
        self.expect_tensor(&when.tensor)?;
        let (to, number) =
            (hidden(&when.tensor, &format!("{label} when")), hidden(label, "number"));
        let compare =
            |operator| Node::named(operator, label.to_owned(), &[&when.tensor, &number], &to);
        let (node, bound) = match when.is {
            Comparison::Above(bound) => (compare("Greater"), bound),
            Comparison::Below(bound) => (compare("Less"), bound),
            Comparison::Equal(true) => return Ok(when.tensor.clone()),
            Comparison::Equal(false) => {
                (Node::named("Not", label.to_owned(), &[&when.tensor], &to), 0.0)
            }
        };
        self.initializers.insert(number, Ok(Literal::F32(Array::new(vec![], vec![bound]))));
        self.insert(node)?;
        Ok(to)
    }

    /// Inserts a node behind those that compute what it reads.
    fn insert(&mut self, node: Node) -> Result<(), String> {
        let reads: Vec<String> = node.reads().into_iter().cloned().collect();
        let writes = |of: &Node| of.outputs.iter().any(|output| reads.contains(output));
        let at = self.nodes.iter().rposition(writes).map_or(0, |last| last + 1);
        self.nodes.insert(at, node);
        self.sort_from(at)
    }

    /// Moves nodes behind one that was inserted, if they read what it writes, or what these write.
    fn sort_from(&mut self, at: usize) -> Result<(), String> {
        let mut late: Vec<String> = self.nodes[at].outputs.clone();
        let reads: Vec<String> = self.nodes[at].reads().into_iter().cloned().collect();
        let (mut before, mut moved) = (Vec::new(), Vec::new());
        let after = self.nodes.split_off(at);
        for node in self.nodes.drain(..) {
            match node.reads().iter().any(|name| late.contains(name)) {
                true => {
                    if let Some(name) = node.outputs.iter().find(|name| reads.contains(name)) {
                        return Err(format!("`{name}` depends on what the rule computes of it"));
                    }
                    late.extend(node.outputs.iter().cloned());
                    moved.push(node);
                }
                false => before.push(node),
            }
        }
        let mut after = after.into_iter();
        before.extend(after.next());
        before.extend(moved);
        before.extend(after);
        self.nodes = before;
        Ok(())
    }

    fn expect_tensor(&self, name: &str) -> Result<(), String> {
        let is_computed = self.nodes.iter().any(|node| node.outputs.iter().any(|of| of == name));
        match is_computed || self.has_input(name) {
            true => Ok(()),
            false => Err(format!("no output depends on a tensor `{name}`")),
        }
    }
}

impl Exit {
    /// The tensors that it takes.
    fn internal(&self) -> Vec<String> {
        self.reply.values().chain([&self.when.tensor]).cloned().collect()
    }
}

/// A name that no file can give.
fn hidden(name: &str, of: &str) -> String {
    format!("{name}\u{0}{of}")
}
