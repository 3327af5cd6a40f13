//! Sorts the operators of a program into native sections and, by their depth, fallback operators.

use std::collections::{BTreeMap, BTreeSet};

use batchmaker_kernels::{Activation, Factors};
use rten_onnx::onnx::{GraphProto, NodeProto};

use crate::growth::Growth;
use crate::operator::operator;
use crate::probe::Probe;
use crate::run_order::reads;
use crate::sections::constants::{Constants, float, int};
use crate::sections::convolution::UnpackedConvolution;
use crate::sections::element_chain::ElementChain;
use crate::sections::element_types::Floats;
use crate::sections::guards::Guarded;
use crate::sections::known_scalars::scalars_of;
use crate::sections::layer_norm::LayerNorm;
use crate::sections::native_section::{NativeKind, NativeSection};
use crate::sections::pooling::Pool;

/// Operators that make an element of one of each tensor.
const ELEMENTWISE: [&str; 25] = [
    "Abs",
    "Add",
    "Ceil",
    "Clip",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Max",
    "Min",
    "Mul",
    "Neg",
    "Relu",
    "Round",
    "Sigmoid",
    "Softplus",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tanh",
];

/// The operators of a program, sorted.
pub(super) struct Sorted<'a> {
    pub(super) native: Vec<NativeSection>,
    /// The fallback operators of each depth.
    pub(super) fallback: BTreeMap<usize, Vec<&'a NodeProto>>,
}

/// Sorts operators, which it is given producers first.
pub(super) struct Sorter<'a> {
    pub(super) constants: &'a Constants<'a>,
    pub(super) probe: &'a Probe,
    pub(super) floats: Floats<'a>,
    /// The outputs of products whose factors are bytes.
    byte_products: &'a BTreeSet<&'a str>,
    /// The number of times that operators and outputs of the program read each tensor.
    pub(super) readers: BTreeMap<&'a str, usize>,
    /// The operator that produces each tensor.
    pub(super) producers: BTreeMap<&'a str, &'a NodeProto>,
    /// The tensors that are scalars at all lengths.
    pub(super) scalars: BTreeSet<&'a str>,
    /// The depth of each tensor.
    depths: BTreeMap<&'a str, usize>,
    pub(super) native: Vec<NativeSection>,
    pub(super) fallback: BTreeMap<usize, Vec<&'a NodeProto>>,
}

impl<'a> Sorter<'a> {
    pub(super) fn new(
        graph: &'a GraphProto,
        constants: &'a Constants<'a>,
        probe: &'a Probe,
        byte_products: &'a BTreeSet<&'a str>,
    ) -> Self {
        let mut readers = BTreeMap::new();
        let outputs = graph.output.iter().filter_map(|output| output.name.as_deref());
        for name in graph.node.iter().flat_map(reads).chain(outputs) {
            *readers.entry(name).or_insert(0) += 1;
        }
        let produced =
            |node: &'a NodeProto| node.output.iter().map(move |name| (name.as_str(), node));
        let producers = graph.node.iter().flat_map(produced).collect();
        let (depths, native, fallback) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let floats = Floats::of(graph);
        let scalars = scalars_of(graph, &floats, constants, probe);
        Self {
            constants,
            probe,
            floats,
            byte_products,
            readers,
            producers,
            scalars,
            depths,
            native,
            fallback,
        }
    }

    /// Sorts one operator, which rten may compute for one row otherwise than for several if `is_sensitive`. Returns none if it has
    /// no output.
    pub(super) fn add(&mut self, node: &'a NodeProto, is_sensitive: bool) -> Option<()> {
        let depth = reads(node).iter().map(|name| self.depth(name)).max().unwrap_or(0);
        let output = node.output.first()?;
        let depth = if let Some((kind, reads)) = self.pattern(node) {
            self.push(kind, reads, output)
        } else if let Some(kind) = self.native_kind(node) {
            self.add_section(kind, node, output, depth + 1)
        } else if let Some(at) = self.followed(node, output) {
            output.clone_into(&mut self.native[at].output);
            self.native[at].depth
        } else if let Some((kind, reads)) = self.scalar_section(node) {
            self.push(kind, reads, output)
        } else if let Some(step) = self.view_step(node) {
            let kind = self.view(node, step);
            self.add_section(kind, node, output, depth + 1)
        } else if let Some((kind, reads)) =
            self.element_chain(node).filter(|_| !self.reads_pixels_last(node))
        {
            self.push(kind, reads, output)
        } else if let Some(reads) = self.pixel_reads(node).filter(|_| self.is_elementwise(node)) {
            self.push(NativeKind::Elementwise(vec![node.clone()]), reads, output)
        } else if let Some(guarded) = self.guarded(node).filter(|_| is_sensitive) {
            let kind = NativeKind::Guard(guarded, node.clone());
            self.add_section(kind, node, output, depth + 1)
        } else if self.is_elementwise(node) {
            let kind = NativeKind::Elementwise(vec![node.clone()]);
            self.add_section(kind, node, output, depth + 1)
        } else {
            self.fallback.entry(depth).or_default().push(node);
            depth
        };
        node.output.iter().for_each(|name| _ = self.depths.insert(name, depth));
        Some(())
    }

