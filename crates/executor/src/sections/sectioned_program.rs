//! Runs the sections of a program.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rten::{Value, ValueOrView};
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::sections::attention::{AttentionOf, floats, softmax_of_rows};
use crate::sections::buffers::Buffers;
use crate::sections::convolution::Convolution;
use crate::sections::element_chain::ElementChain;
use crate::sections::fallback::Fallback;
use crate::sections::guards::Guard;
use crate::sections::joining::Join;
use crate::sections::layer_norm::LayerNorm;
use crate::sections::pooling::Pool;
use crate::sections::product::Product;
use crate::sections::reducing::Reduce;
use crate::sections::scalars::Scalars;
use crate::sections::strided_view::StridedView;
use crate::sections::taking::Take;
use crate::sections::tensor::{ChannelsLast, SectionTensor, one_pixel, wrong_layout};
use crate::threads::{Attendance, ExecutorThreads};

/// A program that was cut into sections. No section depends on the number of rows or sequences, so one of them has the same
/// bits alone as in a batch.
pub(crate) struct SectionedProgram {
    /// The sections in the order in which they run.
    pub(super) sections: Vec<Section>,
    /// The number of tensors.
    pub(super) tensors: usize,
    /// The tensor of each input port.
    pub(super) inputs: Vec<usize>,
    /// The tensor of each output port.
    pub(super) outputs: Vec<usize>,
    pub(super) attendance: Attendance,
}

/// One section, with the numbers of its tensors.
pub(super) struct Section {
    pub(super) kind: SectionKind,
    /// Its operators, and the last tensor that it writes, for people.
    pub(super) name: SectionName,
    pub(super) reads: Vec<usize>,
    pub(super) writes: Vec<usize>,
    /// The tensors that no later section reads.
    pub(super) last: Vec<usize>,
}

/// The name of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SectionName {
    /// Its operators, in the order in which they run.
    pub(crate) operators: String,
    /// The last tensor that it writes, by the name that it has in the file.
    pub(crate) output: String,
}

/// A run of one section.
#[derive(Clone, Debug)]
pub(crate) struct SectionTime<'a> {
    pub(crate) name: &'a SectionName,
    pub(crate) time: Duration,
    /// Its multiplications and additions; none of operators that rten runs.
    pub(crate) operations: u64,
    /// Whether its weights are in another precision than f32.
    pub(crate) is_reduced: bool,
    /// Bytes of its weights and of the tensors that it reads and writes.
    pub(crate) bytes: u64,
}

/// The computation of a section.
pub(super) enum SectionKind {
    /// Convolves the first tensor and adds the second tensor, if there is one.
    Convolution(Convolution),
    /// Multiplies the first tensor with weights.
    Product(Product),
    /// Pools the first tensor.
    Pool(Pool),
    /// Concatenates all tensors along their channels.
    Concat,
    /// Computes the mean of all pixels.
    Mean,
    /// Repeats each row and each pixel of images as often as these numbers say.
    Enlarge([usize; 2]),
    /// Takes channels from one of `groups` groups after the other.
    Shuffle {
        groups: usize,
    },
    /// Multiplies an image by a number for each of its channels, an image of one pixel.
    Gate,
    /// The softmax of each row of the last axis.
    Softmax,
    /// The attention of queries, keys, values and perhaps a mask.
    Attention(AttentionOf),
    /// Normalises the rows of the first tensor, or of its sum with the second tensor.
    LayerNorm(LayerNorm),
    /// Takes elements of an axis.
    Take(Take),
    /// Runs elementwise operators, one after the other, on the first tensor.
    Chain(ElementChain),
    /// A chain over tensors with their channels last, but those of one pixel that its steps read.
    PixelChain(ElementChain),
    /// Makes one element of those along some axes.
    Reduce(Reduce),
    /// Finds the least and the greatest elements along the axes of that reduction.
    Extremes(Reduce),
    /// Runs operators on one number for each row or sequence.
    Scalars(Scalars),
    /// Puts elements in another place or shape.
    View(StridedView),
    Join(Join),
    /// Runs an operator that rten would compute for one row otherwise than for several.
    Guard(Guard),
    /// Runs elementwise operators on tensors of one shape whose channels come last.
    Elementwise(Box<Fallback>),
    /// Runs operators on tensors in the layout of the file.
    Fallback(Box<Fallback>),
    /// Moves the channels of a tensor behind its other axes.
    ToChannelsLast,
    /// Moves the channels of a tensor to their place in the file.
    ToChannelsFirst,
}

