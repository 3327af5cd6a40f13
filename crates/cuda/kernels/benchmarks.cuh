// Micro-benchmarks of what the cost model of persistent kernels counts (GRNN, section 7.1.3): products of a thread, sums over lanes, loads from the L2 cache.
//
// A kernel runs rounds of one kind of work, and writes what came of it, so that no compiler leaves it out. A round takes its operands from another place
// than the round before: it reads them anew.
#pragma once
#include "portable.cuh"

// `BenchmarkArguments` of src/kernels/benchmarks.rs.
struct BenchmarkArguments {
  const float* numbers;  // [LOADS * MOST_THREADS + PLACES]
  float* results;        // a number for each thread
  uint32_t rounds;
  uint32_t padding;
};

// Places that operands of a round begin at, one after the other.
constexpr int PLACES = 8;
// Elements of h that a lane multiplies in a round.
constexpr int ELEMENTS = 64;
// The most threads of a block, and the numbers that each of them loads in a round.
constexpr int MOST_THREADS = 1024, LOADS = 16;

DEVICE void write_result(const BenchmarkArguments& of, float result) { of.results[blockIdx.x * blockDim.x + threadIdx.x] = result; }

// Products as `Resident::multiply` of persistent.cuh has them: each element of h, from shared memory, with a weight of each gate row, in a register.
template <int GATE_ROWS> DEVICE void multiply_rounds(const BenchmarkArguments& of) {
  SHARED(float, tile, [ELEMENTS * 32 + PLACES]);
  for (int at = threadIdx.x; at < ELEMENTS * 32 + PLACES; at += blockDim.x) tile[at] = of.numbers[at];
  __syncthreads();
  const int lane = threadIdx.x % 32;
  float weights[GATE_ROWS], sums[GATE_ROWS];
#pragma unroll
  for (int row = 0; row < GATE_ROWS; row++) {
    weights[row] = of.numbers[row];
    sums[row] = of.numbers[lane];
  }
  for (uint32_t round = 0; round < of.rounds; round++) {
    const float* h = tile + round % PLACES + lane;
#pragma unroll
    for (int k = 0; k < ELEMENTS; k++)
#pragma unroll
      for (int row = 0; row < GATE_ROWS; row++) sums[row] = fmaf(h[k * 32], weights[row], sums[row]);
  }
  float result = 0.f;
  for (int row = 0; row < GATE_ROWS; row++) result += sums[row];
  write_result(of, result);
}

// Sums over the lanes of a warp, of several numbers of each: five shuffles of each number.
template <int SUMS> DEVICE void shuffle_rounds(const BenchmarkArguments& of) {
  float sums[SUMS];
#pragma unroll
  for (int at = 0; at < SUMS; at++) sums[at] = of.numbers[at];
  for (uint32_t round = 0; round < of.rounds; round++)
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
#pragma unroll
      for (int at = 0; at < SUMS; at++) sums[at] += __shfl_xor_sync(0xffffffffu, sums[at], apart);
  float result = 0.f;
  for (int at = 0; at < SUMS; at++) result += sums[at];
  write_result(of, result);
}

// Loads that pass by the multiprocessor's own cache, by a block of MOST_THREADS.
DEVICE void load_rounds(const BenchmarkArguments& of) {
  float sum = 0.f;
  for (uint32_t round = 0; round < of.rounds; round++) {
    const float* from = of.numbers + round % PLACES + threadIdx.x;
    float loaded[LOADS];
#pragma unroll
    for (int at = 0; at < LOADS; at++) loaded[at] = __ldcg(from + at * MOST_THREADS);
#pragma unroll
    for (int at = 0; at < LOADS; at++) sum += loaded[at];
  }
  write_result(of, sum);
}

#define BENCHMARK(NAME, ...)                                                                                  \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1) NAME(BenchmarkArguments of) { __VA_ARGS__(of); } \
  KERNEL(NAME)
