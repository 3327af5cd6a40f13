//! Writes sections in the order in which they run, with the operators that a plan of memory is made of.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use batchmaker_kernels::{Packing, Reduction};
use rten_onnx::onnx::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

use crate::memory_plan::NATIVE_ATTENTION;
use crate::operator::operator;
use crate::run_order::reads;
use crate::sections::constants::Constants;
use crate::sections::element_chain::ElementChain;
use crate::sections::fallback::{ConstantLayout, Fallback};
use crate::sections::guards::Guard;
use crate::sections::native_section::{NativeKind, NativeSection};
use crate::sections::product::{Operands, PackedWeights};
use crate::sections::sectioned_program::{Section, SectionKind, SectionName, SectionedProgram};
use crate::sections::strided_view::StridedView;
use crate::single_row_branch::Copies;
use crate::threads::Attendance;

/// A program that was cut into sections.
pub(crate) struct Cut {
    pub(crate) program: SectionedProgram,
    /// The operators in the order in which they run, for the plan of memory. A native section is one operator `Native`.
    pub(crate) graph: GraphProto,
    /// Maps a tensor of `graph` whose channels come last to the tensor of the file that it holds.
    pub(crate) copies: Copies,
    /// The most bytes that one native section needs beside its tensors.
    pub(crate) scratch_bytes: u64,
}

/// The operators that a fallback section holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallbacks {
    /// All of one depth.
    Whole,
    /// One, so that its time can be taken.
    OneOperator,
}

/// The order of the axes of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layout {
    ChannelsFirst,
    ChannelsLast,
}

impl Layout {
    /// Channels last, or not.
    fn last(has_channels_last: bool) -> Self {
        if has_channels_last { Self::ChannelsLast } else { Self::ChannelsFirst }
    }
}

/// Writes the sections of one program.
pub(super) struct SectionWriter<'a> {
    file: &'a ModelProto,
    constants: &'a Constants<'a>,
    /// How products with constant matrices are packed; convolutions, for the same instructions in f32.
    packing: Packing,
    weights: PackedWeights,
    /// The number of each tensor by its name and layout.
    names: BTreeMap<(String, Layout), usize>,
    sections: Vec<Section>,
    tensors: usize,
    /// See [`Cut`].
    graph: GraphProto,
    copies: Copies,
    scratch_bytes: u64,
}

impl<'a> SectionWriter<'a> {
    /// A writer for the program in `file`.
    pub(super) fn new(
        file: &'a ModelProto,
        constants: &'a Constants<'a>,
        packing: Packing,
    ) -> Self {
        Self {
            file,
            constants,
            packing,
            weights: PackedWeights::default(),
            names: BTreeMap::new(),
            sections: Vec::new(),
            tensors: 0,
            graph: GraphProto::default(),
            copies: Copies::new(),
            scratch_bytes: 0,
        }
    }

    /// Writes all sections. Returns none if rten does not take the operators of one, or a tensor has no producer.
    pub(super) fn write(
        mut self,
        graph: &GraphProto,
        native: Vec<NativeSection>,
        fallback: &BTreeMap<usize, Vec<&NodeProto>>,
        fallbacks: Fallbacks,
    ) -> Option<Cut> {
        let names = |infos: &[ValueInfoProto]| -> Option<Vec<String>> {
            infos.iter().map(|info| info.name.clone()).collect()
        };
        let (input_names, output_names) = (names(&graph.input)?, names(&graph.output)?);
        let inputs = input_names.into_iter();
        let inputs = inputs.map(|name| self.tensor(name, Layout::ChannelsFirst)).collect();
        let depths = native.iter().map(|section| section.depth);
        let deepest = depths.chain(fallback.keys().copied()).max()?;
        let mut by_depth: BTreeMap<usize, Vec<NativeSection>> = BTreeMap::new();
        for section in native {
            by_depth.entry(section.depth).or_default().push(section);
        }
        for depth in 0..=deepest {
            let mut sections = VecDeque::from(by_depth.remove(&depth).unwrap_or_default());
            while let Some(section) = sections.pop_front() {
                let is_other = |other: &NativeSection| section.is_other_extreme(other);
                match sections.iter().position(is_other).and_then(|at| sections.remove(at)) {
                    Some(other) => self.extremes(section, other)?,
                    None => self.native(section)?,
                }
            }
            let Some(nodes) = fallback.get(&depth) else { continue };
            let later = fallback.range(depth + 1..).flat_map(|(_, nodes)| nodes);
            let mut read: BTreeSet<&str> = later.flat_map(|node| reads(node)).collect();
            let native = by_depth.values().flatten().flat_map(|section| &section.reads);
            read.extend(native.chain(&output_names).map(String::as_str));
            match fallbacks {
                Fallbacks::Whole => self.fallback(nodes, &read)?,
                Fallbacks::OneOperator => {
                    read.extend(nodes.iter().flat_map(|node| reads(node)));
                    nodes.iter().try_for_each(|&node| self.fallback(&[node], &read))?;
                }
            }
        }
        let outputs = output_names.iter().map(|name| self.read(name, Layout::ChannelsFirst));
        let outputs: Vec<usize> = outputs.collect::<Option<_>>()?;
        let Self { mut sections, tensors, graph: mut plan, copies, scratch_bytes, .. } = self;
        let mut read: BTreeSet<usize> = outputs.iter().copied().collect();
        for section in sections.iter_mut().rev() {
            let last = section.reads.iter().copied().filter(|&tensor| read.insert(tensor));
            section.last = last.collect();
        }
        plan.input.clone_from(&graph.input);
        plan.output.clone_from(&graph.output);
        let program = SectionedProgram {
            sections,
            tensors,
            inputs,
            outputs,
            attendance: Attendance::default(),
        };
        Some(Cut { program, graph: plan, copies, scratch_bytes })
    }

