//! Some vectors computed side by side: each operation on all of them before the next.

use super::operations::{Arithmetic, Simd};

/// `N` vectors of an instruction set. A chain of operations waits for each of its results; where
/// as many chains as there are vectors take turns, the waiting is shared, and so are constants.
#[derive(Clone, Copy)]
pub(crate) struct SideBySide<S, const N: usize>(pub(crate) S);

impl<S: Simd, const N: usize> SideBySide<S, N> {
    #[inline(always)]
    fn map2(
        self,
        a: [S::Vector; N],
        b: [S::Vector; N],
        f: impl Fn(S, S::Vector, S::Vector) -> S::Vector,
    ) -> [S::Vector; N] {
        let mut result = a;
        for at in 0..N {
            result[at] = self.0.settled(f(self.0, a[at], b[at]));
        }
        result
    }

    #[inline(always)]
    fn map3(
        self,
        a: [S::Vector; N],
        b: [S::Vector; N],
        c: [S::Vector; N],
        f: impl Fn(S, S::Vector, S::Vector, S::Vector) -> S::Vector,
    ) -> [S::Vector; N] {
        let mut result = a;
        for at in 0..N {
            result[at] = self.0.settled(f(self.0, a[at], b[at], c[at]));
        }
        result
    }
}

impl<S: Simd, const N: usize> Arithmetic for SideBySide<S, N> {
    type Vector = [S::Vector; N];

    #[inline(always)]
    fn splat(self, value: f32) -> [S::Vector; N] {
        [self.0.splat(value); N]
    }

    #[inline(always)]
    fn add(self, a: [S::Vector; N], b: [S::Vector; N]) -> [S::Vector; N] {
        self.map2(a, b, S::add)
    }

    #[inline(always)]
    fn sub(self, a: [S::Vector; N], b: [S::Vector; N]) -> [S::Vector; N] {
        self.map2(a, b, S::sub)
    }

    #[inline(always)]
    fn mul(self, a: [S::Vector; N], b: [S::Vector; N]) -> [S::Vector; N] {
        self.map2(a, b, S::mul)
    }

    #[inline(always)]
    fn div(self, a: [S::Vector; N], b: [S::Vector; N]) -> [S::Vector; N] {
        self.map2(a, b, S::div)
    }

    #[inline(always)]
    fn max(self, a: [S::Vector; N], b: [S::Vector; N]) -> [S::Vector; N] {
        self.map2(a, b, S::max)
    }

    #[inline(always)]
    fn min(self, a: [S::Vector; N], b: [S::Vector; N]) -> [S::Vector; N] {
        self.map2(a, b, S::min)
    }

    #[inline(always)]
    fn mul_add(self, a: [S::Vector; N], b: [S::Vector; N], c: [S::Vector; N]) -> [S::Vector; N] {
        self.map3(a, b, c, S::mul_add)
    }

    #[inline(always)]
    fn negative_mul_add(
        self,
        a: [S::Vector; N],
        b: [S::Vector; N],
        c: [S::Vector; N],
    ) -> [S::Vector; N] {
        self.map3(a, b, c, S::negative_mul_add)
    }

    #[inline(always)]
    fn abs(self, a: [S::Vector; N]) -> [S::Vector; N] {
        self.map2(a, a, |simd, a, _| simd.abs(a))
    }

    #[inline(always)]
    fn keep_greater(
        self,
        a: [S::Vector; N],
        b: [S::Vector; N],
        value: [S::Vector; N],
    ) -> [S::Vector; N] {
        self.map3(a, b, value, S::keep_greater)
    }

    #[inline(always)]
    fn drop_greater(
        self,
        a: [S::Vector; N],
        b: [S::Vector; N],
        value: [S::Vector; N],
    ) -> [S::Vector; N] {
        self.map3(a, b, value, S::drop_greater)
    }

    #[inline(always)]
    fn low_bits_to_exponent(self, a: [S::Vector; N]) -> [S::Vector; N] {
        self.map2(a, a, |simd, a, _| simd.low_bits_to_exponent(a))
    }

    #[inline(always)]
    fn with_sign(self, magnitude: [S::Vector; N], sign: [S::Vector; N]) -> [S::Vector; N] {
        self.map2(magnitude, sign, S::with_sign)
    }

    #[inline(always)]
    fn select_greater(
        self,
        a: [S::Vector; N],
        b: [S::Vector; N],
        greater: [S::Vector; N],
        other: [S::Vector; N],
    ) -> [S::Vector; N] {
        let mut result = other;
        for at in 0..N {
            result[at] = self.0.select_greater(a[at], b[at], greater[at], other[at]);
        }
        result
    }
}
