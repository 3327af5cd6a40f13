//! The vector operations that kernels are written in.
//!
//! A kernel is one generic function over [`Simd`]. Each instruction set implements the trait on a
//! *token*: a zero-sized value that can be made only where the instructions exist
//! (`Avx512::new() -> Option<Self>`), so having one is the proof that using them is sound. A
//! kernel reaches its instructions through [`Simd::vectorize`], which compiles the whole kernel
//! with them enabled.
//!
//! Every operation is exactly one IEEE operation or one operation on bits, so all implementations
//! agree in every bit (which NaN comes out of a NaN is the exception).

/// Asks for the cache line at `from` in the second-level cache. Any address will do.
#[inline(always)]
pub(crate) fn prefetch(from: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing and faults nowhere; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// A computation written once for every vector type.
pub(crate) trait SimdOp {
    /// The computation. Implementations, and what they call in their inner loops, are
    /// `#[inline(always)]`: code left out of line is compiled without the instructions.
    fn run<S: Simd>(self, simd: S);
}

/// Element by element, vectors of `f32` are computed with.
pub(crate) trait Arithmetic: Copy {
    /// A vector of elements.
    type Vector: Copy;

    /// `value` in every element.
    fn splat(self, value: f32) -> Self::Vector;

    /// `a + b`
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a - b`
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a * b`
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a / b`
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// `c - a * b`, rounded once.
    fn negative_mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// `if a > b { a } else { b }`: a NaN in `b` stays, a NaN in `a` gives way to `b`.
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `if a < b { a } else { b }`: a NaN in `b` stays, a NaN in `a` gives way to `b`.
    fn min(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `|a|`
    fn abs(self, a: Self::Vector) -> Self::Vector;

    /// `magnitude`, whose sign bit is not set, with the sign of `sign`.
    fn with_sign(self, magnitude: Self::Vector, sign: Self::Vector) -> Self::Vector;

    /// `greater` in elements where `a > b`, `other` elsewhere, so where either is a NaN.
    fn select_greater(
        self,
        a: Self::Vector,
        b: Self::Vector,
        greater: Self::Vector,
        other: Self::Vector,
    ) -> Self::Vector;

    /// `value` in elements where `a > b`, 0 elsewhere, so where either is a NaN.
    fn keep_greater(self, a: Self::Vector, b: Self::Vector, value: Self::Vector) -> Self::Vector;

    /// 0 in elements where `a > b`, `value` elsewhere, so where either is a NaN.
    fn drop_greater(self, a: Self::Vector, b: Self::Vector, value: Self::Vector) -> Self::Vector;

    /// The float whose bits are those of `a` shifted left by 23: moves an integer in the low bits
    /// into the exponent field.
    fn low_bits_to_exponent(self, a: Self::Vector) -> Self::Vector;

    /// `a`, with 0 in place of subnormal numbers.
    #[inline(always)]
    fn flush_subnormal(self, a: Self::Vector) -> Self::Vector {
        let least_normal = self.splat(f32::MIN_POSITIVE);
        self.drop_greater(least_normal, self.abs(a), a)
    }
}

/// One instruction set's vectors of `f32`. The implementing value is the proof that the machine
/// has the instructions.
pub(crate) trait Simd: Arithmetic {
    /// Elements in a vector.
    const LANES: usize;

    /// Vector registers, which bound the tile that a kernel keeps in them.
    const REGISTERS: usize;

    /// Whether kernels unroll loops for it, and fetch weights before they are read.
    const IS_TUNED: bool;

    /// Runs `op` compiled for this instruction set.
    fn vectorize<O: SimdOp>(self, op: O);

    /// `vector`, computed before anything that follows in the program is loaded or settled. The
    /// vector types that kernels are tuned for say so to the compiler.
    #[inline(always)]
    fn settled(self, vector: Self::Vector) -> Self::Vector {
        vector
    }

    /// The elements at `from`.
    ///
    /// # Safety
    /// `LANES` elements at `from` are readable. No alignment is needed.
    unsafe fn load(self, from: *const f32) -> Self::Vector;

    /// The first `count` elements at `from`, zero in the other lanes, whose memory is not touched.
    ///
    /// # Safety
    /// `count <= LANES`, and `count` elements at `from` are readable.
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::Vector;

    /// The first `count` elements at `from`, `rest` in the other lanes, whose memory is not touched.
    ///
    /// # Safety
    /// `count <= LANES`, and `count` elements at `from` are readable.
    unsafe fn load_partial_or(self, from: *const f32, count: usize, rest: f32) -> Self::Vector;

    /// `LANES` lane groups of two bfloat16 numbers each, as f32: those in the low halves, then those in
    /// the high ones.
    ///
    /// # Safety
    /// `LANES` lane groups at `from` are readable.
    unsafe fn load_pairs(self, from: *const u32) -> [Self::Vector; 2];

    /// `LANES` lane groups of four signed bytes each, as f32, those in the lowest bytes first.
    ///
    /// # Safety
    /// `LANES` lane groups at `from` are readable.
    unsafe fn load_quads(self, from: *const u32) -> [Self::Vector; 4];

    /// Writes all lanes.
    ///
    /// # Safety
    /// `LANES` elements at `to` are writable. No alignment is needed.
    unsafe fn store(self, to: *mut f32, vector: Self::Vector);

    /// Writes the first `count` lanes and touches no other memory.
    ///
    /// # Safety
    /// `count <= LANES`, and `count` elements at `to` are writable.
    unsafe fn store_partial(self, to: *mut f32, vector: Self::Vector, count: usize);
}
