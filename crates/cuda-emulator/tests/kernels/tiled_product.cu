// y[row][output] = sum over k of x[row][k] w[output][k], by tiles in shared memory.
#include "emulated_cuda.h"

constexpr int TILE = 8;

extern "C" __global__ void tiled_product(const float* x, const float* w, float* y, int rows, int outputs, int length) {
  SHARED(float, of_x, [TILE][TILE + 1]);
  SHARED(float, of_w, [TILE][TILE + 1]);
  const int column = threadIdx.x, line = threadIdx.y;
  const int output = blockIdx.x * TILE + column, row = blockIdx.y * TILE + line;
  float sum = 0;
  for (int k = 0; k < length; k += TILE) {
#ifndef BUG_NO_BARRIER_BEFORE_FILLING
    __syncthreads();
#endif
    const bool is_x = row < rows && k + column < length;
#ifdef BUG_EDGE_NOT_FILLED
    if (is_x) of_x[line][column] = x[row * length + k + column];
#else
    of_x[line][column] = is_x ? x[row * length + k + column] : 0;
#endif
    const int of = blockIdx.x * TILE + line;
#ifdef BUG_WILD_INDEX
    of_w[line][column] = w[of == 0 ? (long)1 << 40 : of * length + k + column];
#elif defined(BUG_NO_CHECK_OF_OUTPUTS)
    of_w[line][column] = w[of * length + k + column];
#else
    of_w[line][column] = of < outputs && k + column < length ? w[of * length + k + column] : 0;
#endif
#ifdef BUG_DIVERGENT_BARRIER
    if (line < TILE / 2)
      __syncthreads();
    else
      __syncthreads();
#elif defined(BUG_BARRIER_OF_SOME)
    if (line < TILE / 2) __syncthreads();
#elif !defined(BUG_NO_BARRIER_AFTER_FILLING)
    __syncthreads();
#endif
    for (int i = 0; i < TILE; i++) {
#ifdef BUG_BEYOND_TILE
      sum += of_x[line][i] * of_w[column][column == TILE - 1 && i == TILE - 1 ? i + 2 : i];
#else
      sum += of_x[line][i] * of_w[column][i];
#endif
    }
  }
#ifdef BUG_NO_CHECK_OF_ROWS
  if (output < outputs) y[row * outputs + output] = sum;
#else
  if (row < rows && output < outputs) y[row * outputs + output] = sum;
#endif
}
KERNEL(tiled_product)
