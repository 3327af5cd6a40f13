// What kernels use beside CUDA C++ itself, for two compilers: NVRTC, and g++ for the emulator (EMULATED_CUDA).
#pragma once

#ifdef EMULATED_CUDA
#include "emulated_cuda.h"
#define DEVICE static inline
#define DEVICE_MEMBER static inline
#define DEVICE_IN_STRUCT inline

// The bits of a float, and the float of bits.
DEVICE uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

DEVICE float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
#else
typedef short int16_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
// `SHARED(float, tile, [16][17])` is shared memory of a block.
#define SHARED(TYPE, NAME, DIMENSIONS) __shared__ __align__(16) TYPE NAME DIMENSIONS
// `DYNAMIC_SHARED(float, words)` is the shared memory of a block whose size is that of the launch.
#define DYNAMIC_SHARED(TYPE, NAME) extern __shared__ __align__(16) TYPE NAME[]
#define DEVICE __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__ static
#define DEVICE_IN_STRUCT __device__ __forceinline__
// Names a kernel for the emulator.
#define KERNEL(NAME)

// A store that publishes to the host and to other GPUs what precedes it.
DEVICE void st_release_sys(uint64_t* at, uint64_t value) { asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory"); }

// An addition that publishes to other blocks what precedes it.
DEVICE void red_release_gpu_add(uint32_t* at, uint32_t value) { asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory"); }

// A load that is followed by all that its value was published with.
DEVICE uint32_t ld_acquire_gpu(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

// The same of a value that the host has stored.
DEVICE uint64_t ld_acquire_sys(const uint64_t* at) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

#if __CUDA_ARCH__ >= 800
// Adds a product of matrices, which the threads of a warp compute together, to d: a of 16 rows and 16 columns, b of 16 rows and 8 columns, bfloat16.
DEVICE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
#endif

DEVICE int least(int a, int b) { return a < b ? a : b; }
