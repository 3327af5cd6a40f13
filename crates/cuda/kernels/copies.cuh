// Copies of bytes that a block makes.
#pragma once
#include "portable.cuh"

constexpr uint32_t LOADS = 8;

// Copies bytes, or writes zeros where the source is null. So many threads call it, this one with the number `thread` of them.
DEVICE void copy_bytes_by(uint32_t thread, uint32_t threads, char* to, const char* from, uint32_t bytes) {
  const bool are_words = (((uint64_t)to | (uint64_t)from | bytes) & 3) == 0;
  if (are_words) {
    // A thread has several loads under way: each from memory of the host takes more than a microsecond.
    for (uint32_t at = thread; at < bytes / 4; at += LOADS * threads) {
      uint32_t words[LOADS];
#pragma unroll
      for (uint32_t more = 0; more < LOADS; more++) {
        const uint32_t place = at + more * threads;
        words[more] = from && place < bytes / 4 ? ((const uint32_t*)from)[place] : 0u;
      }
#pragma unroll
      for (uint32_t more = 0; more < LOADS; more++)
        if (at + more * threads < bytes / 4) ((uint32_t*)to)[at + more * threads] = words[more];
    }
  } else {
    for (uint32_t at = thread; at < bytes; at += threads) to[at] = from ? from[at] : (char)0;
  }
}

// The same for the first `threads` threads of the block.
DEVICE void copy_bytes(char* to, const char* from, uint32_t bytes, uint32_t threads) { copy_bytes_by(threadIdx.x, threads, to, from, bytes); }

// A copy: `Copy` of src/kernels/rows.rs.
struct Copy {
  char* to;
  const char* from;  // null for zeros
  uint64_t bytes;
};
