// y[i] = factor x[i] for each block's x, y and factor, four elements at a time. What is loaded at once has the alignment that its type says.
#include "emulated_cuda.h"

// 16 bytes at once.
struct alignas(16) Four {
  float of[4];
};
// 16 bytes, but 8 at once: the test has them at addresses that are no multiples of 16.
struct Rows {
  const float* x;
  float* y;
};
// One byte at a time.
struct __attribute__((packed)) Factor {
  uint8_t kind;
  float factor;
};

extern "C" __global__ void vectors(const Rows* all, const Factor* factors, uint32_t* done, int fours) {
  const Rows rows = all[blockIdx.x];
#ifdef BUG_NOT_PACKED
  const float factor = *(const float*)((const char*)(factors + blockIdx.x) + 1);
#else
  const float factor = factors[blockIdx.x].factor;
#endif
#ifdef BUG_HALF_A_VECTOR
  const Four* x = (const Four*)(rows.x + 2);
#else
  const Four* x = (const Four*)rows.x;
#endif
  for (int at = threadIdx.x; at < fours; at += blockDim.x) {
    Four four = x[at];
    for (float& of : four.of) of *= factor;
    ((Four*)rows.y)[at] = four;
  }
#if defined(BUG_MISALIGNED_ATOMIC)
  atomicAdd((uint32_t*)((char*)done + 2), 1u);
#elif defined(BUG_MISALIGNED_VOLATILE)
  *(volatile uint16_t*)((char*)done + 1) = 1;
#elif defined(BUG_MISALIGNED_SHARED)
  DYNAMIC_SHARED(char, bytes);
  *(double*)(bytes + 8 * threadIdx.x + 4) = factor;
#else
  atomicAdd(done, 1u);
#endif
}
KERNEL(vectors)
