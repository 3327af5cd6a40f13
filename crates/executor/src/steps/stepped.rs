//! Runs the steps of a program.

use rten::{Value, ValueOrView};

use crate::error::ExecutorError;
use crate::steps::convolution::Convolution;
use crate::steps::held::{Held, Pixels, missing};
use crate::steps::island::Island;
use crate::steps::pooling::Pool;
use crate::steps::product::Product;
use crate::thread::ExecutorThread;

/// A program cut into steps. A row or sequence has the same bits alone as in a batch: no step looks at their number.
pub(crate) struct Stepped {
    pub(super) steps: Vec<Step>,
    /// The number of tensors.
    pub(super) tensors: usize,
    /// The tensor of each input port.
    pub(super) inputs: Vec<usize>,
    /// The tensor of each output port.
    pub(super) outputs: Vec<usize>,
}

pub(super) struct Step {
    pub(super) work: Work,
    pub(super) reads: Vec<usize>,
    pub(super) writes: Vec<usize>,
    /// The tensors that nobody reads afterwards.
    pub(super) last: Vec<usize>,
}

pub(super) enum Work {
    /// Of the first tensor; a second one is added.
    Convolution(Convolution),
    /// Of the first tensor.
    Product(Product),
    /// Of the first tensor.
    Pool(Pool),
    /// Of all tensors, along their channels.
    Concat,
    /// Of the pixels of all tensors, which have one shape.
    Elements(Box<Island>),
    /// Of all tensors.
    Island(Box<Island>),
    ToPixels,
    ToPlanes,
}

impl Stepped {
    /// The output ports' tensors for those of the input ports.
    pub(crate) fn run(
        &self,
        inputs: Vec<Value>,
        thread: &ExecutorThread,
    ) -> Result<Vec<Value>, ExecutorError> {
        // Islands take no way to the thread and back each.
        thread.pool().run(|| self.run_here(inputs, thread))
    }

    fn run_here(
        &self,
        inputs: Vec<Value>,
        thread: &ExecutorThread,
    ) -> Result<Vec<Value>, ExecutorError> {
        let mut held: Vec<Option<Held>> = (0..self.tensors).map(|_| None).collect();
        for (&tensor, value) in self.inputs.iter().zip(inputs) {
            held[tensor] = Some(Held::Planes(value));
        }
        for step in &self.steps {
            let made = step.run(&mut held, thread)?;
            step.last.iter().for_each(|&tensor| held[tensor] = None);
            for (&tensor, made) in step.writes.iter().zip(made) {
                held[tensor] = Some(made);
            }
        }
        let give = |&tensor: &usize| held[tensor].take().ok_or_else(missing)?.into_planes();
        self.outputs.iter().map(give).collect()
    }
}

impl Step {
    fn run(
        &self,
        held: &mut [Option<Held>],
        thread: &ExecutorThread,
    ) -> Result<Vec<Held>, ExecutorError> {
        if let Work::Island(island) = &self.work {
            // What nobody reads afterwards may be written over.
            let taken = |tensor: &usize| self.last.contains(tensor).then_some(*tensor);
            let mut owned: Vec<Option<Held>> = self
                .reads
                .iter()
                .map(|tensor| taken(tensor).and_then(|tensor| held[tensor].take()))
                .collect();
            let inputs = self.reads.iter().zip(&mut owned).map(|(&tensor, owned)| {
                Ok(match owned.take() {
                    Some(own) => ValueOrView::Value(own.into_planes()?),
                    None => {
                        let value = held[tensor].as_ref().ok_or_else(missing)?.planes()?;
                        ValueOrView::View(value.as_view())
                    }
                })
            });
            let inputs = inputs.collect::<Result<Vec<_>, ExecutorError>>()?;
            return Ok(island.run(inputs, thread)?.into_iter().map(Held::Planes).collect());
        }
        if let Work::Elements(island) = &self.work {
            let mut shape = Vec::new();
            let inputs = self.reads.iter().map(|&tensor| {
                let own = match self.last.contains(&tensor) {
                    true => held[tensor].take(),
                    false => None,
                };
                let pixels = match own {
                    Some(Held::Pixels(pixels)) => pixels,
                    _ => held[tensor].as_ref().ok_or_else(missing)?.pixels()?.clone(),
                };
                shape.clone_from(&pixels.shape);
                Ok(ValueOrView::Value(pixels.into_rows()?))
            });
            let inputs = inputs.collect::<Result<Vec<_>, ExecutorError>>()?;
            let made = island.run(inputs, thread)?.pop().ok_or_else(missing)?;
            return Ok(vec![Held::Pixels(Pixels::of_rows(made, shape)?)]);
        }
        let read = |at: usize| -> Result<&Held, ExecutorError> {
            held[self.reads[at]].as_ref().ok_or_else(missing)
        };
        let made = match &self.work {
            Work::Convolution(convolution) => {
                let more = match self.reads.len() {
                    1 => None,
                    _ => Some(read(1)?.pixels()?),
                };
                Held::Pixels(convolution.run(read(0)?.pixels()?, more)?)
            }
            Work::Pool(pool) => Held::Pixels(pool.run(read(0)?.pixels()?)?),
            Work::Concat => {
                let parts = (0..self.reads.len()).map(|at| read(at)?.pixels());
                let parts: Vec<&Pixels> = parts.collect::<Result<_, _>>()?;
                Held::Pixels(Pixels::concatenated(&parts)?)
            }
            Work::Product(product) => Held::Planes(product.run(read(0)?.planes()?)?),
            Work::ToPixels => Held::Pixels(Pixels::of(read(0)?.planes()?)?),
            Work::ToPlanes => Held::Planes(read(0)?.pixels()?.to_planes()?),
            Work::Island(_) | Work::Elements(_) => return Err(missing()),
        };
        Ok(vec![made])
    }
}
