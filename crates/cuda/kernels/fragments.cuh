// Weights in bfloat16 that stay on the chip as fragments of the products that a warp computes together on tensor cores.
//
// All warps of a block multiply the same gate rows; they divide the elements of h: warp v has those from 16 v on, then from 16 (v + WARPS) on, and so
// on.
//
// Order of sums: a warp adds the products of 16 elements at a time (mma.cuh); then the sums of warps are added in order. So the bits of a row follow from
// WARPS alone.
#pragma once
#include "mma.cuh"

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

  // A tile of vectors has two rounded numbers in a word, zeros after the last one; the words of eight rows lie in different banks of shared memory.
  static constexpr bool HAS_EXACT_TILE = false;
  typedef uint32_t Word;
  static constexpr int LENGTH = HIDDEN, WORDS = 8 * ALL_OF_ELEMENTS;
  static constexpr int STRIDE = WORDS + 4;
  static constexpr int ROOM = 2 * WORDS, WEIGHT_BYTES = 2;

  Words weights[OF_GATE_ROWS][IN_REGISTERS];
  // Those of the last elements: words of shared memory that this thread alone uses. Those of all threads of the block lie side by side.
  Words* own;

  // A word of a vector of so many elements.
  DEVICE_MEMBER Word word(const float* from, int at, int elements) { return two_bf16_of(from, at, elements); }

  // Loads the weights: `r` is [hidden][hidden][GATES]. Other weights of each thread take `own_before` words of shared memory.
  DEVICE_IN_STRUCT void load(const void* r, int first_unit, int own_before) {
    const uint32_t* from = (const uint32_t*)r;
    const int warp = threadIdx.x / 32;
    const auto fragment = [&](int rows, int elements) {
      Words words;
#pragma unroll
      for (int at = 0; at < 4; at++) {
        const int gate_row = 16 * rows + Fragment::gate_row(at), unit = first_unit + gate_row / GATES;
        const int k = 16 * (elements * WARPS + warp) + Fragment::element(at);
        const bool is_there = k < HIDDEN && gate_row < GATE_ROWS && unit < HIDDEN;
        // Weights on the chip are fewer than an int counts; addresses of 64 bits for all of them at once would spill.
        words.of[at] = is_there ? from[(k / 2 * HIDDEN + unit) * GATES + gate_row % GATES] : 0;
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
      for (int rows = 0; rows < OF_ROWS; rows++) load_vectors(h[rows], tile, 8 * rows, 8 * fragment);
#pragma unroll
      for (int gate_rows = 0; gate_rows < OF_GATE_ROWS; gate_rows++) {
        const Words of_gate_rows = weight(gate_rows);
#pragma unroll
        for (int rows = 0; rows < OF_ROWS; rows++) add_product(sums[gate_rows][rows], of_gate_rows, h[rows]);
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

  // Adds the products of a tile of vectors, of `elements` elements, with weights in memory, [elements][all_gate_rows]. The block has the gate rows from
  // `first_gate_row` on. All of its threads call it.
  static DEVICE_IN_STRUCT void add_products_of_memory(float (&sums)[HEIGHT][GATE_ROWS], const Word (&tile)[HEIGHT][STRIDE], const void* w, int elements,
                                                      int first_gate_row, int all_gate_rows) {
    const uint32_t* from = (const uint32_t*)w;
    for (int part = threadIdx.x / 32; part < OF_GATE_ROWS * OF_ROWS; part += WARPS) {
      const int first = 16 * (part % OF_GATE_ROWS), first_row = 8 * (part / OF_GATE_ROWS);
      float of_part[4];
#pragma unroll
      for (int at = 0; at < 4; at++) {
        const int gate_row = first + Fragment::gate_row_of_sum(at);
        of_part[at] = gate_row < GATE_ROWS ? sums[first_row + Fragment::row_of_sum(at)][gate_row] : 0.f;
      }
#pragma unroll 4
      for (int start = 0; start < elements; start += 16) {
        Words weights;
        uint32_t vectors[2];
#pragma unroll
        for (int at = 0; at < 4; at++) {
          const int gate_row = first + Fragment::gate_row(at), k = start + Fragment::element(at);
          const bool is_there = k < elements && gate_row < GATE_ROWS && first_gate_row + gate_row < all_gate_rows;
          weights.of[at] = is_there ? from[(long long)(k / 2) * all_gate_rows + first_gate_row + gate_row] : 0;
        }
        load_vectors(vectors, tile, first_row, start / 2);
        add_product(of_part, weights, vectors);
      }
#pragma unroll
      for (int at = 0; at < 4; at++) {
        const int gate_row = first + Fragment::gate_row_of_sum(at);
        if (gate_row < GATE_ROWS) sums[first_row + Fragment::row_of_sum(at)][gate_row] = of_part[at];
      }
    }
  }
};

// A mapping: units and rows of a block's tile, warps, and the fragments along the elements of a warp that are in shared memory.
template <int OF_HIDDEN, int OF_WIDTH, int OF_HEIGHT, int WARPS, int IN_SHARED = 0> struct InBf16 {
  static constexpr int HIDDEN = OF_HIDDEN, WIDTH = OF_WIDTH, HEIGHT = OF_HEIGHT;
  template <int GATES> using Weights = Fragments<GATES, HIDDEN, WIDTH, HEIGHT, WARPS, IN_SHARED>;
};
