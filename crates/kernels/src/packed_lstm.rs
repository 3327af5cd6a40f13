//! An LSTM cell's weights, packed for one instruction set, and the step over them.
//!
//! This is the public face: it checks lengths and availability once, when packing. The arithmetic
//! and the layout are in `lstm_step.rs`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use crate::isa::VectorUnit;
use crate::lstm_step::{GATES, LstmRow, LstmStep, panel_len};
use crate::{Isa, KernelError};

/// The weights of an LSTM cell as the ONNX LSTM operator has them, one direction. The rows of
/// `w`, `r` and both halves of `b` are in gate order i, o, f, c.
#[derive(Debug, Clone, Copy)]
pub struct LstmParameters<'a> {
    /// Elements of a row of x; may be 0.
    pub input_size: usize,
    /// Elements of a row of h and c; at least 1.
    pub hidden_size: usize,
    /// Weights of x, `[4 * hidden, input]`.
    pub w: &'a [f32],
    /// Weights of h, `[4 * hidden, hidden]`.
    pub r: &'a [f32],
    /// Biases of x, then of h, `[8 * hidden]`; summed when packed. `None` is zero.
    pub b: Option<&'a [f32]>,
}

/// An LSTM cell with its weights packed into panels of hidden units.
pub struct PackedLstm {
    unit: VectorUnit,
    input_size: usize,
    hidden_size: usize,
    /// `[panel][bias, then k][gate][lane]`, see `lstm_step.rs`.
    lines: Box<[Line]>,
}

/// The unit of allocation, so that no vector of weights straddles two cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE_LEN]);

const LINE_LEN: usize = 16;

impl PackedLstm {
    /// Packs a copy of the weights for `isa`.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks `isa`; an error that names the
    /// argument where sizes and lengths do not agree.
    pub fn new(isa: Isa, parameters: LstmParameters<'_>) -> Result<Self, KernelError> {
        let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
        Self::for_unit(unit, parameters)
    }

    fn for_unit(unit: VectorUnit, parameters: LstmParameters<'_>) -> Result<Self, KernelError> {
        let LstmParameters { input_size, hidden_size, w, r, b } = parameters;
        if hidden_size == 0 {
            return Err(KernelError::NoHiddenUnits);
        }
        let too_large = KernelError::TooLarge { input_size, hidden_size, batch: 1 };
        // What is packed is larger than each of `w`, `r` and `b`, so if its size does not
        // overflow, nothing below does.
        let packed_bytes = hidden_size
            .checked_next_multiple_of(unit.lanes())
            .and_then(|units| units.checked_mul(GATES * size_of::<f32>()))
            .and_then(|bytes| {
                let rows = input_size.checked_add(hidden_size)?.checked_add(1)?;
                bytes.checked_mul(rows)
            })
            .filter(|&bytes| bytes <= isize::MAX as usize - size_of::<Line>())
            .ok_or(too_large)?;
        check_len("w", w, GATES * hidden_size * input_size)?;
        check_len("r", r, GATES * hidden_size * hidden_size)?;
        if let Some(b) = b {
            check_len("b", b, 2 * GATES * hidden_size)?;
        }

        let line_count = packed_bytes.div_ceil(size_of::<Line>());
        let mut packed = Self {
            unit,
            input_size,
            hidden_size,
            lines: vec![Line([0.0; LINE_LEN]); line_count].into_boxed_slice(),
        };
        packed.fill(parameters);
        Ok(packed)
    }

    /// Copies the weights into the panels, which are zero.
    fn fill(&mut self, parameters: LstmParameters<'_>) {
        let LstmParameters { input_size, hidden_size, w, r, b } = parameters;
        let lanes = self.unit.lanes();
        let row_len = GATES * lanes;
        let panel_len = panel_len(lanes, input_size, hidden_size);
        let mut put =
            |index: usize, value| self.lines[index / LINE_LEN].0[index % LINE_LEN] = value;
        for unit in 0..hidden_size {
            for gate in 0..GATES {
                let from = gate * hidden_size + unit;
                let to = unit / lanes * panel_len + gate * lanes + unit % lanes;
                if let Some(b) = b {
                    put(to, b[from] + b[GATES * hidden_size + from]);
                }
                let x_weights = &w[from * input_size..][..input_size];
                let h_weights = &r[from * hidden_size..][..hidden_size];
                for (k, &weight) in x_weights.iter().chain(h_weights).enumerate() {
                    put(to + (1 + k) * row_len, weight);
                }
            }
        }
    }

    /// Elements of a row of x.
    pub fn input_size(&self) -> usize {
        self.input_size
    }

