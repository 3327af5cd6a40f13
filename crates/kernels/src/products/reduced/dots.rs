//! The instructions of AVX-512 that multiply a word at once.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_dpbusd_epi32, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_storeu_ps,
    _mm512_storeu_si512,
};
use std::hint::black_box;
use std::mem::transmute;

use super::operand::Operand;
use super::vectors::{Dot, sums};
use crate::simd::tokens::{Avx512Bf16, Avx512Vnni};

/// Defines the sums that an instruction makes, for its token.
macro_rules! dot {
    (
        $name:ident, $features:literal, $sums:ty, $zero:expr, $dot:expr, $store:expr,
        $in_word:literal
    ) => {
        impl $name {
            /// Runs `turns` turns of twelve instructions that do not wait for each other; how many
            /// multiplications and additions that was.
            pub(super) fn peak(self, turns: usize) -> u64 {
                const CHAINS: usize = 12;
                let words = black_box([0_u32; 16]);
                /// # Safety
                /// The machine has the instruction; there are 16 words.
                #[target_feature(enable = $features)]
                unsafe fn run(dot: $name, words: &[u32; 16], turns: usize) {
                    let mut sums = [dot.zero(); CHAINS];
                    for _ in 0..turns {
                        // SAFETY: the caller's promise.
                        let weights = unsafe { dot.weights(black_box(words.as_ptr())) };
                        for sums in &mut sums {
                            // SAFETY: the caller's promise.
                            *sums = unsafe { dot.dot(*sums, weights, words.as_ptr()) };
                        }
                    }
                    black_box(sums);
                }
                // SAFETY: the token proves the features.
                unsafe { run(self, &words, turns) };
                (turns * CHAINS * 16 * 2 * $in_word) as u64
            }

            /// See [`sums`].
            ///
            /// # Safety
            /// As there.
            pub(super) unsafe fn sums<const VECTORS: usize, const RUN: usize>(
                self,
                panel: *const u32,
                words: usize,
                operand: &Operand,
                rows: usize,
                combine: impl FnMut(usize, usize, *const u32),
            ) {
                /// # Safety
                /// As for [`sums`].
                #[target_feature(enable = $features)]
                unsafe fn with_features<const VECTORS: usize, const RUN: usize>(
                    dot: $name,
                    panel: *const u32,
                    words: usize,
                    operand: &Operand,
                    rows: usize,
                    combine: impl FnMut(usize, usize, *const u32),
                ) {
                    // SAFETY: the caller's promises.
                    unsafe {
                        sums::<$name, VECTORS, RUN>(dot, panel, words, operand, rows, combine)
                    }
                }
                // SAFETY: the token proves the features; the caller's promises.
                unsafe { with_features::<VECTORS, RUN>(self, panel, words, operand, rows, combine) }
            }
        }

        impl Dot for $name {
            const LANES: usize = 16;
            const REGISTERS: usize = 32;
            const WEIGHT_REGISTERS: usize = 1;
            const INPUT_WORDS: usize = 1;
            const WORDS_MAX: usize = usize::MAX;

            type Sums = $sums;
            type Weights = __m512i;

            #[inline(always)]
            fn zero(self) -> $sums {
                // SAFETY: the token proves AVX-512F.
                unsafe { $zero }
            }

            #[inline(always)]
            unsafe fn weights(self, from: *const u32) -> __m512i {
                // SAFETY: the token proves AVX-512F; the caller's promise.
                unsafe { _mm512_loadu_si512(from.cast()) }
            }

            #[inline(always)]
            unsafe fn dot(self, sums: $sums, weights: __m512i, input: *const u32) -> $sums {
                // SAFETY: the token proves the features; the caller's promise.
                unsafe { $dot(sums, weights, _mm512_set1_epi32(*input as i32)) }
            }

            #[inline(always)]
            unsafe fn store(self, sums: $sums, to: *mut u32, _: bool) {
                // SAFETY: the token proves AVX-512F; the caller's promise.
                unsafe { $store(to.cast(), sums) }
            }
        }
    };
}

/// # Safety
/// The machine has the instruction.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn dot_bf16(sums: __m512, weights: __m512i, input: __m512i) -> __m512 {
    // SAFETY: both are 64 bytes.
    let [weights, input] = unsafe { transmute::<[__m512i; 2], [__m512bh; 2]>([weights, input]) };
    _mm512_dpbf16_ps(sums, weights, input)
}

/// # Safety
/// The machine has the instruction.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dot_bytes(sums: __m512i, weights: __m512i, input: __m512i) -> __m512i {
    _mm512_dpbusd_epi32(sums, input, weights)
}

dot! {
    Avx512Bf16, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), dot_bf16, _mm512_storeu_ps, 2
}

dot! {
    Avx512Vnni, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), dot_bytes,
    _mm512_storeu_si512, 4
}
