// Products of the rows of a batch with a matrix, a tile of rows in shared memory at a time.
//
// A block computes UNITS units of ROWS rows; a thread one unit of ROWS_OF_THREAD rows. Sums take their terms in order of k, one fused multiply-add
// each, whatever the batch.
#pragma once
#include "batch.cuh"
#include "weights.cuh"

constexpr int UNITS = 32;
constexpr int GROUPS = 4;
constexpr int ROWS_OF_THREAD = 4;
constexpr int ROWS = GROUPS * ROWS_OF_THREAD;
constexpr int CHUNK = 32;

DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// The rows and the unit of a thread.
struct Part {
  int first;  // the first row of the block
  int rows;   // the rows of the block
  int unit;
  int thread;  // its number in the block

  // The row of the batch that is the thread's `at`th; -1 past the last one.
  DEVICE_MEMBER int row(const Part& part, int at) {
    const int row = threadIdx.y * ROWS_OF_THREAD + at;
    return row < part.rows ? part.first + row : -1;
  }
};

// The part of a thread of a batch of so many rows.
DEVICE Part part_of(int rows) {
  const int first = blockIdx.y * ROWS;
  return {first, least(ROWS, rows - first), (int)(blockIdx.x * UNITS + threadIdx.x), (int)(threadIdx.y * UNITS + threadIdx.x)};
}

// Whether the block has rows: launches of a graph are for as many as there may be.
DEVICE bool has_rows(const Batch& batch) { return (int)blockIdx.y * ROWS < as_now(batch).count; }

template <int SUMS> DEVICE void begin_sums(float (&sums)[ROWS_OF_THREAD][SUMS], const float* b, int unit, int units) {
  for (int row = 0; row < ROWS_OF_THREAD; row++)
    for (int at = 0; at < SUMS; at++) sums[row][at] = unit < units ? b[unit * SUMS + at] : 0.f;
}

// Adds products to the sums of a thread: `sums[row][at] += sum over k of sources[row][k] w[k][unit][gate]`, where `at` is the gate, and LAST for the
// last one. A source that is null is zeros. All threads of the block call it.
template <class Weights, int SUMS, int GATES, int LAST>
DEVICE void add_products(typename Weights::Sum (&sums)[ROWS_OF_THREAD][SUMS], typename Weights::Element (&tile)[ROWS][CHUNK + 1],
                         const typename Weights::Element* const (&sources)[ROWS], const void* w, int length, const Part& part, int units) {
  const int first = threadIdx.y * ROWS_OF_THREAD;
  for (int start = 0; start < length; start += CHUNK) {
    __syncthreads();
    for (int at = part.thread; at < ROWS * CHUNK; at += UNITS * GROUPS) {
      const int row = at / CHUNK, k = at % CHUNK;
      tile[row][k] = sources[row] && start + k < length ? Weights::factor(sources[row][start + k]) : 0;
    }
    __syncthreads();
    if (part.unit >= units) continue;
    const int count = least(CHUNK, length - start);
    for (int k = 0; k < count; k++) {
      const typename Weights::Weight* of_unit = (const typename Weights::Weight*)w + ((long long)(start + k) * units + part.unit) * GATES;
      typename Weights::Element factors[ROWS_OF_THREAD];
      for (int row = 0; row < ROWS_OF_THREAD; row++) factors[row] = tile[first + row][k];
      for (int gate = 0; gate < GATES; gate++) {
        const auto weight = Weights::weight(of_unit[gate]);
        for (int row = 0; row < ROWS_OF_THREAD; row++) {
          typename Weights::Sum& sum = sums[row][gate == GATES - 1 ? LAST : gate];
          sum = Weights::add(factors[row], weight, sum);
        }
      }
    }
  }
}
