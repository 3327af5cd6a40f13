//! Sums by the instructions that multiply a lane group at once, `vdpbf16ps` and `vpdpbusd` of AVX-512, or add up pairs of it,
//! `vpmaddubsw` and `vpmaddwd` of AVX2.

use std::arch::x86_64::{
    __m256i, __m512, __m512bh, __m512i, _mm256_abs_epi8, _mm256_add_epi32, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_setzero_si256, _mm256_sign_epi8, _mm256_slli_epi16, _mm256_srai_epi16,
    _mm256_storeu_si256, _mm512_dpbf16_ps, _mm512_dpbusd_epi32, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_storeu_ps,
    _mm512_storeu_si512,
};
use std::hint::black_box;
use std::mem::transmute;

use super::operand::Operand;
use super::vectors::{Dot, VECTORS_MAX, sums};
use crate::simd::avx2::Avx2;
use crate::simd::tokens::{Avx2Words, Avx512Bf16, Avx512Vnni};

/// Defines the sums that an instruction makes, compiled with it, for its token.
macro_rules! sums {
    ($name:ident, $features:literal, $group_len:literal) => {
        impl $name {
            /// Runs `turns` turns of instructions on twelve vectors, which do not wait for each other, and returns how many
            /// multiplications and additions that was.
            pub(super) fn peak(self, turns: usize) -> u64 {
                const CHAINS: usize = 12;
                let groups = black_box([0_u32; 16]);
                /// # Safety
                /// The machine has the instruction, which `dot` proves.
                #[target_feature(enable = $features)]
                unsafe fn run(dot: $name, groups: &[u32; 16], turns: usize) {
                    let mut sums = [dot.zero(); CHAINS];
                    for _ in 0..turns {
                        // SAFETY: a vector has at most 16 lane groups.
                        let weights = unsafe { dot.weights(black_box(groups.as_ptr())) };
                        for (chain, sums) in sums.iter_mut().enumerate() {
                            // Inputs of their own, else chains would share their products.
                            // SAFETY: the last chain reads two elements from the twelfth on at most, of 16.
                            *sums = unsafe { dot.dot(*sums, weights, groups.as_ptr().add(chain)) };
                        }
                    }
                    black_box(sums);
                }
                // SAFETY: the token proves the features.
                unsafe { run(self, &groups, turns) };
                (turns * CHAINS * <Self as Dot>::LANES * 2 * $group_len) as u64
            }

            /// [`sums`] compiled with the instruction.
            ///
            /// # Safety
            /// `groups * VECTORS * LANES` lane groups are readable at `panel`, in whole runs of `RUN`; `operand` has
            /// `rows` rows of `groups` lane groups each in the form of the instruction. Nobody writes either meanwhile.
            pub(super) unsafe fn sums<const VECTORS: usize, const RUN: usize>(
                self,
                panel: *const u32,
                groups: usize,
                operand: &Operand,
                rows: usize,
                combine: impl FnMut(usize, usize, *const u32),
            ) {
                /// # Safety
                /// The machine has the instruction, which `dot` proves. Panel and operand are as for
                /// `$name::sums`.
                #[target_feature(enable = $features)]
                unsafe fn with_features<const VECTORS: usize, const RUN: usize>(
                    dot: $name,
                    panel: *const u32,
                    groups: usize,
                    operand: &Operand,
                    rows: usize,
                    combine: impl FnMut(usize, usize, *const u32),
                ) {
                    // SAFETY: panel and operand are as `sums` asks for.
                    unsafe {
                        sums::<$name, VECTORS, RUN>(dot, panel, groups, operand, rows, combine)
                    }
                }
                // SAFETY: the token proves the features; panel and operand are as `sums` asks for.
                unsafe {
                    with_features::<VECTORS, RUN>(self, panel, groups, operand, rows, combine)
                }
            }
        }
    };
}

sums!(Avx2, "avx2", 4);
sums!(Avx2Words, "avx2", 4);
sums!(Avx512Bf16, "avx512f,avx512bf16", 2);
sums!(Avx512Vnni, "avx512f,avx512vnni", 4);

