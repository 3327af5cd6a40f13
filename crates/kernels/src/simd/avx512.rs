//! Vectors of 16 elements with AVX-512F, and no other part of AVX-512.

use std::arch::x86_64::{
    __m512, __mmask16, _CMP_GT_OQ, _mm512_add_ps, _mm512_and_si512, _mm512_andnot_si512,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_ps,
    _mm512_div_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_mask_blend_ps, _mm512_mask_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_maskz_mov_ps, _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_or_si512,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32, _mm512_srai_epi32, _mm512_storeu_ps,
    _mm512_sub_ps,
};

use super::operations::{Arithmetic, Simd, SimdOp};

/// The proof that this machine has AVX-512F.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The token, where the machine has the instructions.
    pub(crate) fn new() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }

    /// Ones for the first `count` lanes, at most 16.
    #[inline(always)]
    fn mask(self, count: usize) -> __mmask16 {
        debug_assert!(count <= 16);
        ((1_u32 << count) - 1) as __mmask16
    }
}

/// No instruction, but an operation on `vector` that the compiler knows nothing of.
#[inline]
#[target_feature(enable = "avx512f")]
fn settled(mut vector: __m512) -> __m512 {
    #[cfg(not(miri))]
    // SAFETY: there is nothing in it.
    unsafe {
        std::arch::asm!("/* {0} */", inout(zmm_reg) vector, options(nostack, preserves_flags));
    }
    vector
}

impl Arithmetic for Avx512 {
    type Vector = __m512;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn negative_mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F. `vmaxps` gives its second operand if either is a NaN.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F. `vminps` gives its second operand if either is a NaN.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe {
            let sign_bit = _mm512_set1_epi32(i32::MIN);
            _mm512_castsi512_ps(_mm512_andnot_si512(sign_bit, _mm512_castps_si512(a)))
        }
    }

    #[inline(always)]
    fn with_sign(self, magnitude: __m512, sign: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe {
            let sign_bit = _mm512_set1_epi32(i32::MIN);
            _mm512_castsi512_ps(_mm512_or_si512(
                _mm512_castps_si512(magnitude),
                _mm512_and_si512(sign_bit, _mm512_castps_si512(sign)),
            ))
        }
    }

    #[inline(always)]
    fn select_greater(self, a: __m512, b: __m512, greater: __m512, other: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), other, greater) }
    }

    #[inline(always)]
    fn keep_greater(self, a: __m512, b: __m512, value: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), value) }
    }

    #[inline(always)]
    fn drop_greater(self, a: __m512, b: __m512, value: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_maskz_mov_ps(!_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), value) }
    }

    #[inline(always)]
    fn low_bits_to_exponent(self, a: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(a))) }
    }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    const REGISTERS: usize = 32;

    const IS_TUNED: bool = true;

    fn vectorize<O: SimdOp>(self, op: O) {
        #[target_feature(enable = "avx512f")]
        fn with_features<O: SimdOp>(simd: Avx512, op: O) {
            op.run(simd);
        }
        // SAFETY: the token proves AVX-512F.
        unsafe { with_features(self, op) }
    }

    #[inline(always)]
    fn settled(self, vector: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512F.
        unsafe { settled(vector) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the token proves AVX-512F; the caller promises 16 readable elements.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> __m512 {
        // SAFETY: the token proves AVX-512F; the caller promises `count` readable elements, and
        // lanes outside the mask are not accessed.
        unsafe { _mm512_maskz_loadu_ps(self.mask(count), from) }
    }

    #[inline(always)]
    unsafe fn load_partial_or(self, from: *const f32, count: usize, rest: f32) -> __m512 {
        // SAFETY: the token proves AVX-512F; the caller promises `count` readable elements, and
        // lanes outside the mask are not accessed.
        unsafe { _mm512_mask_loadu_ps(self.splat(rest), self.mask(count), from) }
    }

    #[inline(always)]
    unsafe fn load_pairs(self, from: *const u32) -> [__m512; 2] {
        // SAFETY: the token proves AVX-512F; the caller promises 16 readable lane groups.
        unsafe {
            let packed = _mm512_loadu_si512(from.cast());
            let high = _mm512_and_si512(packed, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            [_mm512_slli_epi32::<16>(packed), high].map(|bits| _mm512_castsi512_ps(bits))
        }
    }

    #[inline(always)]
    unsafe fn load_quads(self, from: *const u32) -> [__m512; 4] {
        // SAFETY: the token proves AVX-512F; the caller promises 16 readable lane groups.
        unsafe {
            let packed = _mm512_loadu_si512(from.cast());
            let bytes = [
                _mm512_slli_epi32::<24>(packed),
                _mm512_slli_epi32::<16>(packed),
                _mm512_slli_epi32::<8>(packed),
                packed,
            ];
            bytes.map(|high| _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(high)))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, vector: __m512) {
        // SAFETY: the token proves AVX-512F; the caller promises 16 writable elements.
        unsafe { _mm512_storeu_ps(to, vector) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, vector: __m512, count: usize) {
        // SAFETY: the token proves AVX-512F; the caller promises `count` writable elements, and
        // lanes outside the mask are not accessed.
        unsafe { _mm512_mask_storeu_ps(to, self.mask(count), vector) }
    }
}
