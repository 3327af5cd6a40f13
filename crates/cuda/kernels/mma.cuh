// Products of matrices in bfloat16 that the threads of a warp compute together: those of tensor cores.
//
// Numbers are rounded to bfloat16 before; products are exact, and sums are f32. A sum takes its terms 16 at a time, in the order that the hardware has for
// 16: it is the same for each sum of a product, so that bits do not follow from where in a product a row or a column is.
#pragma once
#include "weights.cuh"

// The bits of two numbers in bfloat16.
DEVICE uint32_t two_bf16(float low, float high) {
  return __float_as_uint(rounded_to_bf16(low)) >> 16 | (__float_as_uint(rounded_to_bf16(high)) & 0xffff0000u);
}

// The same of the `at`th two numbers of a vector, whose numbers past its `length` are zeros.
DEVICE uint32_t two_bf16_of(const float* from, int at, int length) {
  return two_bf16(2 * at < length ? from[2 * at] : 0.f, 2 * at + 1 < length ? from[2 * at + 1] : 0.f);
}

// Of a product of 16 gate rows, 16 elements of a vector and 8 rows of a batch, the numbers that a thread holds (PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type"): threads form groups of four.
struct Fragment {
  static constexpr int GATE_ROWS = 16, ELEMENTS = 16, WORDS = ELEMENTS / 2, ROWS = 8;
  // The gate row and the first of two elements that register `at` of the weights has; elements that the register `at` of vectors has are those of 2 `at`.
  DEVICE_MEMBER int gate_row(int at) { return threadIdx.x % 32 / 4 + 8 * (at & 1); }
  DEVICE_MEMBER int element(int at) { return threadIdx.x % 4 * 2 + 8 * (at >> 1); }
  // The row of the batch whose vector it has.
  DEVICE_MEMBER int row_of_vectors() { return threadIdx.x % 32 / 4; }
  // The gate row and the row of the batch that number `at` of the sums is of.
  DEVICE_MEMBER int gate_row_of_sum(int at) { return threadIdx.x % 32 / 4 + 8 * (at >> 1); }
  DEVICE_MEMBER int row_of_sum(int at) { return threadIdx.x % 4 * 2 + (at & 1); }
};

// What a thread has of the weights of a product.
struct alignas(16) Words {
  uint32_t of[4];
};

// Loads what a thread has of 8 vectors of a tile, whose words have two numbers each: those of a product's elements begin at `word`.
template <int HEIGHT, int STRIDE> DEVICE void load_vectors(uint32_t (&vectors)[2], const uint32_t (&tile)[HEIGHT][STRIDE], int first_row, int word) {
#pragma unroll
  for (int at = 0; at < 2; at++) vectors[at] = tile[first_row + Fragment::row_of_vectors()][word + Fragment::element(2 * at) / 2];
}

// Adds a product to a thread's sums by exchanges among the lanes of the warp. All of them call it.
DEVICE void add_product_by_lanes(float (&sums)[4], const uint32_t (&weights)[4], const uint32_t (&vectors)[2]) {
  const auto number = [](uint32_t two, int at) { return __uint_as_float(at == 0 ? two << 16 : two & 0xffff0000u); };
#pragma unroll
  for (int word = 0; word < Fragment::WORDS; word++) {
    uint32_t of_gate_rows[2], of_rows[2];
    for (int at = 0; at < 2; at++) {
      of_gate_rows[at] = __shfl_sync(0xffffffffu, weights[word / 4 * 2 + at], threadIdx.x % 32 / 4 * 4 + word % 4);
      of_rows[at] = __shfl_sync(0xffffffffu, vectors[word / 4], (threadIdx.x % 4 * 2 + at) * 4 + word % 4);
    }
    for (int element = 0; element < 2; element++)
      for (int at = 0; at < 4; at++) sums[at] = fmaf(number(of_gate_rows[at >> 1], element), number(of_rows[at & 1], element), sums[at]);
  }
}

// Adds a product to a thread's sums. All threads of the warp call it.
DEVICE void add_product(float (&sums)[4], const Words& weights, const uint32_t (&vectors)[2]) {
#if defined(EMULATED_CUDA) || __CUDA_ARCH__ >= 800
  mma_bf16(sums, weights.of, vectors);
#else
  add_product_by_lanes(sums, weights.of, vectors);
#endif
}
