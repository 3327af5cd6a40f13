// Products of the rows of a batch with a matrix, a tile of rows in shared memory at a time.
//
// A block computes UNITS units of ROWS rows; a thread one unit of ROWS_OF_THREAD rows. Sums take their terms in order of k, one fused multiply-add
// each, whatever the batch.
#pragma once
#include "portable.cuh"

constexpr int UNITS = 32;
constexpr int GROUPS = 4;
constexpr int ROWS_OF_THREAD = 4;
constexpr int ROWS = GROUPS * ROWS_OF_THREAD;
constexpr int CHUNK = 32;

DEVICE int least(int a, int b) { return a < b ? a : b; }

// Adds products to the sums of a thread: `sums[row][at] += sum over k of source(row)[k] w[k][unit][gate]`, where `at` is the gate, and LAST for the
// last one. All threads of the block call it.
template <int SUMS, int GATES, int LAST, class Source>
DEVICE void add_products(float (&sums)[ROWS_OF_THREAD][SUMS], float (&tile)[ROWS][CHUNK + 1], Source source, int rows, const float* w,
                         int length, int unit, int hidden) {
  const int thread = threadIdx.y * UNITS + threadIdx.x, first = threadIdx.y * ROWS_OF_THREAD;
  for (int start = 0; start < length; start += CHUNK) {
    __syncthreads();
    for (int at = thread; at < ROWS * CHUNK; at += UNITS * GROUPS) {
      const int row = at / CHUNK, k = at % CHUNK;
      tile[row][k] = row < rows && start + k < length ? source(row)[start + k] : 0.f;
    }
    __syncthreads();
    if (unit >= hidden) continue;
    const int count = least(CHUNK, length - start);
    for (int k = 0; k < count; k++) {
      const float* of_unit = w + ((long)(start + k) * hidden + unit) * GATES;
      for (int gate = 0; gate < GATES; gate++) {
        const float weight = of_unit[gate];
        for (int row = 0; row < ROWS_OF_THREAD; row++) {
          float& sum = sums[row][gate == GATES - 1 ? LAST : gate];
          sum = fmaf(tile[first + row][k], weight, sum);
        }
      }
    }
  }
}
