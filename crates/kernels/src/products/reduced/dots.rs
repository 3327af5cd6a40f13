//! Sums by the instructions of AVX-512 that multiply a lane group at once, `vdpbf16ps` and `vpdpbusd`.

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
        $group_len:literal
    ) => {
        impl $name {
            /// Runs `turns` turns of twelve instructions that do not wait for each other, and returns how many
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
                        // SAFETY: 16 lane groups are readable.
                        let weights = unsafe { dot.weights(black_box(groups.as_ptr())) };
                        for sums in &mut sums {
                            // SAFETY: a lane group is readable.
                            *sums = unsafe { dot.dot(*sums, weights, groups.as_ptr()) };
                        }
                    }
                    black_box(sums);
                }
                // SAFETY: the token proves the features.
                unsafe { run(self, &groups, turns) };
                (turns * CHAINS * 16 * 2 * $group_len) as u64
            }

            /// [`sums`] compiled with the instruction.
            ///
            /// # Safety
            /// `groups * VECTORS * 16` lane groups are readable at `panel`, in whole runs of `RUN`; `operand` has
            /// `rows` rows of `groups` lane groups each in the format of the instruction. Nobody writes either
            /// meanwhile.
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

        impl Dot for $name {
            const LANES: usize = 16;
            const REGISTERS: usize = 32;
            const WEIGHT_REGISTERS: usize = 1;
            const INPUT_ELEMENTS: usize = 1;
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

dot! {
    Avx512Bf16, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), dot_bf16, _mm512_storeu_ps, 2
}

dot! {
    Avx512Vnni, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), dot_bytes,
    _mm512_storeu_si512, 4
}
