//! Small dense arrays of anything, for constants and for shapes that are computed on.
//!
//! Every operation that only moves elements is one [`Array::build`]: the shape of the
//! result and, for each of its positions, the source's offset.

/// A dense row-major array.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array<T> {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<T>,
}

/// The position of `index` in a row-major array of `shape`.
pub(crate) fn offset(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |offset, (length, i)| offset * length + i)
}

/// Calls `f` with every index of `shape`, in row-major order.
pub(crate) fn for_each_index(shape: &[usize], mut f: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    loop {
        f(&index);
        let Some(axis) = (0..shape.len()).rev().find(|&axis| index[axis] + 1 < shape[axis]) else {
            return;
        };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

/// The shape that operands of `a` and `b` broadcast to.
pub(crate) fn broadcast_shapes(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis])
    };
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (a, b) if a == b || b == 1 => Some(a),
            (1, b) => Some(b),
            _ => None,
        })
        .collect()
}

impl<T: Clone> Array<T> {
    pub(crate) fn new(shape: Vec<usize>, data: Vec<T>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "an array of shape {shape:?}");
        Self { shape, data }
    }

    pub(crate) fn scalar(value: T) -> Self {
        Self::new(Vec::new(), vec![value])
    }

    pub(crate) fn vector(data: Vec<T>) -> Self {
        Self::new(vec![data.len()], data)
    }

    pub(crate) fn reshaped(self, shape: Vec<usize>) -> Self {
        Self::new(shape, self.data)
    }

    fn build(&self, shape: Vec<usize>, mut source: impl FnMut(&[usize]) -> usize) -> Self {
        let mut data = Vec::with_capacity(shape.iter().product());
        for_each_index(&shape, |index| data.push(self.data[source(index)].clone()));
        Self { shape, data }
    }

    pub(crate) fn transposed(&self, permutation: &[usize]) -> Self {
        let shape = permutation.iter().map(|&axis| self.shape[axis]).collect();
        let mut from = vec![0; self.shape.len()];
        self.build(shape, |index| {
            for (&axis, &i) in permutation.iter().zip(index) {
                from[axis] = i;
            }
            offset(&self.shape, &from)
        })
    }

    /// `f` of each element.
    pub(crate) fn mapped<U>(&self, f: impl Fn(&T) -> U) -> Array<U> {
        Array { shape: self.shape.clone(), data: self.data.iter().map(f).collect() }
    }

    /// `shape` must be one that the array broadcasts to.
    pub(crate) fn expanded(&self, shape: &[usize]) -> Self {
        match &self.data[..] {
            _ if self.shape == shape => return self.clone(),
            [one] => {
                let data = vec![one.clone(); shape.iter().product()];
                return Self { shape: shape.to_vec(), data };
            }
            _ => {}
        }
        let skip = shape.len() - self.shape.len();
        self.build(shape.to_vec(), |index| {
            let own = self.shape.iter().zip(&index[skip..]);
            own.fold(0, |offset, (&length, &i)| offset * length + if length == 1 { 0 } else { i })
        })
    }

    pub(crate) fn gathered(&self, axis: usize, indices: &[usize], index_shape: &[usize]) -> Self {
        let mut shape = self.shape[..axis].to_vec();
        shape.extend(index_shape);
        shape.extend(&self.shape[axis + 1..]);
        self.build(shape, |index| {
            let chosen = &index[axis..axis + index_shape.len()];
            let mut from = index[..axis].to_vec();
            from.push(indices[offset(index_shape, chosen)]);
            from.extend(&index[axis + index_shape.len()..]);
            offset(&self.shape, &from)
        })
    }

    /// The array with the elements of `updates` in their places: that at an index of `updates`, where the index along `axis`
    /// is the next of `places` (ONNX operator `ScatterElements`).
    pub(crate) fn scattered(&self, axis: usize, places: &[usize], updates: &Self) -> Self {
        let mut scattered = self.clone();
        let mut next = places.iter().zip(&updates.data);
        for_each_index(&updates.shape, |index| {
            let Some((&place, update)) = next.next() else { return };
            let mut index = index.to_vec();
            index[axis] = place;
            scattered.data[offset(&self.shape, &index)] = update.clone();
        });
        scattered
    }

    pub(crate) fn concatenated(parts: &[&Self], axis: usize) -> Option<Self> {
        let mut shape = parts.first()?.shape.clone();
        if axis >= shape.len() {
            return None;
        }
        shape[axis] = 0;
        for part in parts {
            let same = |(i, length): (usize, &usize)| i == axis || *length == shape[i];
            if part.shape.len() != shape.len() || !part.shape.iter().enumerate().all(same) {
                return None;
            }
        }
        shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
        let outer: usize = shape[..axis].iter().product();
        let mut data = Vec::with_capacity(shape.iter().product());
        for row in 0..outer {
            for part in parts {
                let width: usize = part.shape[axis..].iter().product();
                data.extend_from_slice(&part.data[row * width..(row + 1) * width]);
            }
        }
        Some(Self { shape, data })
    }

    /// Combines the elements along `axes` one after the other, in row-major order; the axes stay, of length 1. Gives
    /// none where `f` does, or where there is nothing to combine.
    pub(crate) fn reduced(&self, axes: &[usize], f: impl Fn(&T, &T) -> Option<T>) -> Option<Self> {
        let mut shape = self.shape.clone();
        axes.iter().for_each(|&axis| shape[axis] = 1);
        let mut sums: Vec<Option<T>> = vec![None; shape.iter().product()];
        let mut elements = self.data.iter();
        let mut fits = true;
        for_each_index(&self.shape, |index| {
            let place = index.iter().enumerate();
            let place = place.map(|(axis, &i)| if axes.contains(&axis) { 0 } else { i });
            let sum = &mut sums[offset(&shape, &place.collect::<Vec<_>>())];
            let element = elements.next().expect("an element for each index");
            let next = sum.as_ref().map_or(Some(element.clone()), |sum| f(sum, element));
            fits &= next.is_some();
            *sum = next;
        });
        let data = sums.into_iter().collect::<Option<Vec<_>>>().filter(|_| fits)?;
        Some(Self { shape, data })
    }

    /// Combines two arrays element by element, broadcasting both.
    pub(crate) fn zipped<U: Clone, V>(
        &self,
        other: &Array<U>,
        mut f: impl FnMut(&T, &U) -> Option<V>,
    ) -> Option<Array<V>> {
        let shape = broadcast_shapes(&self.shape, &other.shape)?;
        let (a, b) = (self.expanded(&shape), other.expanded(&shape));
        let data = a.data.iter().zip(&b.data).map(|(a, b)| f(a, b)).collect::<Option<Vec<_>>>()?;
        Some(Array { shape, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_move_as_in_numpy() {
        let a = Array::new(vec![2, 3], vec![0, 1, 2, 3, 4, 5]);
        assert_eq!(a.transposed(&[1, 0]).data, [0, 3, 1, 4, 2, 5]);
        assert_eq!(a.gathered(1, &[2, 0], &[2]).data, [2, 0, 5, 3]);
        assert_eq!(a.gathered(0, &[1], &[]).shape, [3]);
        let row = Array::vector(vec![10, 20, 30]);
        let sum = a.zipped(&row, |a, b| Some(a + b)).unwrap();
        assert_eq!(sum.data, [10, 21, 32, 13, 24, 35]);
        assert_eq!(Array::concatenated(&[&a, &a], 1).unwrap().shape, [2, 6]);
    }
}
