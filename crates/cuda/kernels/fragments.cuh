// Weights in bfloat16 that stay on the chip as fragments of the products that a warp computes together on tensor cores.
//
// All warps of a block multiply the same gate rows; they divide the elements of h: warp v has those from 16 v on, then from 16 (v + WARPS) on, and so
// on. h is rounded to bfloat16; products are exact, and sums are f32.
//
// Order of sums: a warp adds the products of 16 elements at a time, in the order that the hardware has for 16; then the sums of warps are added in order.
// So the bits of a row follow from WARPS alone.
#pragma once
#include "weights.cuh"

// The bits of two numbers in bfloat16.
DEVICE uint32_t two_bf16(float low, float high) {
  return __float_as_uint(rounded_to_bf16(low)) >> 16 | (__float_as_uint(rounded_to_bf16(high)) & 0xffff0000u);
}

// Of a product of 16 gate rows, 16 elements of h and 8 rows of a batch, the numbers that a thread holds (PTX ISA, "Matrix Fragments for mma.m16n8k16 with
// floating point type"): threads form groups of four.
struct Fragment {
  // The gate row and the first of two elements that register `at` of the weights has; elements that the register `at` of h has are those of 2 `at`.
  DEVICE_MEMBER int gate_row(int at) { return threadIdx.x % 32 / 4 + 8 * (at & 1); }
  DEVICE_MEMBER int element(int at) { return threadIdx.x % 4 * 2 + 8 * (at >> 1); }
  // The row of the batch of h.
  DEVICE_MEMBER int row_of_h() { return threadIdx.x % 32 / 4; }
  // The gate row and the row of the batch that number `at` of the sums is of.
  DEVICE_MEMBER int gate_row_of_sum(int at) { return threadIdx.x % 32 / 4 + 8 * (at >> 1); }
  DEVICE_MEMBER int row_of_sum(int at) { return threadIdx.x % 4 * 2 + (at & 1); }
};

// What a thread has of a fragment of weights.
struct alignas(16) Words {
  uint32_t of[4];
};

