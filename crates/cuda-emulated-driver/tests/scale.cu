// y[i] = factor x[i], an element a thread; a kernel that reads beyond its input; and kernels that tell the host, or wait for it.
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

// The same, and the launch runs on for a while.
extern "C" __global__ void count_up_and_stay(uint32_t* counter, uint32_t by) {
  if (threadIdx.x == 0) red_release_sys_add(counter, by);
  for (int turn = 0; turn < 2000; turn++) __nanosleep(100);
}
KERNEL(count_up_and_stay)

// A fence and a relaxed operation in place of the release.
extern "C" __global__ void count_up_after_fence(uint32_t* counter, uint32_t by) {
  __threadfence_system();
  if (threadIdx.x == 0) red_relaxed_sys_add(counter, by);
}
KERNEL(count_up_after_fence)

// A plain store: it publishes nothing.
extern "C" __global__ void count_up_plainly(uint32_t* counter, uint32_t by) {
  if (threadIdx.x == 0) *counter += by;
}
KERNEL(count_up_plainly)

// Waits until the host counts up.
extern "C" __global__ void wait_for_host(const uint32_t* counter, uint32_t goal) {
  if (threadIdx.x == 0)
    while (ld_acquire_sys(counter) < goal) __nanosleep(100);
}
KERNEL(wait_for_host)

// Puts a value in place of another one, whatever the order of others that do.
extern "C" __global__ void exchange(uint32_t* word, uint32_t value) {
  if (threadIdx.x == 0) atomicExch(word, value);
}
KERNEL(exchange)
