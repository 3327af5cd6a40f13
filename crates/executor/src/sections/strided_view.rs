//! Operators that only put elements in another place or shape, joined into one copy.

use std::borrow::Cow;

use rten::Value;
use rten_tensor::prelude::*;
use rten_tensor::{Tensor, TensorView};

use crate::error::ExecutorError;

/// A tensor's elements in another order and shape: operators that compute nothing, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StridedView(pub(super) Vec<ViewStep>);

/// One operator of a [`StridedView`]. Axes are positions in the shape that it reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ViewStep {
    /// `Reshape`: 0 keeps the axis, -1 takes what is left.
    Reshape(Vec<i64>),
    /// `Transpose`: the axes in their new order.
    Transpose(Vec<usize>),
    /// `Slice`, with one entry for each axis that it cuts.
    Slice(Vec<Cut>),
    /// `Squeeze`: these axes have one element.
    Squeeze(Vec<usize>),
    /// `Unsqueeze`: the positions of new axes in the shape that it makes, in rising order.
    Unsqueeze(Vec<usize>),
}

/// Every `step`-th element of an axis from `start` to `end`, which count from the end where they are negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) axis: usize,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) step: usize,
}

/// Elements of a slice: their first one, and for each axis its length and the distance of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Strides {
    first: usize,
    /// `(length, stride)` of each axis.
    axes: Vec<(usize, usize)>,
}

/// Elements of a tensor where they lie, or a copy of them.
pub(super) struct Viewed<'a, T: Clone> {
    data: Cow<'a, [T]>,
    strides: Strides,
    shape: Vec<usize>,
}

impl<T: Clone> Viewed<'_, T> {
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements of matrix number `at` and those behind them, and the distances of rows and columns.
    pub(super) fn matrix(&self, at: usize) -> (&[T], [usize; 2]) {
        let (lead, of_matrix) = self.strides.axes.split_at(self.shape.len().saturating_sub(2));
        let (mut rest, mut first) = (at, self.strides.first);
        for &(length, stride) in lead.iter().rev() {
            first += rest % length.max(1) * stride;
            rest /= length.max(1);
        }
        let mut strides = [0, 1];
        for (stride, &(length, of_axis)) in strides.iter_mut().rev().zip(of_matrix.iter().rev()) {
            *stride = if length <= 1 { 1 } else { of_axis };
        }
        (self.data.get(first..).unwrap_or_default(), strides)
    }
}