    /// Numbers a tensor.
    fn tensor(&mut self, name: String, layout: Layout) -> usize {
        self.names.insert((name, layout), self.tensors);
        self.tensors += 1;
        self.tensors - 1
    }

    /// The number of a tensor in a layout. The tensor is converted if it has only been produced in the other layout.
    fn read(&mut self, name: &str, layout: Layout) -> Option<usize> {
        if let Some(&tensor) = self.names.get(&(name.to_owned(), layout)) {
            return Some(tensor);
        }
        let (other, kind) = match layout {
            Layout::ChannelsFirst => (Layout::ChannelsLast, SectionKind::ToChannelsFirst),
            Layout::ChannelsLast => (Layout::ChannelsFirst, SectionKind::ToChannelsLast),
        };
        let from = *self.names.get(&(name.to_owned(), other))?;
        let to = self.tensor(name.to_owned(), layout);
        self.plan("Layout", &[(name, other)], (&[name.to_owned()], layout));
        let operators = match layout {
            Layout::ChannelsFirst => "to channels first",
            Layout::ChannelsLast => "to channels last",
        };
        self.add(kind, operators.to_owned(), (vec![from], vec![to]));
        Some(to)
    }

    fn add(
        &mut self,
        kind: SectionKind,
        operators: String,
        (reads, writes): (Vec<usize>, Vec<usize>),
    ) {
        let number_of = |&tensor: &usize| {
            let mut names = self.names.iter();
            names.find(|(_, number)| **number == tensor).map(|((name, _), _)| name.clone())
        };
        let output = writes.last().and_then(number_of).unwrap_or_default();
        let name = SectionName { operators, output };
        self.sections.push(Section { kind, name, reads, writes, last: Vec::new() });
    }

    /// Adds an operator to the plan of memory.
    fn plan(
        &mut self,
        operator: &str,
        inputs: &[(&str, Layout)],
        (outputs, layout): (&[String], Layout),
    ) {
        let mut name = |(name, layout): (&str, Layout)| match layout {
            Layout::ChannelsFirst => name.to_owned(),
            Layout::ChannelsLast => {
                let converted = format!("{name}, channels last");
                self.copies.insert(converted.clone(), (name.to_owned(), false));
                converted
            }
        };
        let input = inputs.iter().map(|&input| name(input)).collect();
        let output = outputs.iter().map(|output| name((output, layout))).collect();
        let op_type = Some(operator.to_owned());
        self.graph.node.push(NodeProto { op_type, input, output, ..NodeProto::default() });
    }