// The weights of h of some gates of a block's units.
template <int GATES, int HIDDEN, int WIDTH, int HEIGHT, int WARPS, int IN_SHARED> struct Fragments {
  static constexpr int GATE_ROWS = GATES * WIDTH;
  static constexpr int OF_GATE_ROWS = (GATE_ROWS + 15) / 16;    // fragments along gate rows
  static constexpr int ALL_OF_ELEMENTS = (HIDDEN + 15) / 16;    // along elements, of all warps
  static constexpr int OF_ELEMENTS = (ALL_OF_ELEMENTS + WARPS - 1) / WARPS;
  static constexpr int OF_ROWS = HEIGHT / 8;
  static constexpr int IN_REGISTERS = OF_ELEMENTS - IN_SHARED;
  static constexpr int OWN_WORDS = 4 * OF_GATE_ROWS * IN_SHARED;
  static constexpr int THREADS_OF_BLOCK = 32 * WARPS;
  static_assert(IN_REGISTERS > 0, "some weights are in registers");
  static_assert(HEIGHT % 8 == 0, "a product has 8 rows");

  typedef Bf16 Storage;
  // A tile of h has two rounded numbers in a word, zeros after the last one; the words of eight rows lie in different banks of shared memory.
  static constexpr bool HAS_EXACT_TILE = false;
  typedef uint32_t Word;
  static constexpr int WORDS = 8 * ALL_OF_ELEMENTS;
  static constexpr int STRIDE = WORDS + 4;

  Words weights[OF_GATE_ROWS][IN_REGISTERS];
  // Those of the last elements: words of shared memory that this thread alone uses. Those of all threads of the block lie side by side.
  Words* own;

  // A word of a row of h, or zeros.
  DEVICE_MEMBER Word word(const float* from, int at) {
    const float low = from && 2 * at < HIDDEN ? from[2 * at] : 0.f, high = from && 2 * at + 1 < HIDDEN ? from[2 * at + 1] : 0.f;
    return two_bf16(low, high);
  }

  // Loads the weights: `r` is [hidden][hidden][GATES]. Other weights of each thread take `own_before` words of shared memory.
  DEVICE_IN_STRUCT void load(const void* r, int first_unit, int own_before) {
    const uint16_t* from = (const uint16_t*)r;
    const int warp = threadIdx.x / 32;
    const auto fragment = [&](int rows, int elements) {
      Words words;
#pragma unroll
      for (int at = 0; at < 4; at++) {
        const int gate_row = 16 * rows + Fragment::gate_row(at), unit = first_unit + gate_row / GATES;
        const int k = 16 * (elements * WARPS + warp) + Fragment::element(at);
        uint32_t both = 0;
#pragma unroll
        for (int more = 0; more < 2; more++)
          if (k + more < HIDDEN && gate_row < GATE_ROWS && unit < HIDDEN)
            both |= (uint32_t)from[((long long)(k + more) * HIDDEN + unit) * GATES + gate_row % GATES] << 16 * more;
        words.of[at] = both;
      }
      return words;
    };
#pragma unroll
    for (int rows = 0; rows < OF_GATE_ROWS; rows++)
#pragma unroll
      for (int elements = 0; elements < IN_REGISTERS; elements++) weights[rows][elements] = fragment(rows, elements);
    if constexpr (IN_SHARED > 0) {
      DYNAMIC_SHARED(Words, fragments);
      own = fragments + own_before / 4 * THREADS_OF_BLOCK + threadIdx.x;
      for (int rows = 0; rows < OF_GATE_ROWS; rows++)
        for (int elements = 0; elements < IN_SHARED; elements++)
          own[(rows * IN_SHARED + elements) * THREADS_OF_BLOCK] = fragment(rows, IN_REGISTERS + elements);
    }
  }

  // Multiplies a tile of h, and writes the sums of each gate row. All threads of the block call it.
  DEVICE_IN_STRUCT void multiply(const Word (&tile)[HEIGHT][STRIDE], float (&totals)[HEIGHT][GATE_ROWS]) const {
    SHARED(float, of_warps, [WARPS][HEIGHT][16 * OF_GATE_ROWS + 4]);
    const int warp = threadIdx.x / 32;
    float sums[OF_GATE_ROWS][OF_ROWS][4] = {};
    const auto add = [&](int elements, const auto& weight) {
      const int fragment = elements * WARPS + warp;
      if (fragment >= ALL_OF_ELEMENTS) return;
      uint32_t h[OF_ROWS][2];
#pragma unroll
      for (int rows = 0; rows < OF_ROWS; rows++)
#pragma unroll
        for (int at = 0; at < 2; at++) h[rows][at] = tile[8 * rows + Fragment::row_of_h()][8 * fragment + Fragment::element(2 * at) / 2];
#pragma unroll
      for (int gate_rows = 0; gate_rows < OF_GATE_ROWS; gate_rows++) {
        const Words of_gate_rows = weight(gate_rows);
#pragma unroll
        for (int rows = 0; rows < OF_ROWS; rows++) mma_bf16(sums[gate_rows][rows], of_gate_rows.of, h[rows]);
      }
    };
#pragma unroll
    for (int elements = 0; elements < IN_REGISTERS; elements++) add(elements, [&](int rows) { return weights[rows][elements]; });
#pragma unroll 2
    for (int elements = 0; elements < IN_SHARED; elements++)
      add(IN_REGISTERS + elements, [&](int rows) { return own[(rows * IN_SHARED + elements) * THREADS_OF_BLOCK]; });
#pragma unroll
    for (int gate_rows = 0; gate_rows < OF_GATE_ROWS; gate_rows++)
#pragma unroll
      for (int rows = 0; rows < OF_ROWS; rows++)
#pragma unroll
        for (int at = 0; at < 4; at++)
          of_warps[warp][8 * rows + Fragment::row_of_sum(at)][16 * gate_rows + Fragment::gate_row_of_sum(at)] = sums[gate_rows][rows][at];
    __syncthreads();
    for (int at = threadIdx.x; at < HEIGHT * GATE_ROWS; at += 32 * WARPS) {
      float total = of_warps[0][at / GATE_ROWS][at % GATE_ROWS];
#pragma unroll
      for (int of = 1; of < WARPS; of++) total += of_warps[of][at / GATE_ROWS][at % GATE_ROWS];
      totals[at / GATE_ROWS][at % GATE_ROWS] = total;
    }
  }
};

// A mapping: units and rows of a block's tile, warps, and the fragments along the elements of a warp that are in shared memory.
template <int OF_HIDDEN, int OF_WIDTH, int OF_HEIGHT, int WARPS, int IN_SHARED = 0> struct InBf16 {
  static constexpr int HIDDEN = OF_HIDDEN, WIDTH = OF_WIDTH, HEIGHT = OF_HEIGHT;
  template <int GATES> using Weights = Fragments<GATES, HIDDEN, WIDTH, HEIGHT, WARPS, IN_SHARED>;
};
