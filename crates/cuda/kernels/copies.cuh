// Copies of bytes that a block makes.
#pragma once
#include "portable.cuh"

// Copies bytes, or writes zeros where the source is null. So many threads call it, this one with the number `thread` of them.
DEVICE void copy_bytes_by(uint32_t thread, uint32_t threads, char* to, const char* from, uint32_t bytes) {
  const bool are_words = (((uint64_t)to | (uint64_t)from | bytes) & 3) == 0;
  if (are_words) {
    for (uint32_t at = thread; at < bytes / 4; at += threads) ((uint32_t*)to)[at] = from ? ((const uint32_t*)from)[at] : 0u;
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