/// The tensors that are alive, by their numbers.
type Tensors = [Option<SectionTensor>];

impl SectionedProgram {
    /// Computes the tensors of the output ports from those of the input ports.
    pub(crate) fn run(
        &self,
        inputs: Vec<Value>,
        threads: &ExecutorThreads,
    ) -> Result<Vec<Value>, ExecutorError> {
        // One hop to the thread and back, not one for each fallback section.
        threads.pool().run(|| {
            let elements = inputs.iter().map(|input| input.shape().iter().product::<usize>()).sum();
            threads.take_worth();
            let run = || self.run_here(inputs, threads, None);
            let outputs = match self.attendance.worth(elements) {
                1 => run(),
                worth => threads.attended(worth, run),
            };
            if outputs.is_ok() {
                self.attendance.note(elements, threads.take_worth());
            }
            outputs
        })
    }

    /// As [`Self::run`], and takes the time of each section.
    pub(crate) fn run_timed(
        &self,
        inputs: Vec<Value>,
        threads: &ExecutorThreads,
    ) -> Result<Vec<SectionTime<'_>>, ExecutorError> {
        let mut times = Vec::with_capacity(self.sections.len());
        threads.pool().run(|| self.run_here(inputs, threads, Some(&mut times)))?;
        Ok(times)
    }

    fn run_here<'a>(
        &'a self,
        inputs: Vec<Value>,
        threads: &ExecutorThreads,
        mut times: Option<&mut Vec<SectionTime<'a>>>,
    ) -> Result<Vec<Value>, ExecutorError> {
        let mut tensors: Vec<Option<SectionTensor>> = (0..self.tensors).map(|_| None).collect();
        for (&tensor, value) in self.inputs.iter().zip(inputs) {
            tensors[tensor] = Some(SectionTensor::ChannelsFirst(value));
        }
        let mut buffers = Buffers::default();
        for section in &self.sections {
            if !section.takes_passing() {
                buffers.free_passing();
            }
            let outputs = match &mut times {
                None => section.run(&mut tensors, &mut buffers, threads)?,
                Some(times) => {
                    let reads: BTreeSet<usize> = section.reads.iter().copied().collect();
                    let reads = reads.into_iter().map(|at| bytes(tensors[at].as_ref())).sum();
                    let (outputs, time) =
                        section.run_timed(&mut tensors, &mut buffers, threads, reads)?;
                    times.push(time);
                    outputs
                }
            };
            for &tensor in &section.last {
                match tensors[tensor].take() {
                    Some(SectionTensor::ChannelsLast(tensor)) => buffers.give(tensor.data),
                    Some(SectionTensor::ChannelsFirst(Value::FloatTensor(tensor))) => {
                        buffers.pass(tensor.into_non_contiguous_data());
                    }
                    _ => {}
                }
            }
            for (&tensor, output) in section.writes.iter().zip(outputs) {
                tensors[tensor] = Some(output);
            }
        }
        let mut output = |&tensor: &usize| tensors[tensor].take().ok_or_else(wrong_layout);
        self.outputs.iter().map(|tensor| output(tensor)?.into_channels_first()).collect()
    }
}

/// Bytes of the elements of a tensor.
fn bytes(tensor: Option<&SectionTensor>) -> u64 {
    let elements = match tensor {
        None => 0,
        Some(SectionTensor::ChannelsFirst(value)) => value.shape().iter().product(),
        Some(SectionTensor::ChannelsLast(tensor)) => tensor.data.len(),
    };
    (elements * size_of::<f32>()) as u64
}