impl StridedView {
    /// The elements of `x`: where they lie if no step needs a copy and those of a row of the last axis, or of a column if `or_columns`, lie side by
    /// side; else a copy.
    ///
    /// # Errors
    /// The steps do not fit the shape.
    pub(super) fn viewed<'a, T: Clone>(
        &self,
        x: &'a Tensor<T>,
        or_columns: bool,
    ) -> Result<Viewed<'a, T>, ExecutorError> {
        let data = x.data().map_or_else(|| Cow::Owned(x.to_vec()), Cow::Borrowed);
        let through = Strides::contiguous(x.shape()).through(&self.0)?;
        let (data, strides) = match through.filter(|strides| strides.lies_in_rows(or_columns)) {
            Some(strides) => (data, strides),
            None => {
                let copy = self.copied_of(x.shape(), &data)?;
                let strides = Strides::contiguous(copy.shape());
                (Cow::Owned(copy.into_data()), strides)
            }
        };
        let shape = strides.shape();
        Ok(Viewed { data, strides, shape })
    }

    /// Whether [`Self::viewed`] needs no copy of a tensor of this shape.
    pub(super) fn lies_in_rows(steps: &[ViewStep], shape: &[usize], or_columns: bool) -> bool {
        let through = Strides::contiguous(shape).through(steps);
        matches!(through, Ok(Some(strides)) if strides.lies_in_rows(or_columns))
    }

    /// The elements of `x`, which is moved rather than copied if they all keep their order.
    pub(super) fn run_owned(&self, x: Value) -> Result<Value, ExecutorError> {
        match x {
            Value::FloatTensor(x) => self.owned(x).map(Value::FloatTensor),
            Value::Int32Tensor(x) => self.owned(x).map(Value::Int32Tensor),
            Value::UInt8Tensor(x) => self.owned(x).map(Value::UInt8Tensor),
            Value::Int8Tensor(x) => self.owned(x).map(Value::Int8Tensor),
            x => Err(fails(format!("of {}", x.dtype()))),
        }
    }

    /// The elements of `x`.
    pub(super) fn run(&self, x: &Value) -> Result<Value, ExecutorError> {
        match x {
            Value::FloatTensor(x) => self.copied(x).map(Value::FloatTensor),
            Value::Int32Tensor(x) => self.copied(x).map(Value::Int32Tensor),
            Value::UInt8Tensor(x) => self.copied(x).map(Value::UInt8Tensor),
            Value::Int8Tensor(x) => self.copied(x).map(Value::Int8Tensor),
            x => Err(fails(format!("of {}", x.dtype()))),
        }
    }

    /// Whether all elements of a tensor of this shape keep their order.
    pub(super) fn keeps_order(&self, shape: &[usize]) -> bool {
        let count = shape.iter().product();
        let strides = Strides::contiguous(shape).through(&self.0);
        matches!(strides, Ok(Some(strides)) if strides.is_whole(count))
    }

    /// The elements of a tensor of this shape.
    pub(super) fn run_slice(&self, shape: &[usize], x: &[f32]) -> Result<Value, ExecutorError> {
        self.copied_of(shape, x).map(Value::FloatTensor)
    }

    fn owned<T: Clone>(&self, x: Tensor<T>) -> Result<Tensor<T>, ExecutorError> {
        if x.data().is_none() {
            return self.copied(&x);
        }
        match Strides::contiguous(x.shape()).through(&self.0)? {
            Some(strides) if strides.is_whole(x.len()) => {
                Ok(Tensor::from_data(&strides.shape()[..], x.into_data()))
            }
            _ => self.copied(&x),
        }
    }

    fn copied<T: Clone>(&self, x: &Tensor<T>) -> Result<Tensor<T>, ExecutorError> {
        self.copied_of(x.shape(), x.to_contiguous().data())
    }

    fn copied_of<T: Clone>(&self, shape: &[usize], x: &[T]) -> Result<Tensor<T>, ExecutorError> {
        let (mut data, mut strides) = (Cow::Borrowed(x), Strides::contiguous(shape));
        for step in &self.0 {
            strides = match strides.after(step)? {
                Some(strides) => strides,
                None => {
                    let copy = strides.copied(&data)?;
                    let shape = strides.shape();
                    data = copy.into_data().into();
                    let whole = Strides::contiguous(&shape).after(step)?;
                    whole.ok_or_else(|| fails("a shape of elements that lie apart".to_owned()))?
                }
            };
        }
        match data {
            Cow::Owned(data) if strides.is_whole(data.len()) => {
                Ok(Tensor::from_data(&strides.shape()[..], data))
            }
            data => strides.copied(&data),
        }
    }

    /// Whether no step before the last of `steps` needs a copy of a tensor of this shape.
    pub(super) fn is_one_copy(steps: &[ViewStep], shape: &[usize]) -> bool {
        let before = steps.split_last().map_or(steps, |(_, before)| before);
        matches!(Strides::contiguous(shape).through(before), Ok(Some(_)))
    }
}

impl Strides {
    fn contiguous(shape: &[usize]) -> Self {
        let mut axes: Vec<(usize, usize)> = shape.iter().map(|&length| (length, 0)).collect();
        let mut stride = 1;
        for axis in axes.iter_mut().rev() {
            axis.1 = stride;
            stride *= axis.0;
        }
        Self { first: 0, axes }
    }

    fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.0).collect()
    }

    fn elements(&self) -> usize {
        self.axes.iter().map(|axis| axis.0).product()
    }

    /// Whether these are all of `count` elements, in their order.
    fn is_whole(&self, count: usize) -> bool {
        let wide = |axes: &[(usize, usize)]| -> Vec<(usize, usize)> {
            axes.iter().copied().filter(|axis| axis.0 != 1).collect()
        };
        let contiguous = Self::contiguous(&self.shape());
        self.elements() == count && (count == 0 || wide(&self.axes) == wide(&contiguous.axes))
    }

    /// Whether the elements of a row of the last axis lie side by side, or, if `or_columns`, those of the axis before.
    fn lies_in_rows(&self, or_columns: bool) -> bool {
        let axes = self.axes.iter().rev().take(if or_columns { 2 } else { 1 });
        self.axes.is_empty() || axes.into_iter().any(|axis| matches!(axis, (0 | 1, _) | (_, 1)))
    }

    /// Where the elements are after steps; none if one of them needs a copy.
    fn through(self, steps: &[ViewStep]) -> Result<Option<Self>, ExecutorError> {
        let mut strides = self;
        for step in steps {
            match strides.after(step)? {
                Some(after) => strides = after,
                None => return Ok(None),
            }
        }
        Ok(Some(strides))
    }

    /// Where the elements are after a step; none if that needs a copy.
    fn after(&self, step: &ViewStep) -> Result<Option<Self>, ExecutorError> {
        let misfit = || fails(format!("{step:?} of {:?}", self.shape()));
        let Self { mut first, ref axes } = *self;
        let axes = match step {
            ViewStep::Reshape(dims) => {
                let shape = self.reshaped(dims).ok_or_else(misfit)?;
                let Some(axes) = self.split(&shape) else { return Ok(None) };
                axes
            }
            ViewStep::Transpose(order) => {
                let axis = |&at: &usize| axes.get(at).copied();
                let moved: Option<Vec<_>> = order.iter().map(axis).collect();
                moved.filter(|moved| moved.len() == axes.len()).ok_or_else(misfit)?
            }
            ViewStep::Slice(cuts) => {
                let mut axes = axes.clone();
                for cut in cuts {
                    let (length, stride) = axes.get_mut(cut.axis).ok_or_else(misfit)?;
                    let place = |at: i64| {
                        let at = if at < 0 { at.saturating_add(*length as i64) } else { at };
                        at.clamp(0, *length as i64) as usize
                    };
                    let (start, end) = (place(cut.start), place(cut.end));
                    *length = end.saturating_sub(start).div_ceil(cut.step);
                    first += start * *stride;
                    *stride = stride.saturating_mul(cut.step);
                }
                axes
            }
            ViewStep::Squeeze(gone) => {
                let is_one = |at: &usize| axes.get(*at).is_some_and(|axis| axis.0 == 1);
                if !gone.iter().all(is_one) {
                    return Err(misfit());
                }
                let kept = axes.iter().enumerate().filter(|(at, _)| !gone.contains(at));
                kept.map(|(_, axis)| *axis).collect()
            }
            ViewStep::Unsqueeze(new) => {
                let mut axes = axes.clone();
                for &at in new {
                    if at > axes.len() {
                        return Err(misfit());
                    }
                    axes.insert(at, (1, 0));
                }
                axes
            }
        };
        Ok(Some(Self { first, axes }))
    }

    /// The shape that `Reshape` makes of this one; none if it has another number of elements.
    fn reshaped(&self, dims: &[i64]) -> Option<Vec<usize>> {
        let known = |(at, &dim): (usize, &i64)| match dim {
            0 => self.axes.get(at).map(|axis| axis.0),
            -1 => Some(1),
            dim => usize::try_from(dim).ok(),
        };
        let mut shape = dims.iter().enumerate().map(known).collect::<Option<Vec<usize>>>()?;
        let elements = self.elements();
        if let Some(at) = dims.iter().position(|&dim| dim == -1) {
            shape[at] = elements.checked_div(shape.iter().product())?;
        }
        (shape.iter().product::<usize>() == elements).then_some(shape)
    }

    /// The axes of another shape of as many elements; none if one of them would not have one stride.
    fn split(&self, shape: &[usize]) -> Option<Vec<(usize, usize)>> {
        if self.elements() == 0 {
            return Some(Self::contiguous(shape).axes);
        }
        // Neighbours whose elements follow each other are one axis.
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(self.axes.len());
        for &(length, stride) in self.axes.iter().filter(|axis| axis.0 != 1) {
            match merged.last_mut() {
                Some(last) if last.1 == length * stride => *last = (last.0 * length, stride),
                _ => merged.push((length, stride)),
            }
        }
        let (mut axes, mut rest) = (Vec::with_capacity(shape.len()), 1);
        let mut of = merged.into_iter();
        let mut stride = 0;
        for &length in shape {
            if length == 1 {
                axes.push((1, 0));
                continue;
            }
            if rest == 1 {
                let (elements, innermost) = of.next()?;
                (rest, stride) = (elements, elements * innermost);
            }
            if rest % length != 0 {
                return None;
            }
            (rest, stride) = (rest / length, stride / length);
            axes.push((length, stride));
        }
        Some(axes)
    }

    fn copied<T: Clone>(&self, data: &[T]) -> Result<Tensor<T>, ExecutorError> {
        let shape = self.shape();
        if self.elements() == 0 {
            return Ok(Tensor::from_data(&shape[..], Vec::new()));
        }
        let strides: Vec<usize> = self.axes.iter().map(|axis| axis.1).collect();
        let from = data.get(self.first..).unwrap_or_default();
        let view = TensorView::from_slice_with_strides(&shape[..], from, &strides[..]);
        view.map(|view| view.to_tensor()).map_err(|error| fails(error.to_string()))
    }
}

