//! The tensors of a batch: rows are gathered into them from where they lie, and scattered from them to where
//! they go.

use batchmaker_graph::{ElementType, RowSpec, TensorData};

use super::row_pointers::RowPointers;

/// Rows gathered into one tensor, `[rows, ...row]`.
pub(crate) struct Gathered {
    element: ElementType,
    data: TensorData,
    rows: usize,
}

impl Gathered {
    /// An empty tensor for `rows` rows of `spec`.
    pub(crate) fn with_capacity(spec: &RowSpec, rows: usize) -> Self {
        let data = TensorData::zeros(spec.element, rows * spec.elements());
        Self { element: spec.element, data, rows: 0 }
    }

    /// Appends `count` rows, those of node `first` and of the nodes after it.
    ///
    /// # Safety
    /// The rows of these nodes are alive, `from.row_bytes` bytes each, and nobody writes them until this returns.
    pub(crate) unsafe fn append(&mut self, from: &RowPointers, first: u32, count: u32) {
        let bytes = from.row_bytes;
        let left = self.data.len() * self.element.bytes() - self.rows * bytes;
        assert!(count as usize * bytes <= left, "more rows than were announced");
        let start = data_pointer(&mut self.data).wrapping_add(self.rows * bytes);
        for i in 0..count {
            // SAFETY: the target has space, as was just checked; the caller vouches for the source.
            unsafe {
                let to = start.add(i as usize * bytes);
                std::ptr::copy_nonoverlapping(from.row(first + i), to, bytes);
            }
        }
        self.rows += count as usize;
    }

    /// Leaves `count` rows of zeros.
    pub(crate) fn skip(&mut self, count: u32) {
        self.rows += count as usize;
    }

    /// The tensor.
    pub(crate) fn finish(self) -> TensorData {
        self.data
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
    let start = data_pointer(data);
    for i in 0..count {
        // SAFETY: the source is within `data`, as was just checked; the caller vouches for the target.
        unsafe {
            let from = start.add((skip + i as usize) * bytes);
            std::ptr::copy_nonoverlapping(from, to.row(first + i), bytes);
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
