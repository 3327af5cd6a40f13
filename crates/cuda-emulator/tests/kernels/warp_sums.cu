// y[row] = sum over k of x[row][k], a warp a row; and what each warp sums of its neighbours' halves, through shared memory.
#include "emulated_cuda.h"

extern "C" __global__ void warp_sums(const float* x, float* y, int rows, int length) {
  DYNAMIC_SHARED(float, exchange);  // [warps of the block][32]
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int row = blockIdx.x * (blockDim.x >> 5) + warp;
  if (row >= rows) return;
  float sum = 0;
  for (int k = lane; k < length; k += 32) sum += x[row * length + k];
#ifdef HALVES
  // Threads of the first half come to their instruction whenever they do, and meet the others later.
  if (lane < 16) sum += __shfl_xor_sync(0x0000ffffu, 0.f, 1);
  if (!__all_sync(0xffffffffu, lane < 32)) return;
#endif
  for (int by = 16; by > 1; by >>= 1) {
#if defined(BUG_HALF_MASK)
    sum += __shfl_xor_sync(0x0000ffffu, sum, by);
#elif defined(BUG_DIVERGENT_SHUFFLE)
    if (lane < 2 * by) sum += __shfl_xor_sync(0xffffffffu, sum, by);
#elif defined(BUG_SOURCE_OUTSIDE_MASK)
    if (lane < 16) sum += __shfl_down_sync(0x0000ffffu, sum, by);
#elif defined(BUG_TWO_MASKS)
    sum += __shfl_xor_sync(lane < 16 ? 0xffffffffu : 0xfffffffeu, sum, by);
#else
    sum += __shfl_xor_sync(0xffffffffu, sum, by);
#endif
  }
  // The last two sums pass through shared memory.
  exchange[warp * 32 + lane] = sum;
#ifndef BUG_NO_SYNCWARP
  __syncwarp();
#endif
#ifdef BUG_EXCHANGE_TOO_SHORT
  sum += exchange[(warp + 1) * 32 + (lane ^ 1)];
#else
  sum += exchange[warp * 32 + (lane ^ 1)];
#endif
#ifdef BUG_ALL_LANES_WRITE
  y[row] = sum;
#else
  if (lane == 0) y[row] = sum;
#endif
}
KERNEL(warp_sums)