impl Section {
    /// Whether it may take the buffer of a tensor in the layout of the file for its output.
    fn takes_passing(&self) -> bool {
        use SectionKind::{Attention, LayerNorm, Product};
        matches!(self.kind, Product(_) | LayerNorm(_) | Attention(_))
    }

    /// Runs the section, which reads `read` bytes of tensors, and takes its time.
    fn run_timed(
        &self,
        tensors: &mut Tensors,
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
        read: u64,
    ) -> Result<(Vec<SectionTensor>, SectionTime<'_>), ExecutorError> {
        let start = Instant::now();
        let outputs = self.run(tensors, buffers, threads)?;
        let time = start.elapsed();
        let written: u64 = outputs.iter().map(|output| bytes(Some(output))).sum();
        let (for_element, weights) = match &self.kind {
            SectionKind::Convolution(convolution) => convolution.work(),
            SectionKind::Product(product) => product.work(),
            _ => (0, 0),
        };
        let operations = written / size_of::<f32>() as u64 * 2 * for_element;
        let bytes = read + written + weights;
        let is_reduced =
            matches!(&self.kind, SectionKind::Product(product) if product.is_reduced());
        Ok((outputs, SectionTime { name: &self.name, time, operations, is_reduced, bytes }))
    }

    fn run(
        &self,
        tensors: &mut Tensors,
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
    ) -> Result<Vec<SectionTensor>, ExecutorError> {
        let output = match &self.kind {
            SectionKind::Fallback(fallback) => {
                return self.run_fallback(fallback, tensors, threads);
            }
            SectionKind::Elementwise(fallback) => {
                self.run_elementwise(fallback, tensors, threads)?
            }
            SectionKind::PixelChain(chain) => self.run_pixel_chain(chain, tensors, threads)?,
            SectionKind::Convolution(convolution) => {
                let residual = self.reads.get(1).map(|_| self.channels_last(tensors, 1));
                let x = self.channels_last(tensors, 0)?;
                convolution.run(x, residual.transpose()?, buffers, threads)?
            }
            SectionKind::Pool(pool) => {
                pool.run(self.channels_last(tensors, 0)?, buffers, threads)?
            }
            SectionKind::Concat => {
                let parts = (0..self.reads.len()).map(|at| self.channels_last(tensors, at));
                ChannelsLast::concatenated(&parts.collect::<Result<Vec<_>, _>>()?, buffers)?
            }
            SectionKind::Mean => self.channels_last(tensors, 0)?.mean(),
            SectionKind::Enlarge(repeats) => {
                self.channels_last(tensors, 0)?.enlarged(*repeats, buffers, threads)?
            }
            SectionKind::Shuffle { groups } => {
                self.channels_last(tensors, 0)?.shuffled(*groups, buffers)
            }
            SectionKind::Gate => {
                let (a, b) = (self.channels_last(tensors, 0)?, self.channels_last(tensors, 1)?);
                if a.data.len() >= b.data.len() {
                    a.gated(b, buffers)?
                } else {
                    b.gated(a, buffers)?
                }
            }
            SectionKind::ToChannelsLast => {
                ChannelsLast::of(self.channels_first(tensors, 0)?, buffers, threads)?
            }
            SectionKind::Product(product) => {
                let output = product.run(self.channels_first(tensors, 0)?, buffers, threads)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::Softmax => {
                let output = softmax_of_rows(self.channels_first(tensors, 0)?, threads)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::Attention(attention) => {
                let reads = (0..self.reads.len()).map(|at| self.channels_first(tensors, at));
                let reads = reads.collect::<Result<Vec<_>, _>>()?;
                let output = attention.run(&reads, buffers, threads)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::Join(join) => {
                let parts = (0..self.reads.len()).map(|at| self.channels_first(tensors, at));
                let output = join.run(&parts.collect::<Result<Vec<_>, _>>()?)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::Take(take) => {
                let output = take.run(self.channels_first(tensors, 0)?)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::Chain(chain) => {
                let is_free = self.last.contains(&self.reads[0]) && !chain.reads_whole();
                let x = if is_free { tensors[self.reads[0]].take() } else { None };
                let x = x.map(SectionTensor::into_channels_first).transpose()?;
                let is_taken = x.is_some();
                let of = |at: usize| match (at, is_taken) {
                    (0, true) => Ok(None),
                    _ => self.channels_first(tensors, at).map(Some),
                };
                let reads = (0..self.reads.len()).map(of).collect::<Result<Vec<_>, _>>()?;
                let output = chain.run(x, &reads, threads)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::Reduce(reduce) => {
                let (shape, x) = self.elements(tensors, 0)?;
                let output = reduce.run(shape, &x, threads)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::Extremes(reduce) => {
                let (shape, x) = self.elements(tensors, 0)?;
                let outputs = reduce.run_both_extremes(shape, &x, threads)?;
                return Ok(outputs.map(SectionTensor::ChannelsFirst).into());
            }
            SectionKind::Scalars(scalars) => {
                let reads = (0..self.reads.len()).map(|at| self.channels_first(tensors, at));
                let outputs = scalars.run(&reads.collect::<Result<Vec<_>, _>>()?)?;
                return Ok(outputs.into_iter().map(SectionTensor::ChannelsFirst).collect());
            }
            SectionKind::View(view) => {
                let x = &mut tensors[self.reads[0]];
                // The memory of what is copied serves another tensor.
                let moves = |x: &SectionTensor| match x {
                    SectionTensor::ChannelsFirst(_) => true,
                    SectionTensor::ChannelsLast(x) => view.keeps_order(&x.laid_out()),
                };
                let is_free = self.last.contains(&self.reads[0]) && x.as_ref().is_some_and(moves);
                let output = match if is_free { x.take() } else { None } {
                    Some(SectionTensor::ChannelsFirst(x)) => view.run_owned(x)?,
                    Some(SectionTensor::ChannelsLast(x)) => view.run_owned(x.into_value()?)?,
                    None => match x.as_ref().ok_or_else(wrong_layout)? {
                        SectionTensor::ChannelsFirst(x) => view.run(x)?,
                        SectionTensor::ChannelsLast(x) => view.run_slice(&x.laid_out(), &x.data)?,
                    },
                };
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::LayerNorm(layer_norm) => {
                let residual = self.reads.get(1).map(|_| self.channels_first(tensors, 1));
                let x = self.channels_first(tensors, 0)?;
                let output = layer_norm.run(x, residual.transpose()?, buffers, threads)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::Guard(guard) => {
                let operands = (0..self.reads.len()).map(|at| self.channels_first(tensors, at));
                let output = guard.run(&operands.collect::<Result<Vec<_>, _>>()?, threads)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
            SectionKind::ToChannelsFirst => {
                let output = self.channels_last(tensors, 0)?.to_channels_first(threads)?;
                return Ok(vec![SectionTensor::ChannelsFirst(output)]);
            }
        };
        Ok(vec![SectionTensor::ChannelsLast(output)])
    }

    fn channels_first<'a>(
        &self,
        tensors: &'a Tensors,
        at: usize,
    ) -> Result<&'a Value, ExecutorError> {
        tensors[self.reads[at]].as_ref().ok_or_else(wrong_layout)?.channels_first()
    }

    fn channels_last<'a>(
        &self,
        tensors: &'a Tensors,
        at: usize,
    ) -> Result<&'a ChannelsLast, ExecutorError> {
        tensors[self.reads[at]].as_ref().ok_or_else(wrong_layout)?.channels_last()
    }

    /// The shape in the file and the elements of a tensor, in the order in which they are there.
    fn elements<'a>(
        &self,
        tensors: &'a Tensors,
        at: usize,
    ) -> Result<(&'a [usize], Cow<'a, [f32]>), ExecutorError> {
        match tensors[self.reads[at]].as_ref().ok_or_else(wrong_layout)? {
            SectionTensor::ChannelsLast(x) => Ok((&x.shape, Cow::Borrowed(&x.data[..]))),
            SectionTensor::ChannelsFirst(x) => {
                let x = floats(x)?;
                let data = x.data().map_or_else(|| Cow::Owned(x.to_vec()), Cow::Borrowed);
                Ok((x.shape(), data))
            }
        }
    }

    /// Takes each tensor that no later section reads: its memory may be written over.
    fn take_last(&self, tensors: &mut Tensors) -> Vec<Option<SectionTensor>> {
        let take = |tensor: &usize| match self.last.contains(tensor) {
            true => tensors[*tensor].take(),
            false => None,
        };
        self.reads.iter().map(take).collect()
    }

    fn run_fallback(
        &self,
        fallback: &Fallback,
        tensors: &mut Tensors,
        threads: &ExecutorThreads,
    ) -> Result<Vec<SectionTensor>, ExecutorError> {
        let taken = self.take_last(tensors).into_iter().enumerate();
        let inputs = taken.map(|(at, taken)| match taken {
            Some(tensor) => tensor.into_channels_first().map(ValueOrView::Value),
            None => {
                self.channels_first(tensors, at).map(|value| ValueOrView::View(value.as_view()))
            }
        });
        let outputs = fallback.run(inputs.collect::<Result<_, _>>()?, threads)?;
        Ok(outputs.into_iter().map(SectionTensor::ChannelsFirst).collect())
    }

    /// Runs a chain over the pixels of tensors, which are all of one shape but those that have one pixel.
    fn run_pixel_chain(
        &self,
        chain: &ElementChain,
        tensors: &mut Tensors,
        threads: &ExecutorThreads,
    ) -> Result<ChannelsLast, ExecutorError> {
        let shape = self.channels_last(tensors, 0)?.shape.clone();
        let mut values = Vec::with_capacity(self.reads.len());
        // They are taken for the time of the run.
        for (number, &at) in self.reads.iter().enumerate() {
            values.push(Some(match chain.reads_pixel(number) {
                true => one_pixel(self.channels_first(tensors, number)?, shape.len())?,
                false => match tensors[at].take().ok_or_else(wrong_layout)? {
                    SectionTensor::ChannelsLast(tensor) => tensor.into_value()?,
                    SectionTensor::ChannelsFirst(_) => return Err(wrong_layout()),
                },
            }));
        }
        let is_free = self.last.contains(&self.reads[0]) && !chain.reads_whole();
        let x = if is_free { values[0].take() } else { None };
        let reads: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
        let output = chain.run(x, &reads, threads)?;
        for (number, (&at, value)) in self.reads.iter().zip(values).enumerate() {
            if let Some(value) = value.filter(|_| !chain.reads_pixel(number)) {
                let tensor = ChannelsLast::of_rows(value, shape.clone())?;
                tensors[at] = Some(SectionTensor::ChannelsLast(tensor));
            }
        }
        ChannelsLast::of_rows(output, shape)
    }

    fn run_elementwise(
        &self,
        fallback: &Fallback,
        tensors: &mut Tensors,
        threads: &ExecutorThreads,
    ) -> Result<ChannelsLast, ExecutorError> {
        let mut shape = Vec::new();
        let taken = self.take_last(tensors).into_iter().enumerate();
        let inputs = taken.map(|(at, taken)| {
            let tensor = match taken {
                Some(SectionTensor::ChannelsLast(tensor)) => tensor,
                _ => self.channels_last(tensors, at)?.clone(),
            };
            shape.clone_from(&tensor.shape);
            Ok(ValueOrView::Value(tensor.into_rows()?))
        });
        let inputs = inputs.collect::<Result<_, ExecutorError>>()?;
        let output = fallback.run(inputs, threads)?.pop().ok_or_else(wrong_layout)?;
        ChannelsLast::of_rows(output, shape)
    }
}