    /// Elements of a row of h and c.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// The instruction set that the weights are packed for.
    pub fn isa(&self) -> Isa {
        self.unit.isa()
    }

    /// Bytes of the packed weights, padding included.
    pub fn bytes(&self) -> usize {
        size_of_val::<[Line]>(&self.lines)
    }

    /// Number of panels. Panels are independent: threads may divide one step by panels, by rows or
    /// by both, with the same bits.
    pub fn panels(&self) -> usize {
        self.hidden_size.div_ceil(self.unit.lanes())
    }

    /// One step for `rows`, computing only the hidden units of `panels`:
    /// `c' = f c + i g`, `h' = o tanh(c')`.
    ///
    /// # Panics
    /// Where `panels` are not within `0..self.panels()`.
    ///
    /// # Safety
    /// For each row, until the call returns:
    /// - `x` has `input_size` and `h_in` has `hidden_size` readable elements, which nobody writes
    ///   (rows may share them);
    /// - `h_out`, `c` and, unless it is null, `y` have `hidden_size` writable elements, `c`
    ///   initialised. The units of `panels` in them are accessed by nobody else: no other row of
    ///   this step, no other thread, and no two of the row's own pointers overlap there.
    ///
    /// Units of other panels are not touched, so threads may run other panels of the same rows at
    /// the same time. No `h_out` or `y` may overlap an `h_in` or `x`, in all their elements: each
    /// panel reads all of `h_in`.
    pub unsafe fn step(&self, rows: &[LstmRow], panels: Range<usize>) {
        assert!(
            panels.start <= panels.end && panels.end <= self.panels(),
            "panels {panels:?} of {}",
            self.panels()
        );
        // SAFETY: the panels were packed for `self.unit`, with which the step runs; `panels` was
        // checked; the caller promises the rest.
        let step =
            unsafe { LstmStep::new(self.data(), self.input_size, self.hidden_size, rows, panels) };
        self.unit.vectorize(step);
    }

    /// One step over dense slices, in this thread: for tests and benchmarks.
    ///
    /// `x` is `[batch, input]`; `h` before and `h_out` after the step and `c`, updated in place,
    /// are `[batch, hidden]`.
    ///
    /// # Errors
    /// [`KernelError::Length`] for a slice of another length.
    pub fn step_dense(
        &self,
        batch: usize,
        x: &[f32],
        h: &[f32],
        h_out: &mut [f32],
        c: &mut [f32],
    ) -> Result<(), KernelError> {
        let len = |size: usize| {
            size.checked_mul(batch).ok_or(KernelError::TooLarge {
                input_size: self.input_size,
                hidden_size: self.hidden_size,
                batch,
            })
        };
        let (x_len, h_len) = (len(self.input_size)?, len(self.hidden_size)?);
        check_len("x", x, x_len)?;
        check_len("h", h, h_len)?;
        check_len("h_out", h_out, h_len)?;
        check_len("c", c, h_len)?;

        let (x, h) = (x.as_ptr(), h.as_ptr());
        let (h_out, c) = (h_out.as_mut_ptr(), c.as_mut_ptr());
        let rows: Vec<LstmRow> = (0..batch)
            .map(|row| {
                let (at_x, at_h) = (row * self.input_size, row * self.hidden_size);
                // SAFETY: `row < batch`, and the slices have `batch` rows.
                unsafe {
                    LstmRow {
                        x: x.add(at_x),
                        h_in: h.add(at_h),
                        h_out: h_out.add(at_h),
                        c: c.add(at_h),
                        y: std::ptr::null_mut(),
                    }
                }
            })
            .collect();
        // SAFETY: the slices have `batch` rows of the sizes that a step reads and writes; the
        // borrows keep others away, and rows of one slice do not overlap.
        unsafe { self.step(&rows, 0..self.panels()) };
        Ok(())
    }

    /// The lines as elements.
    fn data(&self) -> &[f32] {
        let len = self.lines.len() * LINE_LEN;
        // SAFETY: a line is `LINE_LEN` floats and nothing else: its size, 64 bytes, is a multiple
        // of its alignment, so lines in a slice leave no gaps.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), len) }
    }
}

impl fmt::Debug for PackedLstm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedLstm")
            .field("isa", &self.isa())
            .field("input_size", &self.input_size)
            .field("hidden_size", &self.hidden_size)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

fn check_len(tensor: &'static str, slice: &[f32], expected: usize) -> Result<(), KernelError> {
    if slice.len() == expected {
        Ok(())
    } else {
        Err(KernelError::Length { tensor, expected, actual: slice.len() })
    }
}
