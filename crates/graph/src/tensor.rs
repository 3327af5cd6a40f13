//! Dense row-major tensors of requests and replies.

use std::fmt;
use std::ops::Range;

/// The type of a tensor's elements.
///
/// Cells compute with the first four. The numbers of the other types stand at the edge of the system; within it
/// they are [stored](Self::stored) as one of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementType {
    /// 32-bit IEEE float.
    F32,
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer.
    I32,
    /// Truth value, one byte.
    Bool,
    /// Byte strings; only at the edge of the system (text), never in a cell.
    Bytes,
    /// 16-bit IEEE float.
    F16,
    /// The upper half of a 32-bit IEEE float.
    Bf16,
    /// 64-bit IEEE float, computed with as one of 32 bits.
    F64,
    /// 8-bit signed integer.
    I8,
    /// 16-bit signed integer.
    I16,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit unsigned integer, less than 2^63.
    U64,
}

impl ElementType {
    /// The type that elements have in values and requests: floats and integers of 16 bits and fewer are FP32, which
    /// holds all of them (of FP64 the nearest); unsigned integers of more bits are INT64.
    pub fn stored(self) -> Self {
        match self {
            Self::F16 | Self::Bf16 | Self::F64 => Self::F32,
            Self::I8 | Self::I16 | Self::U8 | Self::U16 => Self::F32,
            Self::U32 | Self::U64 => Self::I64,
            Self::F32 | Self::I64 | Self::I32 | Self::Bool | Self::Bytes => self,
        }
    }

    /// Whether elements are integers.
    pub fn is_integer(self) -> bool {
        self.is_narrow() || matches!(self, Self::I64 | Self::I32 | Self::U32 | Self::U64)
    }

    /// Whether elements are integers of at most 16 bits.
    pub fn is_narrow(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::U8 | Self::U16)
    }

    /// Whether elements are floats.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16 | Self::F64)
    }

    /// The bytes of a stored element.
    ///
    /// # Panics
    /// For byte strings, whose lengths differ.
    pub fn bytes(self) -> usize {
        match self.stored() {
            Self::I64 => 8,
            Self::Bool => 1,
            Self::Bytes => unreachable!("byte strings end at the edge of the model"),
            _ => 4,
        }
    }
}

impl fmt::Display for ElementType {
    /// The name in the Open Inference Protocol.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "FP32",
            Self::I64 => "INT64",
            Self::I32 => "INT32",
            Self::Bool => "BOOL",
            Self::Bytes => "BYTES",
            Self::F16 => "FP16",
            Self::Bf16 => "BF16",
            Self::F64 => "FP64",
            Self::I8 => "INT8",
            Self::I16 => "INT16",
            Self::U8 => "UINT8",
            Self::U16 => "UINT16",
            Self::U32 => "UINT32",
            Self::U64 => "UINT64",
        })
    }
}

/// An upper bound of the bytes that an element of [`TensorData::Bytes`] takes, as part of its vector and as an
/// allocation of its own.
pub fn byte_string_bytes(length: usize) -> usize {
    /// What allocators add, and round up to.
    const ALLOCATION_BYTES: usize = 32;
    size_of::<Vec<u8>>() + if length > 0 { length + ALLOCATION_BYTES } else { 0 }
}

/// The elements of a tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData {
    /// See [`ElementType::F32`].
    F32(Vec<f32>),
    /// See [`ElementType::I64`].
    I64(Vec<i64>),
    /// See [`ElementType::I32`].
    I32(Vec<i32>),
    /// See [`ElementType::Bool`].
    Bool(Vec<bool>),
    /// See [`ElementType::Bytes`].
    Bytes(Vec<Vec<u8>>),
}

impl TensorData {
    /// `count` zeros (false, empty strings).
    pub fn zeros(element: ElementType, count: usize) -> Self {
        match element.stored() {
            ElementType::I64 => Self::I64(vec![0; count]),
            ElementType::I32 => Self::I32(vec![0; count]),
            ElementType::Bool => Self::Bool(vec![false; count]),
            ElementType::Bytes => Self::Bytes(vec![Vec::new(); count]),
            _ => Self::F32(vec![0.0; count]),
        }
    }

