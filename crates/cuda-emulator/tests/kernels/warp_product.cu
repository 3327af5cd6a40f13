// y = w x for w [16][16] and x [16][8] in bfloat16, by one product of a warp. The element that each register of a thread holds is taken from the manual
// of PTX, "Matrix Fragments for mma.m16n8k16 with floating point type".
#include "emulated_cuda.h"

static inline uint32_t two(const uint16_t* at, int stride) { return at[0] | (uint32_t)at[stride] << 16; }

extern "C" __global__ void warp_product(const uint16_t* w, const uint16_t* x, float* y, int rows) {
  const int group = threadIdx.x >> 2, of_group = threadIdx.x % 4;
  uint32_t a[4], b[2];
  for (int at = 0; at < 4; at++) {
#ifdef BUG_REGISTERS_EXCHANGED
    const int row = group + 8 * (at >> 1), column = of_group * 2 + 8 * (at & 1);
#else
    const int row = group + 8 * (at & 1), column = of_group * 2 + 8 * (at >> 1);
#endif
    a[at] = two(w + row * 16 + column, 1);
  }
  for (int at = 0; at < 2; at++) {
#ifdef BUG_TRANSPOSED
    b[at] = two(x + group * 8 + of_group * 2, 1);
#else
    b[at] = two(x + (of_group * 2 + 8 * at) * 8 + group, 8);
#endif
  }
  float d[4] = {0.f, 0.f, 0.f, 0.f};
#ifdef BUG_DIVERGENT_PRODUCT
  if (threadIdx.x < 16) mma_bf16(d, a, b);
  __syncwarp();
#else
  mma_bf16(d, a, b);
#endif
  for (int at = 0; at < 4; at++) {
    const int row = group + 8 * (at >> 1), column = of_group * 2 + (at & 1);
    if (row < rows) y[row * 8 + column] = d[at];
  }
}
KERNEL(warp_product)
