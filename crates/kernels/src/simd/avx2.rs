//! Vectors of 8 elements with AVX2 and FMA.

use std::arch::x86_64::{
    __m256, __m256i, _CMP_GT_OQ, _mm256_add_ps, _mm256_and_ps, _mm256_and_si256, _mm256_andnot_ps,
    _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvtepi32_ps,
    _mm256_div_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps,
    _mm256_or_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_srai_epi32,
    _mm256_storeu_ps, _mm256_sub_ps,
};

use super::operations::{Arithmetic, Simd, SimdOp};

/// The proof that this machine has AVX2 and FMA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The token, where the machine has the instructions.
    pub(crate) fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    /// All ones in the first `count` lanes, at most 8.
    #[inline(always)]
    fn mask(self, count: usize) -> __m256i {
        const ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        let window = &ONES_THEN_ZEROS[8 - count..][..8];
        // SAFETY: the token proves AVX; the window has 8 elements.
        unsafe { _mm256_loadu_si256(window.as_ptr().cast()) }
    }
}

/// No instruction, but an operation on `vector` that the compiler knows nothing of.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn settled(mut vector: __m256) -> __m256 {
    #[cfg(not(miri))]
    // SAFETY: there is nothing in it.
    unsafe {
        std::arch::asm!("/* {0} */", inout(ymm_reg) vector, options(nostack, preserves_flags));
    }
    vector
}

impl Arithmetic for Avx2 {
    type Vector = __m256;

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the token proves FMA.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn negative_mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the token proves FMA.
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX. `vmaxps` gives its second operand if either is a NaN.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves AVX. `vminps` gives its second operand if either is a NaN.
        unsafe { _mm256_min_ps(a, b) }
    }

    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }

    #[inline(always)]
    fn with_sign(self, magnitude: __m256, sign: __m256) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_or_ps(magnitude, _mm256_and_ps(_mm256_set1_ps(-0.0), sign)) }
    }

    #[inline(always)]
    fn select_greater(self, a: __m256, b: __m256, greater: __m256, other: __m256) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_blendv_ps(other, greater, _mm256_cmp_ps::<_CMP_GT_OQ>(a, b)) }
    }

    #[inline(always)]
    fn keep_greater(self, a: __m256, b: __m256, value: __m256) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b), value) }
    }

    #[inline(always)]
    fn drop_greater(self, a: __m256, b: __m256, value: __m256) -> __m256 {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b), value) }
    }

    #[inline(always)]
    fn low_bits_to_exponent(self, a: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(a))) }
    }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const REGISTERS: usize = 16;

    const IS_TUNED: bool = true;

    fn vectorize<O: SimdOp>(self, op: O) {
        #[target_feature(enable = "avx2,fma")]
        fn with_features<O: SimdOp>(simd: Avx2, op: O) {
            op.run(simd);
        }
        // SAFETY: the token proves AVX2 and FMA.
        unsafe { with_features(self, op) }
    }

    #[inline(always)]
    fn settled(self, vector: __m256) -> __m256 {
        // SAFETY: the token proves AVX2 and FMA.
        unsafe { settled(vector) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: the token proves AVX; the caller promises 8 readable elements.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> __m256 {
        // SAFETY: the token proves AVX; the caller promises `count` readable elements, and lanes
        // outside the mask are not accessed.
        unsafe { _mm256_maskload_ps(from, self.mask(count)) }
    }

    #[inline(always)]
    unsafe fn load_partial_or(self, from: *const f32, count: usize, rest: f32) -> __m256 {
        let mask = self.mask(count);
        // SAFETY: the token proves AVX; the caller promises `count` readable elements, and lanes
        // outside the mask are not accessed.
        unsafe {
            let elements = _mm256_maskload_ps(from, mask);
            _mm256_blendv_ps(self.splat(rest), elements, _mm256_castsi256_ps(mask))
        }
    }

    #[inline(always)]
    unsafe fn load_pairs(self, from: *const u32) -> [__m256; 2] {
        // SAFETY: the token proves AVX2; the caller promises 8 readable lane groups.
        unsafe {
            let packed = _mm256_loadu_si256(from.cast());
            let high = _mm256_and_si256(packed, _mm256_set1_epi32(0xffff_0000_u32 as i32));
            [_mm256_slli_epi32::<16>(packed), high].map(|bits| _mm256_castsi256_ps(bits))
        }
    }

    #[inline(always)]
    unsafe fn load_quads(self, from: *const u32) -> [__m256; 4] {
        // SAFETY: the token proves AVX2; the caller promises 8 readable lane groups.
        unsafe {
            let packed = _mm256_loadu_si256(from.cast());
            let bytes = [
                _mm256_slli_epi32::<24>(packed),
                _mm256_slli_epi32::<16>(packed),
                _mm256_slli_epi32::<8>(packed),
                packed,
            ];
            bytes.map(|high| _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(high)))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, vector: __m256) {
        // SAFETY: the token proves AVX; the caller promises 8 writable elements.
        unsafe { _mm256_storeu_ps(to, vector) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, vector: __m256, count: usize) {
        // SAFETY: the token proves AVX; the caller promises `count` writable elements, and lanes
        // outside the mask are not accessed.
        unsafe { _mm256_maskstore_ps(to, self.mask(count), vector) }
    }
}