    /// No elements yet, with memory for `count` of them.
    pub fn with_capacity(element: ElementType, count: usize) -> Self {
        match element.stored() {
            ElementType::I64 => Self::I64(Vec::with_capacity(count)),
            ElementType::I32 => Self::I32(Vec::with_capacity(count)),
            ElementType::Bool => Self::Bool(Vec::with_capacity(count)),
            ElementType::Bytes => Self::Bytes(Vec::with_capacity(count)),
            _ => Self::F32(Vec::with_capacity(count)),
        }
    }

    /// The number of elements that there is memory for.
    pub fn capacity(&self) -> usize {
        match self {
            Self::F32(data) => data.capacity(),
            Self::I64(data) => data.capacity(),
            Self::I32(data) => data.capacity(),
            Self::Bool(data) => data.capacity(),
            Self::Bytes(data) => data.capacity(),
        }
    }

    /// An upper bound of the bytes that the elements take. A byte string counts its allocation.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Bytes(strings) => strings.iter().map(|text| byte_string_bytes(text.len())).sum(),
            numbers => numbers.len() * numbers.element().bytes(),
        }
    }

    /// The type that the elements are stored as.
    pub fn element(&self) -> ElementType {
        match self {
            Self::F32(_) => ElementType::F32,
            Self::I64(_) => ElementType::I64,
            Self::I32(_) => ElementType::I32,
            Self::Bool(_) => ElementType::Bool,
            Self::Bytes(_) => ElementType::Bytes,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::I64(data) => data.len(),
            Self::I32(data) => data.len(),
            Self::Bool(data) => data.len(),
            Self::Bytes(data) => data.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` elements, with zeros (see [`zeros`](Self::zeros)) where there are fewer.
    pub fn resize(&mut self, count: usize) {
        match self {
            Self::F32(data) => data.resize(count, 0.0),
            Self::I64(data) => data.resize(count, 0),
            Self::I32(data) => data.resize(count, 0),
            Self::Bool(data) => data.resize(count, false),
            Self::Bytes(data) => data.resize(count, Vec::new()),
        }
    }

    /// Adds some elements of others, which are of the same type.
    ///
    /// # Panics
    /// If they are not, or there are not so many.
    fn extend(&mut self, others: &Self, range: Range<usize>) {
        match (self, others) {
            (Self::F32(data), Self::F32(others)) => data.extend_from_slice(&others[range]),
            (Self::I64(data), Self::I64(others)) => data.extend_from_slice(&others[range]),
            (Self::I32(data), Self::I32(others)) => data.extend_from_slice(&others[range]),
            (Self::Bool(data), Self::Bool(others)) => data.extend_from_slice(&others[range]),
            (Self::Bytes(data), Self::Bytes(others)) => data.extend_from_slice(&others[range]),
            _ => unreachable!("elements of one type"),
        }
    }

    /// The rows of `self` where `is_other` is false, and those of `other` where it is true.
    ///
    /// # Panics
    /// If the two have other types or lengths, or their elements do not divide into as many rows as `is_other` has entries.
    pub fn choose_rows(&self, other: &Self, is_other: &[bool]) -> Self {
        let row = self.len() / is_other.len().max(1);
        assert!(self.len() == row * is_other.len() && other.len() == self.len(), "rows of rows");
        let mut chosen = Self::zeros(self.element(), 0);
        for (at, &is_other) in is_other.iter().enumerate() {
            chosen.extend(if is_other { other } else { self }, at * row..(at + 1) * row);
        }
        chosen
    }

    /// Some of the elements.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn slice(&self, range: Range<usize>) -> Self {
        match self {
            Self::F32(data) => Self::F32(data[range].to_vec()),
            Self::I64(data) => Self::I64(data[range].to_vec()),
            Self::I32(data) => Self::I32(data[range].to_vec()),
            Self::Bool(data) => Self::Bool(data[range].to_vec()),
            Self::Bytes(data) => Self::Bytes(data[range].to_vec()),
        }
    }
}

/// A dense row-major tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: TensorData,
}

impl Tensor {
    /// A tensor of `shape`.
    ///
    /// # Panics
    /// If `data` does not hold as many elements as `shape` says.
    pub fn new(shape: Vec<usize>, data: TensorData) -> Self {
        assert_eq!(
            shape.iter().product::<usize>(),
            data.len(),
            "a tensor of shape {shape:?} was given {} elements",
            data.len()
        );
        Self { shape, data }
    }

    /// The lengths of the axes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements, row-major.
    pub fn data(&self) -> &TensorData {
        &self.data
    }

    /// The type of the elements.
    pub fn element(&self) -> ElementType {
        self.data.element()
    }

    /// The elements alone.
    pub fn into_data(self) -> TensorData {
        self.data
    }

    /// The same elements under another shape of as many elements.
    pub fn reshaped(self, shape: Vec<usize>) -> Self {
        Self::new(shape, self.data)
    }

    /// The axes reordered as `numpy.transpose` does: axis `i` of the result is axis
    /// `permutation[i]` of `self`. Free where only axes of length 1 move.
    pub fn permuted(self, permutation: &[usize]) -> Self {
        assert_eq!(permutation.len(), self.shape.len());
        let shape: Vec<usize> = permutation.iter().map(|&axis| self.shape[axis]).collect();
        let long = |axes: &mut dyn Iterator<Item = usize>| -> Vec<usize> {
            axes.filter(|&axis| self.shape[axis] != 1).collect()
        };
        if long(&mut permutation.iter().copied()) == long(&mut (0..self.shape.len())) {
            return Self::new(shape, self.data);
        }
        let mut strides = vec![1; self.shape.len()];
        for axis in (1..self.shape.len()).rev() {
            strides[axis - 1] = strides[axis] * self.shape[axis];
        }
        let strides: Vec<usize> = permutation.iter().map(|&axis| strides[axis]).collect();
        let data = match &self.data {
            TensorData::F32(data) => TensorData::F32(permute(data, &shape, &strides)),
            TensorData::I64(data) => TensorData::I64(permute(data, &shape, &strides)),
            TensorData::I32(data) => TensorData::I32(permute(data, &shape, &strides)),
            TensorData::Bool(data) => TensorData::Bool(permute(data, &shape, &strides)),
            TensorData::Bytes(data) => TensorData::Bytes(permute(data, &shape, &strides)),
        };
        Self::new(shape, data)
    }

    /// The part along `axis` from position `first` on.
    ///
    /// # Panics
    /// If there is no such axis, or it has not so many elements.
    pub fn from_position(&self, axis: usize, first: usize) -> Self {
        let mut part =
            Self { shape: self.shape.clone(), data: TensorData::zeros(self.element(), 0) };
        part.shape[axis] = self.shape[axis] - first;
        part.extend_along(axis, &[(self, first)]);
        part
    }

    /// This tensor and after it, along `axis`, another; none if their types or their other axes differ.
    pub fn followed_by(&self, axis: usize, other: &Self) -> Option<Self> {
        let same_rank = self.shape.len() == other.shape.len() && axis < self.shape.len();
        let differ = |a: usize| a != axis && self.shape[a] != other.shape[a];
        if !same_rank || self.element() != other.element() || (0..self.shape.len()).any(differ) {
            return None;
        }
        let mut joined =
            Self { shape: self.shape.clone(), data: TensorData::zeros(self.element(), 0) };
        joined.shape[axis] += other.shape[axis];
        joined.extend_along(axis, &[(self, 0), (other, 0)]);
        Some(joined)
    }

    /// Fills an empty tensor with parts after each other along an axis, each from a position on.
    fn extend_along(&mut self, axis: usize, parts: &[(&Self, usize)]) {
        let outer: usize = self.shape[..axis].iter().product();
        let inner: usize = self.shape[axis + 1..].iter().product();
        for index in 0..outer {
            for &(part, first) in parts {
                let length = part.shape[axis];
                let from = (index * length + first) * inner;
                self.data.extend(&part.data, from..(index + 1) * length * inner);
            }
        }
    }
}

/// The elements of `data` in the order of axes of lengths `shape`, on each of which neighbours are `strides` apart.
fn permute<T: Clone>(data: &[T], shape: &[usize], strides: &[usize]) -> Vec<T> {
    let mut permuted = Vec::with_capacity(data.len());
    if data.is_empty() {
        return permuted;
    }
    // Axes whose elements follow each other in `data`, too, are one axis: `(length, stride)`.
    let mut axes: Vec<(usize, usize)> = Vec::with_capacity(shape.len());
    for (&length, &stride) in shape.iter().zip(strides).filter(|(length, _)| **length != 1) {
        match axes.last_mut() {
            Some(last) if last.1 == length * stride => *last = (last.0 * length, stride),
            _ => axes.push((length, stride)),
        }
    }
    let (length, stride) = axes.pop().unwrap_or((1, 1));
    let mut index = vec![0; axes.len()];
    loop {
        let offset: usize = index.iter().zip(&axes).map(|(i, (_, stride))| i * stride).sum();
        let line = &data[offset..][..(length - 1) * stride + 1];
        match stride {
            1 => permuted.extend_from_slice(line),
            _ => permuted.extend((0..length).map(|at| line[at * stride].clone())),
        }
        let Some(axis) = (0..axes.len()).rev().find(|&axis| index[axis] + 1 < axes[axis].0) else {
            return permuted;
        };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permuted_follows_numpy_transpose() {
        let tensor = Tensor::new(vec![2, 1, 3], TensorData::I32(vec![0, 1, 2, 3, 4, 5]));
        let moved = tensor.clone().permuted(&[2, 0, 1]);
        assert_eq!(moved.shape(), [3, 2, 1]);
        assert_eq!(moved.data(), &TensorData::I32(vec![0, 3, 1, 4, 2, 5]));
        let same = tensor.clone().permuted(&[1, 0, 2]);
        assert_eq!(same, tensor.reshaped(vec![1, 2, 3]));
    }

    #[test]
    fn every_order_of_axes_is_a_permutation() {
        let shape = [2, 3, 1, 4];
        let count = shape.iter().product::<usize>();
        let x = Tensor::new(shape.to_vec(), TensorData::I64((0..count as i64).collect()));
        for order in (0..256).map(|n| [n / 64, n / 16 % 4, n / 4 % 4, n % 4]) {
            if (0..4).any(|axis| !order.contains(&axis)) {
                continue;
            }
            let y = x.clone().permuted(&order);
            let TensorData::I64(data) = y.data() else { panic!("of another type") };
            for (at, &element) in data.iter().enumerate() {
                let (mut rest, mut from) = (at, [0; 4]);
                for (axis, &of) in order.iter().enumerate().rev() {
                    from[of] = rest % y.shape()[axis];
                    rest /= y.shape()[axis];
                }
                let place = from.iter().zip(shape).fold(0, |sum, (i, length)| sum * length + i);
                assert_eq!(element, place as i64, "{order:?}");
            }
        }
    }

    #[test]
    fn parts_along_an_axis_follow_each_other() {
        let tensor = |shape: [usize; 2], of: &[i32]| {
            Tensor::new(shape.to_vec(), TensorData::I32(of.to_vec()))
        };
        let whole = tensor([2, 3], &[0, 1, 2, 3, 4, 5]);
        assert_eq!(whole.from_position(1, 1), tensor([2, 2], &[1, 2, 4, 5]));
        assert_eq!(whole.from_position(0, 2), tensor([0, 3], &[]));
        let first = tensor([2, 1], &[0, 3]);
        assert_eq!(first.followed_by(1, &whole.from_position(1, 1)), Some(whole.clone()));
        assert_eq!(first.followed_by(0, &whole), None);
    }
}