/// Defines how an instruction of AVX-512 multiplies a lane group.
macro_rules! dot {
    ($name:ident, $sums:ty, $zero:expr, $dot:expr, $store:expr) => {
        impl Dot for $name {
            const LANES: usize = 16;
            const REGISTERS: usize = 32;
            const WEIGHT_REGISTERS: usize = 1;
            const INPUT_ELEMENTS: usize = 1;
            const FETCHES: usize = 1;
            const GROUPS_MAX: usize = usize::MAX;

            type Sums = $sums;
            type Weights = __m512i;

            #[inline(always)]
            fn zero(self) -> $sums {
                // SAFETY: the token proves AVX-512F.
                unsafe { $zero }
            }

            #[inline(always)]
            unsafe fn weights(self, from: *const u32) -> __m512i {
                // SAFETY: the token proves AVX-512F; 16 lane groups are readable.
                unsafe { _mm512_loadu_si512(from.cast()) }
            }

            #[inline(always)]
            unsafe fn dot(self, sums: $sums, weights: __m512i, input: *const u32) -> $sums {
                // SAFETY: the token proves the features; a lane group of the input is readable.
                unsafe { $dot(sums, weights, _mm512_set1_epi32(*input as i32)) }
            }

            #[inline(always)]
            unsafe fn store(self, sums: $sums, to: *mut u32, _: bool) {
                // SAFETY: the token proves AVX-512F; 16 sums are writable.
                unsafe { $store(to.cast(), sums) }
            }
        }
    };
}

/// The sums with the products of pairs of bfloat16.
///
/// # Safety
/// The machine has AVX-512F and AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn dot_bf16(sums: __m512, weights: __m512i, input: __m512i) -> __m512 {
    // SAFETY: both are 64 bytes.
    let [weights, input] = unsafe { transmute::<[__m512i; 2], [__m512bh; 2]>([weights, input]) };
    _mm512_dpbf16_ps(sums, weights, input)
}

/// The sums with the products of quads of bytes.
///
/// # Safety
/// The machine has AVX-512F and AVX512-VNNI.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dot_bytes(sums: __m512i, weights: __m512i, input: __m512i) -> __m512i {
    _mm512_dpbusd_epi32(sums, input, weights)
}

dot!(Avx512Bf16, __m512, _mm512_setzero_ps(), dot_bf16, _mm512_storeu_ps);
dot!(Avx512Vnni, __m512i, _mm512_setzero_si512(), dot_bytes, _mm512_storeu_si512);

/// Signed bytes of inputs: their magnitudes, times weights with their signs. The sum of two such products is at most
/// 2 * 128 * 127, which fits 16 bits; a weight of -128 would have no negative.
impl Dot for Avx2 {
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    /// Beside the weights the magnitudes, the signs and what is made of them: with less, tiles of three rows would not stay in registers.
    const WEIGHT_REGISTERS: usize = 4;
    const INPUT_ELEMENTS: usize = 1;
    const FETCHES: usize = VECTORS_MAX;
    const GROUPS_MAX: usize = usize::MAX;

    type Sums = __m256i;
    type Weights = __m256i;

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn weights(self, from: *const u32) -> __m256i {
        // SAFETY: the token proves AVX; 8 lane groups are readable.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn dot(self, sums: __m256i, weights: __m256i, input: *const u32) -> __m256i {
        // SAFETY: the token proves AVX2; a lane group of the input is readable.
        unsafe {
            let input = _mm256_set1_epi32(*input as i32);
            let signed = _mm256_sign_epi8(weights, input);
            let of_pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(input), signed);
            _mm256_add_epi32(sums, _mm256_madd_epi16(of_pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn store(self, sums: __m256i, to: *mut u32, _: bool) {
        // SAFETY: the token proves AVX; 8 sums are writable.
        unsafe { _mm256_storeu_si256(to.cast(), sums) }
    }
}

/// Bytes as signed numbers of 16 bits, two of a lane group at once.
impl Dot for Avx2Words {
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    const WEIGHT_REGISTERS: usize = 2;
    const INPUT_ELEMENTS: usize = 2;
    const FETCHES: usize = VECTORS_MAX;
    const GROUPS_MAX: usize = usize::MAX;

    type Sums = __m256i;
    /// The first and the third of each lane group; the second and the fourth.
    type Weights = [__m256i; 2];

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: the token proves AVX.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn weights(self, from: *const u32) -> [__m256i; 2] {
        // SAFETY: the token proves AVX2; 8 lane groups are readable.
        unsafe {
            let bytes = _mm256_loadu_si256(from.cast());
            [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)), _mm256_srai_epi16::<8>(bytes)]
        }
    }

    #[inline(always)]
    unsafe fn dot(self, sums: __m256i, [even, odd]: [__m256i; 2], input: *const u32) -> __m256i {
        // SAFETY: the token proves AVX2; two elements of the input are readable.
        unsafe {
            let of_even = _mm256_madd_epi16(even, _mm256_set1_epi32(*input as i32));
            let of_odd = _mm256_madd_epi16(odd, _mm256_set1_epi32(*input.add(1) as i32));
            _mm256_add_epi32(_mm256_add_epi32(sums, of_even), of_odd)
        }
    }

    #[inline(always)]
    unsafe fn store(self, sums: __m256i, to: *mut u32, _: bool) {
        // SAFETY: the token proves AVX; 8 sums are writable.
        unsafe { _mm256_storeu_si256(to.cast(), sums) }
    }
}