    fn native(&mut self, section: NativeSection) -> Option<()> {
        let outputs = section.outputs().to_vec();
        let NativeSection { kind, reads: inputs, activation, output, .. } = section;
        let layout = Layout::last(kind.has_channels_last());
        let of_read = |(at, name)| (name, Layout::last(kind.reads_channels_last(at)));
        let named: Vec<(&str, Layout)> =
            inputs.iter().map(String::as_str).enumerate().map(of_read).collect();
        let reads = named.iter().map(|&(name, layout)| self.read(name, layout));
        let reads: Vec<usize> = reads.collect::<Option<_>>()?;
        match &kind {
            NativeKind::Guard(_, node) => self.graph.node.push(node.clone()),
            NativeKind::Attention(attention) => {
                let packed = attention.packed.iter().map(|name| (&name[..], Layout::ChannelsFirst));
                let named: Vec<(&str, Layout)> = packed.chain(named.iter().copied()).collect();
                self.plan(NATIVE_ATTENTION, &named, (&outputs, layout));
            }
            _ => self.plan("Native", &named, (&outputs, layout)),
        }
        let operators = kind.describe(self.packing.precision, &activation, inputs.len());
        let (kind, scratch_bytes) = match kind {
            NativeKind::Convolution(convolution) => {
                let convolution = convolution.pack(self.packing.isa, activation)?;
                let scratch_bytes = convolution.scratch_bytes();
                (SectionKind::Convolution(convolution), scratch_bytes)
            }
            NativeKind::Product { weights, bias, factors, .. } => {
                let operands = Operands { weights, bias, factors };
                let product =
                    self.weights.product(self.packing, self.constants, operands, activation)?;
                let scratch_bytes = product.scratch_bytes();
                (SectionKind::Product(product), scratch_bytes)
            }
            NativeKind::Pool(pool) => (SectionKind::Pool(pool), 0),
            NativeKind::Concat => (SectionKind::Concat, 0),
            NativeKind::Mean => (SectionKind::Mean, 0),
            NativeKind::Gate => (SectionKind::Gate, 0),
            NativeKind::Enlarge(repeats) => (SectionKind::Enlarge(repeats), 0),
            NativeKind::Shuffle { groups } => (SectionKind::Shuffle { groups }, 0),
            NativeKind::Softmax => (SectionKind::Softmax, 0),
            NativeKind::Attention(attention) => (SectionKind::Attention(attention), 0),
            NativeKind::Join(join) => (SectionKind::Join(join), 0),
            NativeKind::Take(take, _) => (SectionKind::Take(take), 0),
            NativeKind::Chain(steps, _) => (SectionKind::Chain(ElementChain(steps)), 0),
            NativeKind::PixelChain(chain, _) => (SectionKind::PixelChain(chain), 0),
            NativeKind::Reduce { reduce, .. } => (SectionKind::Reduce(reduce), 0),
            NativeKind::Scalars(group) => (SectionKind::Scalars(group.scalars), 0),
            NativeKind::View { steps, .. } => (SectionKind::View(StridedView(steps)), 0),
            NativeKind::LayerNorm(layer_norm) => (SectionKind::LayerNorm(layer_norm), 0),
            NativeKind::Guard(operator, node) => {
                let (outputs, layout) = ([output.clone()], ConstantLayout::ChannelsFirst);
                let mut ports = inputs.clone();
                ports.dedup();
                if ports.len() < inputs.len() {
                    return None;
                }
                let ports = (&ports[..], &outputs[..]);
                let fallback = Fallback::load(self.file, &[node], self.constants, ports, layout)?;
                (SectionKind::Guard(Guard { operator, fallback: Box::new(fallback) }), 0)
            }
            NativeKind::Elementwise(nodes) => {
                let ports = (&inputs[..], std::slice::from_ref(&output));
                let layout = ConstantLayout::ChannelsLast;
                let fallback = Fallback::load(self.file, &nodes, self.constants, ports, layout)?;
                (SectionKind::Elementwise(Box::new(fallback)), 0)
            }
        };
        self.scratch_bytes = self.scratch_bytes.max(scratch_bytes as u64);
        let writes = outputs.into_iter().map(|output| self.tensor(output, layout)).collect();
        self.add(kind, operators, (reads, writes));
        Some(())
    }

    /// Writes two reductions of one tensor to opposite extremes as one section: one pass over the tensor if its rows are long.
    fn extremes(&mut self, one: NativeSection, other: NativeSection) -> Option<()> {
        let NativeKind::Reduce { reduce, of_channels_last } = &one.kind else { return None };
        let of_read = Layout::last(*of_channels_last);
        let kind = SectionKind::Extremes(reduce.clone());
        let [least, greatest] = match reduce.reduction {
            Reduction::Least => [one, other],
            _ => [other, one],
        };
        let layout = Layout::ChannelsFirst;
        let read = self.read(&least.reads[0], of_read)?;
        let describe = |section: &NativeSection| {
            section.kind.describe(self.packing.precision, &section.activation, 1)
        };
        let operators = [&least, &greatest].map(describe).join(", ");
        let outputs = [&least, &greatest].map(|section| section.output.clone());
        self.plan("Native", &[(&least.reads[0], of_read)], (&outputs, layout));
        let writes = outputs.map(|output| self.tensor(output, layout));
        self.add(kind, operators, (vec![read], writes.into()));
        Some(())
    }

    /// Writes operators of one depth as a fallback section. Its outputs are the tensors in `read`.
    fn fallback(&mut self, nodes: &[&NodeProto], read: &BTreeSet<&str>) -> Option<()> {
        let produced: BTreeSet<&str> =
            nodes.iter().flat_map(|node| &node.output).map(String::as_str).collect();
        let mut inputs = BTreeSet::new();
        for name in nodes.iter().flat_map(|node| reads(node)) {
            if !produced.contains(name) && !self.constants.has(name) {
                inputs.insert(name.to_owned());
            }
        }
        let inputs: Vec<String> = inputs.into_iter().collect();
        let outputs: Vec<String> =
            produced.intersection(read).map(|&name| name.to_owned()).collect();
        let reads = inputs.iter().map(|name| self.read(name, Layout::ChannelsFirst));
        let reads = reads.collect::<Option<_>>()?;
        let nodes: Vec<NodeProto> = nodes.iter().map(|&node| node.clone()).collect();
        let (ports, layout) = ((&inputs[..], &outputs[..]), ConstantLayout::ChannelsFirst);
        let fallback = Fallback::load(self.file, &nodes, self.constants, ports, layout)?;
        let operators: Vec<&str> = nodes.iter().map(operator).collect();
        let operators = operators.join(", ");
        self.graph.node.extend(nodes);
        let writes = outputs.into_iter();
        let writes = writes.map(|name| self.tensor(name, Layout::ChannelsFirst)).collect();
        self.add(SectionKind::Fallback(Box::new(fallback)), operators, (reads, writes));
        Some(())
    }
}
