// A producer and a consumer: the first block passes numbers through a ring of two places to the second, which writes them to y.
// `done` lies in the host's memory: it counts what y has.
#include "emulated_cuda.h"

constexpr int PLACES = 2;

extern "C" __global__ void ring(const float* x, float* places, uint32_t* produced, uint32_t* consumed, float* y, uint32_t* done, int count) {
  const int thread = threadIdx.x, threads = blockDim.x;
  for (int at = 0; at < count; at++) {
    float* place = places + at % PLACES * threads;
    if (blockIdx.x == 0) {
#ifndef BUG_PLACE_NOT_FREE
      if (thread == 0)
        while (at >= PLACES && ld_acquire_gpu(consumed) + PLACES <= (uint32_t)at) __nanosleep(20);
      __syncthreads();
#endif
      place[thread] = x[at * threads + thread];
      __syncthreads();
#ifdef BUG_PRODUCED_RELAXED
      if (thread == 0) st_relaxed_gpu(produced, (uint32_t)at + 1);
#elif defined(BUG_ANNOUNCED_EARLY)
      if (thread == 0) st_release_gpu(produced, (uint32_t)at + 2);
#else
      if (thread == 0) st_release_gpu(produced, (uint32_t)at + 1);
#endif
    } else {
#ifdef BUG_ONE_ACQUIRES_FOR_ALL
      while (thread == 0 ? ld_acquire_gpu(produced) <= (uint32_t)at : ld_relaxed_gpu(produced) <= (uint32_t)at) {}
#else
      if (thread == 0)
        while (ld_acquire_gpu(produced) <= (uint32_t)at) __nanosleep(20);
      __syncthreads();
#endif
      y[at * threads + thread] = place[thread];
      __syncthreads();
      if (thread == 0) {
        st_release_gpu(consumed, (uint32_t)at + 1);
#ifdef BUG_SCOPE_OF_GPU_FOR_HOST
        st_release_gpu(done, (uint32_t)at + 1);
#elif defined(BUG_FENCE_OF_GPU_FOR_HOST)
        __threadfence();
        *(volatile uint32_t*)done = (uint32_t)at + 1;
#elif defined(FENCE_FOR_HOST)
        __threadfence_system();
        *(volatile uint32_t*)done = (uint32_t)at + 1;
#else
        st_release_sys(done, (uint32_t)at + 1);
#endif
      }
    }
  }
}
KERNEL(ring)
