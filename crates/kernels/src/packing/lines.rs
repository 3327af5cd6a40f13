//! Memory in whole cache lines.

/// Elements in whole cache lines, so that no vector that begins with one straddles two.
pub struct Lines(Box<[Line]>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE_LEN]);

/// Elements of a cache line.
pub(crate) const LINE_LEN: usize = 16;

impl Lines {
    /// At least `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self(vec![Line([0.0; LINE_LEN]); len.div_ceil(LINE_LEN)].into_boxed_slice())
    }

    /// Elements from one row to the next in which rows of `len` elements begin with a line.
    pub fn row_stride(len: usize) -> usize {
        len.next_multiple_of(LINE_LEN)
    }

    /// All of them.
    #[inline(always)]
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: a line is `LINE_LEN` floats and nothing else: its size, 64 bytes, is a multiple
        // of its alignment, so lines in a slice leave no gaps.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * LINE_LEN) }
    }

    /// All of them.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: a line is `LINE_LEN` floats and nothing else, so lines in a slice leave no gaps; the borrow is
        // exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * LINE_LEN)
        }
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
