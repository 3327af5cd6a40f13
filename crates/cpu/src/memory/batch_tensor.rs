//! The tensors of a batch: rows are gathered into them from where they lie, and scattered from them to where
//! they go.

use batchmaker_graph::{RowSpec, TensorData};

use super::row_pointers::RowPointers;

/// Rows gathered into one tensor, `[rows, ...row]`.
pub(crate) struct Gathered {
    data: TensorData,
    /// Elements of a row.
    of_row: usize,
    /// Rows that are to come.
    left: usize,
}

impl Gathered {
    /// An empty tensor for `rows` rows of `spec`.
    pub(crate) fn with_capacity(spec: &RowSpec, rows: usize) -> Self {
        let of_row = spec.elements();
        Self { data: TensorData::with_capacity(spec.element, rows * of_row), of_row, left: rows }
    }

    /// Appends `count` rows, those of node `first` and of the nodes after it.
    ///
    /// # Safety
    /// The rows of these nodes are alive, hold elements of the tensor's type, `from.row_bytes` bytes each, and nobody writes them until
    /// this returns.
    pub(crate) unsafe fn append(&mut self, from: &RowPointers, first: u32, count: u32) {
        let bytes = self.of_row * self.data.element().bytes();
        assert!(count as usize <= self.left, "more rows than were announced");
        assert_eq!(from.row_bytes, bytes, "rows of another length than was announced");
        self.left -= count as usize;
        let rows = FromRows { from, first, count };
        // SAFETY: the caller vouches for the rows.
        unsafe {
            match &mut self.data {
                TensorData::F32(data) => rows.append_to(data),
                TensorData::I64(data) => rows.append_to(data),
                TensorData::I32(data) => rows.append_to(data),
                TensorData::Bool(data) => rows.append_to(data),
                TensorData::Bytes(_) => unreachable!("byte strings end at the edge of the model"),
            }
        }
    }

    /// Leaves `count` rows of zeros.
    pub(crate) fn skip(&mut self, count: u32) {
        assert!(count as usize <= self.left, "more rows than were announced");
        self.left -= count as usize;
        self.data.resize(self.data.len() + count as usize * self.of_row);
    }

    /// The tensor.
    pub(crate) fn finish(self) -> TensorData {
        debug_assert_eq!(self.left, 0, "fewer rows than were announced");
        self.data
    }
}

/// The rows of some nodes.
struct FromRows<'a> {
    from: &'a RowPointers,
    first: u32,
    count: u32,
}

impl FromRows<'_> {
    /// Appends the rows to `data`.
    ///
    /// # Safety
    /// The rows are alive and hold elements of this type, and nobody writes them until this returns.
    unsafe fn append_to<T: Copy>(&self, data: &mut Vec<T>) {
        let Self { from, first, count } = *self;
        let bytes = from.row_bytes;
        let elements = count as usize * bytes / size_of::<T>();
        data.reserve(elements);
        // SAFETY: `data` has space for `elements` more elements behind its own, and the rows are copied there; the caller vouches for the rows.
        unsafe {
            let to: *mut u8 = data.as_mut_ptr().add(data.len()).cast();
            match from.in_line(first) {
                Some(from) => std::ptr::copy_nonoverlapping(from, to, count as usize * bytes),
                None => {
                    for at in 0..count {
                        let to = to.add(at as usize * bytes);
                        std::ptr::copy_nonoverlapping(from.row(first + at), to, bytes);
                    }
                }
            }
            data.set_len(data.len() + elements);
        }
    }
}

/// Copies rows `skip..skip + count` of `data` to the rows of node `first` and of the nodes after it.
///
/// # Safety
/// The rows of these nodes are alive, `to.row_bytes` bytes each, and nobody else accesses them until this
/// returns.
pub(crate) unsafe fn scatter(
    data: &mut TensorData,
    skip: usize,
    to: &RowPointers,
    first: u32,
    count: u32,
) {
    let bytes = to.row_bytes;
    let length = data.len() * data.element().bytes();
    assert!((skip + count as usize) * bytes <= length, "fewer rows than asked for");
    let from = data_pointer(data).wrapping_add(skip * bytes);
    // SAFETY: the source is within `data`, as was just checked; the caller vouches for the target.
    unsafe {
        match to.in_line(first) {
            Some(to) => std::ptr::copy_nonoverlapping(from, to, count as usize * bytes),
            None => {
                for at in 0..count {
                    let from = from.add(at as usize * bytes);
                    std::ptr::copy_nonoverlapping(from, to.row(first + at), bytes);
                }
            }
        }
    }
}

/// The address of the first element.
pub(super) fn data_pointer(data: &mut TensorData) -> *mut u8 {
    match data {
        TensorData::F32(data) => data.as_mut_ptr().cast(),
        TensorData::I64(data) => data.as_mut_ptr().cast(),
        TensorData::I32(data) => data.as_mut_ptr().cast(),
        TensorData::Bool(data) => data.as_mut_ptr().cast(),
        TensorData::Bytes(_) => unreachable!("byte strings end at the edge of the model"),
    }
}
