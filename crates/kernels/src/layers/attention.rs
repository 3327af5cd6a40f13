//! Attention, a block of queries at a time: the scores of a block are all that there is of them.
//!
//! ```text
//! y[query] = softmax over keys of (scale * q[query] . k[key] + mask[query][key]) * v
//! ```
//! (the ONNX operators MatMul, Mul or Div, Add, Softmax, MatMul; or Attention.)
//!
//! A query's result depends on the keys and the values alone: the order of sums is that of `window_product.rs` and `softmax.rs`.

use std::fmt;

use crate::error::KernelError;
use crate::layers::panels::Panels;
use crate::layers::softmax::Softmax;
use crate::layers::taps::{Pixels, Taps, parts};
use crate::layers::window::Window;
use crate::layers::window_product::{PixelProducts, WindowProduct};
use crate::packing::checks::check_len;
use crate::simd::isa::Isa;
use crate::simd::operations::{Simd, SimdOp};
use crate::simd::vector_unit::VectorUnit;

/// Queries of a block.
const BLOCK: usize = 32;

/// The sizes of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Queries of a head.
    pub queries: usize,
    /// Keys, and values.
    pub keys: usize,
    /// Elements of a query and of a key.
    pub of_key: usize,
    /// Elements of a value.
    pub of_value: usize,
}

/// A matrix in a tensor.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    /// The tensor from the matrix's first element on.
    pub data: &'a [f32],
    /// Elements of the tensor from one row of the matrix to the next one, and from one column to the next one.
    pub strides: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// Rows of `columns` elements, one behind the other.
    pub fn of_rows(data: &'a [f32], columns: usize) -> Self {
        Self { data, strides: [columns, 1] }
    }

    /// Checks that `tensor`, which is this matrix, has `rows` rows of `columns` elements that lie side by side.
    ///
    /// # Errors
    /// [`KernelError::Length`]
    fn check(&self, tensor: &'static str, [rows, columns]: [usize; 2]) -> Result<(), KernelError> {
        let [stride, step] = self.strides;
        let expected = if rows * columns == 0 { 0 } else { (rows - 1) * stride + columns };
        match self.data.len() >= expected && (step == 1 || columns <= 1) {
            true => Ok(()),
            false => Err(KernelError::Length { tensor, expected, actual: self.data.len() }),
        }
    }

    /// The columns as rows.
    fn turned(self) -> Self {
        let [row, column] = self.strides;
        Self { strides: [column, row], ..self }
    }

    /// Row number `at`, of `columns` elements that lie side by side.
    fn row(&self, at: usize, columns: usize) -> &'a [f32] {
        if columns == 0 { &[] } else { &self.data[at * self.strides[0]..][..columns] }
    }
}

/// The tensors of one head. Elements of a row lie side by side; in `k`, those of a row or of a column.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// `[queries, of_key]`.
    pub q: Matrix<'a>,
    /// The keys, turned: `[of_key, keys]`.
    pub k: Matrix<'a>,
    /// `[keys, of_value]`.
    pub v: Matrix<'a>,
    /// The numbers that are added to the scores of each query, `keys` for each, and the elements from one query's to the next one's:
    /// `keys`, or 0 if all have the same.
    pub mask: Option<(&'a [f32], usize)>,
}

/// The memory that attention of some sizes needs, for one head after the other.
pub struct Attention {
    unit: VectorUnit,
    sizes: AttentionSizes,
    scale: f32,
    k: WindowProduct,
    v: WindowProduct,
    scores: Vec<f32>,
}

impl Attention {
    /// Memory for heads of these sizes, whose scores are multiplied by `scale`.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks the instructions.
    pub fn new(isa: Isa, sizes: AttentionSizes, scale: f32) -> Result<Self, KernelError> {
        let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
        let AttentionSizes { keys, of_key, of_value, .. } = sizes;
        let product = |inputs: usize, outputs: usize| {
            let windows = [Window::POINT; 2];
            let taps = Taps { inputs, of_group: inputs, windows };
            let panels = Panels::new(unit.lanes(), [inputs, outputs], None);
            WindowProduct::with_panels(&taps, &parts(inputs), panels)
        };
        let (k, v) = (product(of_key, keys), product(keys, of_value));
        let scores = vec![0.0; BLOCK.min(sizes.queries) * keys];
        Ok(Self { unit, sizes, scale, k, v, scores })
    }

