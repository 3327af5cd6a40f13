//! Vectors of `N` elements in portable code: the twin that every instruction set is tested
//! against, at any width, and the kernel of machines that have nothing better.

use super::operations::{Arithmetic, Simd, SimdOp};

/// Portable vectors of `N` elements. Every machine has them, so anyone may make the token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar<const N: usize>;

#[inline(always)]
fn map2<const N: usize>(a: [f32; N], b: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    let mut result = [0.0; N];
    for lane in 0..N {
        result[lane] = f(a[lane], b[lane]);
    }
    result
}

impl<const N: usize> Arithmetic for Scalar<N> {
    type Vector = [f32; N];

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; N] {
        [value; N]
    }

    #[inline(always)]
    fn add(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        map2(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        map2(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        map2(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        map2(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn mul_add(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        let mut result = c;
        for lane in 0..N {
            result[lane] = a[lane].mul_add(b[lane], c[lane]);
        }
        result
    }

    #[inline(always)]
    fn negative_mul_add(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        self.mul_add(a.map(|a| -a), b, c)
    }

    #[inline(always)]
    fn max(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        map2(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        map2(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn abs(self, a: [f32; N]) -> [f32; N] {
        a.map(f32::abs)
    }

    #[inline(always)]
    fn with_sign(self, magnitude: [f32; N], sign: [f32; N]) -> [f32; N] {
        map2(magnitude, sign, f32::copysign)
    }

    #[inline(always)]
    fn select_greater(
        self,
        a: [f32; N],
        b: [f32; N],
        greater: [f32; N],
        other: [f32; N],
    ) -> [f32; N] {
        let mut result = other;
        for lane in 0..N {
            if a[lane] > b[lane] {
                result[lane] = greater[lane];
            }
        }
        result
    }

    #[inline(always)]
    fn keep_greater(self, a: [f32; N], b: [f32; N], value: [f32; N]) -> [f32; N] {
        self.select_greater(a, b, value, [0.0; N])
    }

    #[inline(always)]
    fn drop_greater(self, a: [f32; N], b: [f32; N], value: [f32; N]) -> [f32; N] {
        self.select_greater(a, b, [0.0; N], value)
    }

    #[inline(always)]
    fn low_bits_to_exponent(self, a: [f32; N]) -> [f32; N] {
        a.map(|a| f32::from_bits(a.to_bits() << 23))
    }
}

impl<const N: usize> Simd for Scalar<N> {
    const LANES: usize = N;

    // The registers of a real instruction set of this width, so that its tile is tested too.
    const REGISTERS: usize = if N >= 16 { 32 } else { 16 };

    const IS_TUNED: bool = false;

    fn vectorize<O: SimdOp>(self, op: O) {
        op.run(self);
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> [f32; N] {
        // SAFETY: the caller promises `N` readable elements; arrays of f32 are aligned as f32.
        unsafe { from.cast::<[f32; N]>().read() }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> [f32; N] {
        // SAFETY: the caller promises `count` readable elements.
        unsafe { self.load_partial_or(from, count, 0.0) }
    }

    #[inline(always)]
    unsafe fn load_partial_or(self, from: *const f32, count: usize, rest: f32) -> [f32; N] {
        let mut vector = [rest; N];
        for (lane, to) in vector.iter_mut().enumerate().take(count) {
            // SAFETY: `lane < count`, and the caller promises `count` readable elements.
            *to = unsafe { from.add(lane).read() };
        }
        vector
    }

    #[inline(always)]
    unsafe fn load_pairs(self, from: *const u32) -> [[f32; N]; 2] {
        // SAFETY: the caller promises `N` readable lane groups, which are aligned as u32.
        let packed = unsafe { from.cast::<[u32; N]>().read() };
        [
            packed.map(|packed| f32::from_bits(packed << 16)),
            packed.map(|packed| f32::from_bits(packed & !0xffff)),
        ]
    }

    #[inline(always)]
    unsafe fn load_quads(self, from: *const u32) -> [[f32; N]; 4] {
        // SAFETY: the caller promises `N` readable lane groups, which are aligned as u32.
        let packed = unsafe { from.cast::<[u32; N]>().read() };
        [0, 1, 2, 3].map(|byte| packed.map(|packed| f32::from(packed.to_le_bytes()[byte] as i8)))
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, vector: [f32; N]) {
        // SAFETY: the caller promises `N` writable elements; arrays of f32 are aligned as f32.
        unsafe { to.cast::<[f32; N]>().write(vector) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, vector: [f32; N], count: usize) {
        for (lane, &value) in vector.iter().enumerate().take(count) {
            // SAFETY: `lane < count`, and the caller promises `count` writable elements.
            unsafe { to.add(lane).write(value) }
        }
    }
}
