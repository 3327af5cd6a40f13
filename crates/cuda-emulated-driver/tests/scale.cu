// y[i] = factor x[i], an element a thread; and a kernel that reads beyond its input.
#include "emulated_cuda.h"

extern "C" __global__ void scale(const float* x, float* y, float factor, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) y[at] = factor * x[at];
}
KERNEL(scale)

extern "C" __global__ void scale_too_many(const float* x, float* y, float factor, int count) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  y[at] = factor * x[at];
}
KERNEL(scale_too_many)

// Counts up in memory of the host, as one who waits there sees it.
extern "C" __global__ void count_up(uint32_t* counter, uint32_t by) {
  if (threadIdx.x == 0) red_release_sys_add(counter, by);
}
KERNEL(count_up)
