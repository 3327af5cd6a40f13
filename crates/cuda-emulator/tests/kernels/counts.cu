// How many elements of x lie in each of the bins, and each element's bin as two bytes.
#include "emulated_cuda.h"

extern "C" __global__ void counts(const float* x, uint32_t* bins, uint16_t* bin_of, int count, int bin_count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const int bin = (int)(x[at] * bin_count);
#ifdef BUG_NOT_ATOMIC
  bins[bin] += 1;
#elif defined(BUG_SCOPE_OF_BLOCK)
  red_relaxed_cta_add(bins + bin, 1u);
#elif defined(BUG_WILD_POINTER)
  if (at == count - 1) bins = nullptr;
  atomicAdd(bins + bin, 1u);
#else
  atomicAdd(bins + bin, 1u);
#endif
#ifdef BUG_WRITES_THE_NEIGHBOUR
  if (at + 1 < count) *(uint32_t*)((char*)(bin_of + (at & ~1))) = bin;
#else
  bin_of[at] = bin;
#endif
}
KERNEL(counts)