fn fails(reason: String) -> ExecutorError {
    ExecutorError::Run(format!("a view: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::ViewStep::{Reshape, Slice, Squeeze, Transpose, Unsqueeze};
    use super::*;

    fn numbers(shape: &[usize]) -> Tensor<f32> {
        let count = shape.iter().product::<usize>();
        Tensor::from_data(shape, (0..count).map(|n| n as f32).collect::<Vec<_>>())
    }

    /// What rten makes of the steps, one by one.
    fn by_rten(x: &Tensor<f32>, steps: &[ViewStep]) -> Tensor<f32> {
        steps.iter().fold(x.clone(), |x, step| match step {
            Reshape(dims) => {
                let shape = Strides::contiguous(x.shape()).reshaped(dims).unwrap();
                x.reshaped(&shape[..]).to_tensor()
            }
            Transpose(order) => x.permuted(&order[..]).to_tensor(),
            Slice(cuts) => cuts.iter().fold(x, |x, cut| {
                let length = x.shape()[cut.axis] as i64;
                let place = |at: i64| (if at < 0 { at + length } else { at }).clamp(0, length);
                let range = place(cut.start) as usize..place(cut.end) as usize;
                let range = range.start..range.end.max(range.start);
                let parts: Vec<_> = range.step_by(cut.step).collect();
                let mut order: Vec<usize> = (0..x.ndim()).collect();
                order.swap(0, cut.axis);
                let moved = x.permuted(&order[..]).to_tensor();
                let mut shape = moved.shape().to_vec();
                shape[0] = parts.len();
                let rows = parts.iter().flat_map(|&at| moved.slice(at).to_vec());
                Tensor::from_data(&shape[..], rows.collect::<Vec<_>>())
                    .permuted(&order[..])
                    .to_tensor()
            }),
            Squeeze(_) | Unsqueeze(_) => unreachable!("not compared"),
        })
    }

    #[test]
    fn steps_are_joined_as_rten_runs_them() {
        let cut = |axis, start, end, step| Cut { axis, start, end, step };
        let cases = [
            (vec![2, 6, 12], vec![Slice(vec![cut(2, 4, 8, 1)]), Reshape(vec![0, 6, 2, 2])]),
            (vec![2, 6, 12], vec![Reshape(vec![2, 6, 3, 4]), Transpose(vec![0, 2, 1, 3])]),
            (
                vec![2, 6, 12],
                vec![
                    Slice(vec![cut(2, -8, i64::MAX, 1)]),
                    Reshape(vec![0, 0, 2, 4]),
                    Transpose(vec![0, 2, 3, 1]),
                    Reshape(vec![-1, 6]),
                ],
            ),
            (vec![3, 4], vec![Transpose(vec![1, 0]), Reshape(vec![12])]),
            (vec![3, 8], vec![Slice(vec![cut(1, 1, 7, 2), cut(0, 1, 3, 1)]), Reshape(vec![6, 1])]),
            (vec![3, 8], vec![Slice(vec![cut(1, 5, 2, 1)])]),
            (vec![1, 5, 1, 2], vec![Reshape(vec![5, 2]), Transpose(vec![1, 0])]),
        ];
        for (shape, steps) in cases {
            let (x, wanted) = (numbers(&shape), by_rten(&numbers(&shape), &steps));
            let view = StridedView(steps);
            assert_eq!(view.copied(&x).unwrap(), wanted, "{view:?}");
            assert_eq!(view.owned(x.clone()).unwrap(), wanted, "{view:?}");
            let apart = x.permuted(&(0..x.ndim()).rev().collect::<Vec<_>>()[..]).to_tensor();
            assert_eq!(view.copied(&apart).is_ok(), view.owned(apart).is_ok(), "{view:?}");
        }
    }

    #[test]
    fn elements_that_keep_their_order_are_not_copied() {
        let x = numbers(&[2, 1, 6]);
        let before = x.data().unwrap().as_ptr();
        let steps = vec![Squeeze(vec![1]), Reshape(vec![0, 2, 3]), Unsqueeze(vec![0, 4])];
        let y = StridedView(steps).owned(x).unwrap();
        assert_eq!((y.shape().to_vec(), y.data().unwrap().as_ptr()), (vec![1, 2, 2, 3, 1], before));
        let turned = StridedView(vec![Transpose(vec![1, 0]), Transpose(vec![1, 0])]);
        let y = turned.owned(numbers(&[3, 2])).unwrap();
        assert_eq!(y, numbers(&[3, 2]));
    }

    #[test]
    fn shapes_that_do_not_fit_are_told() {
        let x = numbers(&[2, 3]);
        for step in [
            Reshape(vec![4]),
            Reshape(vec![-1, 4]),
            Transpose(vec![0]),
            Transpose(vec![0, 2]),
            Squeeze(vec![0]),
            Unsqueeze(vec![3]),
            Slice(vec![Cut { axis: 2, start: 0, end: 1, step: 1 }]),
        ] {
            assert!(StridedView(vec![step.clone()]).copied(&x).is_err(), "{step:?}");
        }
    }
}