    /// Bytes of the memory of such sizes.
    pub fn bytes(sizes: AttentionSizes) -> usize {
        let AttentionSizes { queries, keys, of_key, of_value } = sizes;
        // The lanes of vectors fill up to 16.
        let wide = |n: usize| n.saturating_add(15);
        let of_keys = of_key.saturating_add(BLOCK.min(queries)).saturating_mul(wide(keys));
        let packed = of_keys.saturating_add(keys.saturating_mul(wide(of_value)));
        packed.saturating_mul(size_of::<f32>())
    }

    /// Computes y, `[queries, of_value]`, of one head.
    ///
    /// # Errors
    /// [`KernelError::Length`] where a matrix reaches beyond its data, its elements do not lie side by side as [`Head`] says, or another tensor has
    /// another length.
    pub fn run(&mut self, head: Head<'_>, y: &mut [f32]) -> Result<(), KernelError> {
        let AttentionSizes { queries, keys, of_key, of_value } = self.sizes;
        let Head { q, k, v, mask } = head;
        let has_keys_in_rows = k.strides[1] != 1;
        q.check("q", [queries, of_key])?;
        match has_keys_in_rows {
            true => k.turned().check("k", [keys, of_key])?,
            false => k.check("k", [of_key, keys])?,
        }
        v.check("v", [keys, of_value])?;
        check_len("y", y, queries * of_value)?;
        if let Some((mask, step)) = mask {
            check_len("mask", mask, if step == 0 { keys } else { queries * keys })?;
        }
        if y.is_empty() {
            return Ok(());
        }
        let panels = self.k.panels_mut();
        match has_keys_in_rows {
            true => (0..keys).for_each(|key| panels.set_column(key, k.turned().row(key, of_key))),
            false => panels.set((0..of_key).map(|at| k.row(at, keys))),
        }
        self.v.panels_mut().set((0..keys).map(|key| v.row(key, of_value)));
        for first in (0..queries).step_by(BLOCK) {
            let count = BLOCK.min(queries - first);
            let scores = &mut self.scores[..count * keys];
            let of_block = (first..first + count).map(|query| q.row(query, of_key));
            product(self.unit, &self.k, of_block, [count, keys], scores);
            let mask = mask.map(|(mask, step)| (&mask[first * step..], step));
            self.unit.vectorize(ScaleAndMask { scores, keys, scale: self.scale, mask });
            self.unit.vectorize(Softmax { length: keys, step: keys, rows: scores });
            let y = &mut y[first * of_value..][..count * of_value];
            let of_scores = (0..count).map(|query| &scores[query * keys..][..keys]);
            product(self.unit, &self.v, of_scores, [count, of_value], y);
        }
        Ok(())
    }
}

impl fmt::Debug for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attention").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

/// The product of `rows` rows x with a matrix, in y: `[rows, outputs]`.
fn product<'a>(
    unit: VectorUnit,
    weights: &WindowProduct,
    x: impl Iterator<Item = &'a [f32]>,
    [rows, outputs]: [usize; 2],
    y: &mut [f32],
) {
    let inputs = weights.inputs();
    let address = |row: &'a [f32]| {
        assert_eq!(row.len(), inputs, "rows of the matrix's inputs");
        row.as_ptr()
    };
    let of_rows: Vec<*const f32> = x.map(address).collect();
    assert!(of_rows.len() == rows && y.len() == rows * outputs, "as many rows");
    // `x` gave rows of `inputs` elements at these addresses, and `y` has as many rows.
    let y: Vec<*mut f32> = y.chunks_exact_mut(outputs.max(1)).map(<[f32]>::as_mut_ptr).collect();
    let at = Pixels { taps: &of_rows, skip: 0, count: rows, y: &y };
    unit.vectorize(PixelProducts { weights, panels: 0..weights.panel_count(), at });
}

/// `score * scale + mask`, rounded twice.
struct ScaleAndMask<'a> {
    scores: &'a mut [f32],
    keys: usize,
    scale: f32,
    mask: Option<(&'a [f32], usize)>,
}

impl SimdOp for ScaleAndMask<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { scores, keys, scale, mask } = self;
        for (query, row) in scores.chunks_exact_mut(keys.max(1)).enumerate() {
            match mask {
                None => row.iter_mut().for_each(|score| *score *= scale),
                Some((mask, step)) => {
                    let mask = &mask[query * step..][..keys];
                    for (score, mask) in row.iter_mut().zip(mask) {
                        *score = *score * scale + mask;
                    }
                }
            }
        }
    }
}
