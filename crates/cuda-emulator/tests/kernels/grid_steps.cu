// Steps of a recurrence by a grid that stays: y[step][i] = (y[step - 1][i - 1] + y[step - 1][i + 1]) / 2, in a circle,
// with a barrier of the grid after each.
#include "emulated_cuda.h"

static void grid_barrier(uint32_t* arrived, uint32_t goal) {
#ifndef BUG_NO_BARRIER_BEFORE
  __syncthreads();
#endif
  if (threadIdx.x == 0) {
#if defined(BUG_FLAG_BEFORE_FENCE)  // the barrier of GRNN's public artifact
    red_relaxed_gpu_add(arrived, 1u);
    __threadfence();
    while (ld_relaxed_gpu(arrived) < goal) __nanosleep(20);
    __threadfence();
#elif defined(BUG_VOLATILE_WITHOUT_FENCE)
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*(volatile uint32_t*)arrived < goal) {}
#elif defined(BUG_NO_FENCE)
    red_relaxed_gpu_add(arrived, 1u);
    while (ld_relaxed_gpu(arrived) < goal) __nanosleep(20);
#elif defined(BUG_NO_ACQUIRE)
    red_release_gpu_add(arrived, 1u);
    while (ld_relaxed_gpu(arrived) < goal) __nanosleep(20);
#elif defined(BUG_FENCE_OF_BLOCK)
    __threadfence_block();
    red_relaxed_gpu_add(arrived, 1u);
    while (ld_relaxed_gpu(arrived) < goal) __nanosleep(20);
    __threadfence();
#elif defined(BUG_SCOPE_OF_BLOCK)
    red_release_cta_add(arrived, 1u);
    while (ld_acquire_cta(arrived) < goal) __nanosleep(20);
#elif defined(BUG_GOAL_TOO_HIGH)
    red_release_gpu_add(arrived, 1u);
    while (ld_acquire_gpu(arrived) < goal + 1) __nanosleep(20);
#elif defined(FENCES)
    __threadfence();
    red_relaxed_gpu_add(arrived, 1u);
    while (ld_relaxed_gpu(arrived) < goal) __nanosleep(20);
    __threadfence();
#elif defined(VOLATILE)
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*(volatile uint32_t*)arrived < goal) {}
    __threadfence();
#else
    red_release_gpu_add(arrived, 1u);
    while (ld_acquire_gpu(arrived) < goal) __nanosleep(20);
#endif
  }
#ifndef BUG_NO_BARRIER_AFTER
  __syncthreads();
#endif
}

extern "C" __global__ void grid_steps(float* y, uint32_t* arrived, int steps) {
  const int length = gridDim.x * blockDim.x, at = blockIdx.x * blockDim.x + threadIdx.x;
  for (int step = 1; step <= steps; step++) {
#ifdef BUG_ONE_BUFFER
    const float* before = y;
    float* now = y;
#else
    const float* before = y + (step - 1) * length;
    float* now = y + step * length;
#endif
#ifdef BUG_READ_ONLY_LOAD
    now[at] = 0.5f * (__ldg(before + (at + 1) % length) + __ldg(before + (at + length - 1) % length));
#else
    now[at] = 0.5f * (before[(at + 1) % length] + before[(at + length - 1) % length]);
#endif
    grid_barrier(arrived, step * gridDim.x);
  }
}
KERNEL(grid_steps)