    /// The operators, less those whose outputs nobody reads any longer.
    pub(super) fn finish(mut self, graph: &GraphProto) -> Sorted<'a> {
        let read = self.prune(graph);
        for section in &mut self.native {
            if let NativeKind::Scalars(group) = &mut section.kind {
                group.keep(|name| read.contains(name));
            }
        }
        for at in 0..self.native.len() {
            let NativeSection { kind: NativeKind::Elementwise(nodes), reads, .. } =
                &self.native[at]
            else {
                continue;
            };
            if let Some(steps) = self.pixel_chain(nodes, reads) {
                let operators = nodes.iter().map(|node| operator(node).to_owned()).collect();
                self.native[at].kind = NativeKind::PixelChain(ElementChain(steps), operators);
            }
        }
        Sorted { native: self.native, fallback: self.fallback }
    }

    pub(super) fn depth(&self, name: &str) -> usize {
        self.depths.get(name).copied().unwrap_or(0)
    }

    fn add_section(
        &mut self,
        kind: NativeKind,
        node: &NodeProto,
        output: &str,
        depth: usize,
    ) -> usize {
        let may_repeat =
            matches!(kind, NativeKind::Concat | NativeKind::Join(_) | NativeKind::Guard(..));
        let mut reads: Vec<String> = Vec::new();
        for name in self.tensors(node) {
            if may_repeat || !reads.contains(name) {
                reads.push(name.clone());
            }
        }
        let (activation, output) = (Activation::Identity, output.to_owned());
        self.native.push(NativeSection { kind, reads, activation, output, depth });
        depth
    }

    /// Adds a section that runs once all that it reads is there. Returns its depth.
    fn push(&mut self, kind: NativeKind, reads: Vec<String>, output: &str) -> usize {
        let depth = reads.iter().map(|name| self.depth(name)).max().unwrap_or(0) + 1;
        let (activation, output) = (Activation::Identity, output.to_owned());
        self.native.push(NativeSection { kind, reads, activation, output, depth });
        depth
    }

    /// The inputs of an operator that are no constants.
    pub(super) fn tensors<'b>(
        &self,
        node: &'b NodeProto,
    ) -> impl Iterator<Item = &'b String> + use<'b, '_, 'a> {
        node.input.iter().filter(|name| !name.is_empty() && !self.constants.has(name))
    }

    /// The native section that an operator begins.
    fn native_kind(&self, node: &NodeProto) -> Option<NativeKind> {
        let x = node.input.first().filter(|x| !self.constants.has(x))?;
        let is_of_bytes = |name: &String| self.byte_products.contains(name.as_str());
        let factors = match node.output.first().is_some_and(is_of_bytes) {
            true => Factors::Bytes,
            false => Factors::Any,
        };
        match operator(node) {
            "Conv" => {
                let convolution = UnpackedConvolution::of(node, self.constants, factors)?;
                Some(NativeKind::Convolution(convolution))
            }
            "MatMul" => {
                let weights = node.input.get(1)?.clone();
                let shape: [usize; 2] = self.constants.float_dims(&weights)?.try_into().ok()?;
                let rank = self.probe.shapes(x)?[0].len();
                let is_matrix = rank >= 2 && !shape.contains(&0);
                is_matrix.then_some(NativeKind::Product { shape, weights, bias: None, factors })
            }
            "MaxPool" | "AveragePool" => {
                let is_plain = node.output.len() == 1 && self.has_channels(x);
                Pool::of(node).filter(|_| is_plain).map(NativeKind::Pool)
            }
            "Concat" => {
                let is_along_channels = int(node, "axis", 0) == 1
                    && self.reads_channels_last(node)
                    && node.input.iter().all(|name| self.has_channels(name))
                    && self.tensors(node).count() == node.input.len();
                match is_along_channels {
                    true => Some(NativeKind::Concat),
                    false => self.join(node).map(NativeKind::Join),
                }
            }
            "ReduceMean" if self.is_mean_of_pixels(node, x) => Some(NativeKind::Mean),
            "ReduceMax" | "ReduceMean" | "ReduceMin" | "ReduceSum" => {
                let reduce = self.reduction(node)?;
                let rank = self.probe.shapes(x)?[0].len();
                let of_channels_last = reduce.is_of_any_order(rank) && self.is_channels_last(x);
                Some(NativeKind::Reduce { reduce, of_channels_last })
            }
            "ConvTranspose" => {
                let convolution = UnpackedConvolution::of_transposed(node, self.constants)?;
                Some(NativeKind::Convolution(convolution))
            }
            "Resize" => {
                let is_image = self.has_channels(x) && self.reads_channels_last(node);
                self.repeats(node).filter(|_| is_image).map(NativeKind::Enlarge)
            }
            "Gather" => self.take(node).map(|take| NativeKind::Take(take, "Gather")),
            "Pad" => self.take(node).map(|take| NativeKind::Take(take, "Pad")),
            "Mul" => self.is_gate(node).then_some(NativeKind::Gate),
            "Softmax" => self.is_softmax_of_rows(node).then_some(NativeKind::Softmax),
            _ => None,
        }
    }

    /// The native section that several operators are, of which `node` is the last, and the tensors that it reads. The others remain
    /// where they are sorted, and go if nobody reads them.
    fn pattern(&self, node: &NodeProto) -> Option<(NativeKind, Vec<String>)> {
        match operator(node) {
            "MatMul" => {
                let attention = self.attention(node)?;
                Some((NativeKind::Attention(attention.clone()), attention.reads))
            }
            "Mul" => {
                let (layer_norm, reads) = self.layer_norm_by_operators(node)?;
                Some((NativeKind::LayerNorm(layer_norm), reads))
            }
            "LayerNormalization" => {
                let (layer_norm, reads) = self.layer_norm(node)?;
                Some((NativeKind::LayerNorm(layer_norm), reads))
            }
            "Reshape" => {
                let (x, groups) = self.shuffle(node)?;
                Some((NativeKind::Shuffle { groups }, vec![x]))
            }
            _ => None,
        }
    }

    /// The guard of an operator with a computed operand.
    fn guarded(&self, node: &NodeProto) -> Option<Guarded> {
        let [a, b] = &node.input[..] else { return None };
        let dims = |name: &String| self.probe.shapes(name).map(|shapes| shapes[0].clone());
        match operator(node) {
            "MatMul" if !self.constants.has(a) => {
                let b = if self.constants.has(b) { Some(dims(b)?) } else { None };
                Some(Guarded::Product { b })
            }
            "Div" if !self.constants.has(a) && !self.constants.has(b) => Some(Guarded::Quotient),
            _ => None,
        }
    }

    /// Adds an operator to the native section whose output it alone reads. Returns the position of that section; none if the
    /// operator cannot be added to one.
    fn followed(&mut self, node: &NodeProto, output: &str) -> Option<usize> {
        self.add_activation(node)
            .or_else(|| self.add_gelu(node, output))
            .or_else(|| self.add_self_gate(node, output))
            .or_else(|| self.add_count_of_windows(node))
            .or_else(|| self.add_factor_or_shift(node, output))
            .or_else(|| self.add_sum(node, output))
            .or_else(|| self.add_scalar(node))
            .or_else(|| self.add_flattening(node, output))
            .or_else(|| self.add_view_step(node))
            .or_else(|| self.add_element_step(node))
            .or_else(|| self.add_elementwise(node))
    }

    /// The native section that produces `name`, if that is read once.
    pub(super) fn only_read(&self, name: &str) -> Option<usize> {
        let at = self.native.iter().position(|section| section.output == name);
        at.filter(|_| self.readers.get(name) == Some(&1))
    }

    fn add_activation(&mut self, node: &NodeProto) -> Option<usize> {
        let activation = self.activation(node)?;
        let at = self.only_read(node.input.first()?)?;
        let section = &mut self.native[at];
        let is_open = section.activation == Activation::Identity
            && matches!(section.kind, NativeKind::Convolution(_) | NativeKind::Product { .. });
        if is_open {
            section.activation = activation;
        }
        is_open.then_some(at)
    }

    /// Adds the `Slice` by which the model crate has a pool's windows counted with a division that rounds to zero: its end is
    /// `(length + padding - kernel) / stride + 1`.
    fn add_count_of_windows(&mut self, node: &NodeProto) -> Option<usize> {
        let [pooled, _, counts, axes] = &node.input[..] else { return None };
        let at = self.only_read(pooled).filter(|_| operator(node) == "Slice")?;
        let mut name = counts;
        let mut constants = Vec::new();
        for operator_before in ["Add", "Div", "Add", "Gather", "Shape"] {
            let producer = self.producers.get(name.as_str())?;
            name = producer.input.first().filter(|_| operator(producer) == operator_before)?;
            constants.extend(producer.input.get(1).map(|other| self.constants.ints(other)));
        }
        let [Some(one), Some(strides), Some(extra), Some(places)] = &constants[..] else {
            return None;
        };
        let places = (one[..] == [1] && Some(places) == self.constants.ints(axes).as_ref())
            .then_some(&places[..])?;
        let section = &mut self.native[at];
        let NativeKind::Pool(pool) = &mut section.kind else { return None };
        let is_counted = section.reads.first() == Some(name);
        (is_counted && pool.round_to_zero(places, strides, extra)).then_some(at)
    }

    /// Adds a factor or a shift of each channel to the convolution before it.
    fn add_factor_or_shift(&mut self, node: &NodeProto, output: &str) -> Option<usize> {
        let [a, b] = &node.input[..] else { return None };
        let (x, other) = if self.constants.has(b) { (a, b) } else { (b, a) };
        let at = self.only_read(x)?;
        let shapes = [x, output].map(|name| self.probe.shapes(name));
        let is_of_channels = shapes[0] == shapes[1] && self.is_of_channels(other, &shapes[0]?[0]);
        let (_, numbers) = self.constants.floats(other).filter(|_| is_of_channels)?;
        let section = &mut self.native[at];
        let is_open = section.activation == Activation::Identity && section.reads.len() == 1;
        let NativeKind::Convolution(convolution) = &mut section.kind else { return None };
        match operator(node) {
            "Mul" if is_open => convolution.scale(&numbers).then_some(at),
            "Add" if is_open => {
                convolution.shift(&numbers);
                Some(at)
            }
            _ => None,
        }
    }

    /// Adds a bias to a product or to a layer norm, or a residual to a convolution.
    fn add_sum(&mut self, node: &NodeProto, output: &str) -> Option<usize> {
        let [a, b] = &node.input[..] else { return None };
        let places = [(self.only_read(a), b), (self.only_read(b), a)];
        // Of two sections the later one: the other has run.
        let (at, other) = places.into_iter().filter_map(|(at, other)| Some((at?, other))).max()?;
        let section = &self.native[at];
        let shapes = [&section.output[..], output].map(|name| self.probe.shapes(name));
        if operator(node) != "Add"
            || section.activation != Activation::Identity
            || shapes[0].is_none()
            || shapes[0] != shapes[1]
        {
            return None;
        }
        let is_residual = !self.constants.has(other)
            && self.is_before(at, other)
            && self.are_alike(other, output);
        // One number for each output: the axes before the last have one element.
        let is_bias = |(dims, b): &(Vec<usize>, Vec<f32>)| dims.last().unwrap_or(&1) == &b.len();
        let b = self.constants.floats(other).filter(is_bias).map(|(_, b)| b);
        let section = &mut self.native[at];
        match &mut section.kind {
            NativeKind::Product { shape: [_, outputs], bias: bias @ None, .. } => {
                *bias = Some(b.filter(|b| b.len() == *outputs)?);
            }
            NativeKind::LayerNorm(LayerNorm { scale, bias: bias @ None, .. }) => {
                *bias = Some(b.filter(|b| b.len() == scale.len())?);
            }
            NativeKind::Convolution(convolution)
                if section.reads.len() == 1 && is_residual && !convolution.is_transposed() =>
            {
                section.reads.push(other.clone());
            }
            _ => return None,
        }
        Some(at)
    }

    /// Whether a tensor is there when the native section at `at` runs.
    pub(super) fn is_before(&self, at: usize, name: &str) -> bool {
        // A section of the same depth has run if it comes before.
        let is_before = self.native[..at].iter().any(|section| section.produces(name));
        let depth = self.native[at].depth;
        self.depth(name) <= if is_before { depth } else { depth - 1 }
    }

    fn add_elementwise(&mut self, node: &NodeProto) -> Option<usize> {
        if !self.is_elementwise(node) {
            return None;
        }
        // What has a kernel stays apart from what has none.
        let pixel_reads = self.pixel_reads(node);
        let is_native = pixel_reads.is_some();
        let tensors = pixel_reads.unwrap_or_else(|| self.tensors(node).cloned().collect());
        let fits = |nodes: &[NodeProto], reads: &[String]| {
            self.pixel_chain(nodes, reads).is_some() == is_native
        };
        let is_open = |&at: &usize| {
            let section = &self.native[at];
            let reads = self.tensors(node).filter(|&name| *name == section.output).count();
            let output = node.output.first();
            reads > 0
                && output.is_some_and(|output| !self.is_pixel(&section.output, output))
                && self.readers.get(section.output.as_str()) == Some(&reads)
                && matches!(&section.kind, NativeKind::Elementwise(nodes) if fits(nodes, &section.reads))
        };
        // The depth at which all operands but the section's own output are there.
        let depth_at = |at: usize| {
            let others = tensors.iter().filter(|&name| *name != self.native[at].output);
            others.map(|name| self.depth(name) + 1).max().unwrap_or(0)
        };
        let is_there = |&at: &usize| depth_at(at) <= self.native[at].depth;
        let open = || (0..self.native.len()).filter(is_open);
        let at = open().find(is_there).or_else(|| open().find(|_| is_native))?;
        // Nobody else waits for the section.
        let depth = depth_at(at).max(self.native[at].depth);
        self.native[at].depth = depth;
        let section = &mut self.native[at];
        for name in tensors {
            if name != section.output && !section.reads.contains(&name) {
                section.reads.push(name);
            }
        }
        if let NativeKind::Elementwise(nodes) = &mut section.kind {
            nodes.push(node.clone());
        }
        Some(at)
    }

    /// Leaves out the operators whose outputs nobody reads any longer. Returns the names of the tensors that are read.
    fn prune(&mut self, graph: &GraphProto) -> BTreeSet<String> {
        let count = |sorter: &Self| {
            sorter.native.len() + sorter.fallback.values().map(Vec::len).sum::<usize>()
        };
        loop {
            let before = count(self);
            let outputs = graph.output.iter().filter_map(|output| output.name.clone());
            let mut read: BTreeSet<String> = outputs.collect();
            read.extend(self.native.iter().flat_map(|section| &section.reads).cloned());
            let nodes = self.fallback.values().flatten();
            read.extend(nodes.flat_map(|node| reads(node)).map(str::to_owned));
            let is_read = |section: &NativeSection| {
                section.outputs().iter().any(|output| read.contains(output))
            };
            self.native.retain(is_read);
            for nodes in self.fallback.values_mut() {
                nodes.retain(|node| node.output.iter().any(|name| read.contains(name)));
            }
            if count(self) == before {
                self.fallback.retain(|_, nodes| !nodes.is_empty());
                return read;
            }
        }
    }

    /// Whether a tensor has rank 3 or 4.
    pub(super) fn has_channels(&self, name: &str) -> bool {
        self.probe.shapes(name).is_some_and(|shapes| [3, 4].contains(&shapes[0].len()))
    }

    /// Whether an operator reads a tensor that is produced with its channels last.
    pub(super) fn reads_channels_last(&self, node: &NodeProto) -> bool {
        node.input.iter().any(|name| self.is_channels_last(name))
    }

    /// Whether an operator reads a tensor that is produced with its channels last and has more than one pixel for all of its output.
    fn reads_pixels_last(&self, node: &NodeProto) -> bool {
        let has_pixels =
            |name: &String| node.output.first().is_some_and(|output| !self.is_pixel(name, output));
        node.input.iter().any(|name| self.is_channels_last(name) && has_pixels(name))
    }

    /// Whether a tensor is produced with its channels last.
    pub(super) fn is_channels_last(&self, name: &str) -> bool {
        let section = self.native.iter().find(|section| section.output == name);
        section.is_some_and(|section| section.kind.has_channels_last())
    }

    /// Whether an operator computes each element from one element of each tensor, and constants that are the same for all pixels.
    fn is_elementwise(&self, node: &NodeProto) -> bool {
        let Some(shapes) = node.output.first().and_then(|name| self.probe.shapes(name)) else {
            return false;
        };
        let is_unary = self.tensors(node).collect::<BTreeSet<_>>().len() == 1;
        let is_native = self.pixel_reads(node).is_some();
        let is_pixel = |name: &String| {
            let pixel = self.unrepeated(name);
            is_native && node.output.iter().all(|whole| self.is_pixel(pixel, whole))
        };
        let fits = |name: &String| match self.constants.has(name) {
            true if is_native && self.is_uniform(name) => true,
            true => self.is_of_channels(name, &shapes[0]),
            false if name.is_empty() || is_pixel(name) => true,
            false if is_unary => self.probe.shapes(name) == Some(shapes),
            false => node.output.iter().all(|y| self.are_alike(name, y)),
        };
        // In rten a division by one computed number would depend on the number of rows.
        let divides = operator(node) == "Div"
            && node.input.get(1).is_some_and(|divisor| is_native || self.constants.has(divisor));
        (divides || ELEMENTWISE.contains(&operator(node)))
            && [3, 4].contains(&shapes[0].len())
            && node.input.iter().all(fits)
            && self.reads_pixels_last(node)
    }

    /// Whether two tensors have the same shape at all lengths. Where those that were probed gave images of one pixel, others might
    /// give one of them more.
    pub(super) fn are_alike(&self, a: &str, b: &str) -> bool {
        let dims = |name| self.probe.growth(name).map(|growth| &growth.dims[..]);
        let has_pixels = |dims: &[Growth]| !dims.iter().skip(2).all(Growth::is_one);
        let is_fixed = self.probe.lengths().count() == 0;
        self.probe.shapes(a) == self.probe.shapes(b)
            && dims(a) == dims(b)
            && dims(a).is_some_and(|dims| is_fixed || has_pixels(dims))
    }

    /// Whether a constant is one number, or one for each channel of a tensor of this shape.
    pub(super) fn is_of_channels(&self, name: &str, shape: &[usize]) -> bool {
        let Some((dims, _)) = self.constants.floats(name) else { return false };
        let before = shape.len().saturating_sub(dims.len());
        let mut axes = dims.iter().enumerate().filter(|(_, n)| **n != 1);
        let is_channels = |(at, &n): (usize, &usize)| before + at == 1 && n == shape[1];
        dims.len() <= shape.len() && axes.next().is_none_or(is_channels) && axes.next().is_none()
    }

    pub(super) fn activation(&self, node: &NodeProto) -> Option<Activation> {
        let bound = |at: usize, default: f32| match node.input.get(at).filter(|n| !n.is_empty()) {
            Some(name) => self.constants.number(name),
            None => Some(default),
        };
        Some(match operator(node) {
            "Relu" => Activation::Clip { low: 0.0, high: f32::INFINITY },
            "Clip" => {
                let (low, high) = (bound(1, f32::NEG_INFINITY)?, bound(2, f32::INFINITY)?);
                Activation::Clip { low, high }
            }
            "LeakyRelu" => Activation::Leaky { slope: float(node, "alpha", 0.01) },
            "HardSwish" => Activation::HardSwish { slope: 1.0 / 6.0, shift: 0.5 },
            "HardSigmoid" => Activation::HardSigmoid {
                slope: float(node, "alpha", 0.2),
                shift: float(node, "beta", 0.5),
            },
            "Sigmoid" => Activation::Sigmoid,
            "Swish" if float(node, "alpha", 1.0) == 1.0 => Activation::Swish,
            "Tanh" => Activation::Tanh,
            _ => return None,
        })
    }
}
