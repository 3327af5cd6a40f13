// What kernels use beside CUDA C++ itself, for two compilers: NVRTC, and g++ for the emulator (EMULATED_CUDA).
#pragma once

#ifdef EMULATED_CUDA
#include "emulated_cuda.h"
#define DEVICE static inline
#define DEVICE_MEMBER static inline
#define DEVICE_MEMBER_OF_OBJECT inline
#else
typedef unsigned int uint32_t;
// `SHARED(float, tile, [16][17])` is shared memory of a block.
#define SHARED(TYPE, NAME, DIMENSIONS) __shared__ TYPE NAME DIMENSIONS
#define DEVICE __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__ static
#define DEVICE_MEMBER_OF_OBJECT __device__ __forceinline__
// Names a kernel for the emulator.
#define KERNEL(NAME)
#endif
