// Products of the rows of a batch with a matrix, a tile of rows in shared memory at a time.
//
// A block computes UNITS units of ROWS rows; a warp UNITS_OF_WARP units of them, and a thread one unit of ROWS_OF_THREAD rows: those that it has of a product
// of mma.cuh. In f32, sums take their terms in order of k, one fused multiply-add each; in bfloat16 as mma.cuh adds them. It is so whatever the batch.
#pragma once
#include "batch.cuh"
#include "mma.cuh"

constexpr int UNITS = 32;
constexpr int GROUPS = 4;
constexpr int UNITS_OF_WARP = UNITS / GROUPS;
constexpr int ROWS_OF_THREAD = 4;
constexpr int ROWS = 16;

DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// The rows and the unit of a thread.
struct Part {
  int first;  // the first row of the block
  int rows;   // the rows of the block
  int unit;
  int thread;  // its number in the block

  // The row of the block that is the thread's `at`th.
  DEVICE_MEMBER int row_of_block(int at) { return at / 2 * Fragment::ROWS + Fragment::row_of_sum(at % 2); }

  // The row of the batch that is the thread's `at`th; -1 past the last one.
  DEVICE_MEMBER int row(const Part& part, int at) {
    const int row = row_of_block(at);
    return row < part.rows ? part.first + row : -1;
  }
};

// The part of a thread of a batch of so many rows.
DEVICE Part part_of(int rows) {
  const int first = blockIdx.y * ROWS;
  const int unit = blockIdx.x * UNITS + threadIdx.y * UNITS_OF_WARP + threadIdx.x / 4;
  return {first, least(ROWS, rows - first), unit, (int)(threadIdx.y * UNITS + threadIdx.x)};
}

// Whether the block has rows: launches of a graph are for as many as there may be.
DEVICE bool has_rows(const Batch& batch) { return (int)blockIdx.y * ROWS < as_now(batch).count; }

template <int SUMS> DEVICE void begin_sums(float (&sums)[ROWS_OF_THREAD][SUMS], const float* b, int unit, int units) {
  for (int row = 0; row < ROWS_OF_THREAD; row++)
    for (int at = 0; at < SUMS; at++) sums[row][at] = unit < units ? b[unit * SUMS + at] : 0.f;
}

// How a tile of rows is multiplied: CHUNK elements at a time, which are WORDS words of a row.
template <class Weights> struct TileProduct {
  typedef typename Weights::Element Word;
  static constexpr int CHUNK = 32, WORDS = CHUNK, STRIDE = WORDS + 1;

  // A word of a row of so many elements.
  DEVICE_MEMBER Word word(const typename Weights::Element* from, int at, int elements) { return at < elements ? Weights::factor(from[at]) : 0; }

  // Adds the products of the elements from `start` on.
  template <int SUMS, int GATES, int LAST>
  DEVICE_MEMBER void add(typename Weights::Sum (&sums)[ROWS_OF_THREAD][SUMS], const Word (&tile)[ROWS][STRIDE], const void* w, int start, int length,
                         const Part& part, int units) {
    if (part.unit >= units) return;
    const int count = least(CHUNK, length - start);
    for (int k = 0; k < count; k++) {
      const typename Weights::Weight* of_unit = (const typename Weights::Weight*)w + ((long long)(start + k) * units + part.unit) * GATES;
      typename Weights::Element factors[ROWS_OF_THREAD];
      for (int row = 0; row < ROWS_OF_THREAD; row++) factors[row] = tile[Part::row_of_block(row)][k];
      for (int gate = 0; gate < GATES; gate++) {
        const auto weight = Weights::weight(of_unit[gate]);
        for (int row = 0; row < ROWS_OF_THREAD; row++) {
          typename Weights::Sum& sum = sums[row][gate == GATES - 1 ? LAST : gate];
          sum = Weights::add(factors[row], weight, sum);
        }
      }
    }
  }
};

// In bfloat16 the threads of a warp multiply together: the gate rows of a product are two gates of the warp's units. Words of eight rows lie in different
// banks of shared memory.
template <> struct TileProduct<Bf16> {
  typedef uint32_t Word;
  static constexpr int CHUNK = 64, WORDS = CHUNK / 2, STRIDE = WORDS + 4;
  static_assert(2 * UNITS_OF_WARP == Fragment::GATE_ROWS && ROWS == 2 * Fragment::ROWS, "a product has two gates, and a block two products' rows");

  DEVICE_MEMBER Word word(const float* from, int at, int elements) { return two_bf16_of(from, at, elements); }

  template <int SUMS, int GATES, int LAST>
  DEVICE_MEMBER void add(float (&sums)[ROWS_OF_THREAD][SUMS], const Word (&tile)[ROWS][STRIDE], const void* w, int start, int length, const Part& part,
                         int units) {
    const int elements = least(CHUNK, length - start);
#pragma unroll 2
    for (int first = 0; first < elements; first += Fragment::ELEMENTS) {
      uint32_t vectors[2][2];
      for (int half = 0; half < 2; half++) load_vectors(vectors[half], tile, half * Fragment::ROWS, first / 2);
      // Of the thread's unit: two elements for each gate, and two others.
      uint32_t weights[2][GATES + 1] = {};
      for (int at = 0; at < 2; at++) {
        const int k = start + first + Fragment::element(2 * at);
        const uint32_t* of_unit = (const uint32_t*)w + ((long long)(k / 2) * units + part.unit) * GATES;
        for (int gate = 0; gate < GATES; gate++)
          if (k < length && part.unit < units) weights[at][gate] = of_unit[gate];
      }
      for (int gate = 0; gate < GATES; gate += 2) {
        const Words of_gates = {{weights[0][gate], weights[0][gate + 1], weights[1][gate], weights[1][gate + 1]}};
        for (int half = 0; half < 2; half++) {
          float of_product[4] = {};
          for (int at = 0; at < 4; at++)
            if (gate + at / 2 < GATES) of_product[at] = sums[half * 2 + at % 2][gate + at / 2 == GATES - 1 ? LAST : gate + at / 2];
          add_product(of_product, of_gates, vectors[half]);
          for (int at = 0; at < 4; at++)
            if (gate + at / 2 < GATES) sums[half * 2 + at % 2][gate + at / 2 == GATES - 1 ? LAST : gate + at / 2] = of_product[at];
        }
      }
    }
  }
};

// A row of a tile, and a tile.
template <class Weights> using RowOfTile = typename TileProduct<Weights>::Word[TileProduct<Weights>::STRIDE];
template <class Weights> using Tile = RowOfTile<Weights>[ROWS];

// Adds products to the sums of a thread: `sums[row][at] += sum over k of sources[row][k] w[k][unit][gate]`, where `at` is the gate, and LAST for the
// last one. A source that is null is zeros. All threads of the block call it.
template <class Weights, int SUMS, int GATES, int LAST>
DEVICE void add_products(typename Weights::Sum (&sums)[ROWS_OF_THREAD][SUMS], Tile<Weights>& tile, const typename Weights::Element* const (&sources)[ROWS],
                         const void* w, int length, const Part& part, int units) {
  typedef TileProduct<Weights> Product;
  for (int start = 0; start < length; start += Product::CHUNK) {
    __syncthreads();
    for (int at = part.thread; at < ROWS * Product::WORDS; at += UNITS * GROUPS) {
      const auto* source = sources[at / Product::WORDS];
      tile[at / Product::WORDS][at % Product::WORDS] = source ? Product::word(source + start, at % Product::WORDS, length - start) : 0;
    }
    __syncthreads();
    Product::template add<SUMS, GATES, LAST>(sums, tile, w, start, length, part, units);
  }
}
