// The first index of the greatest of the sums W x + b (the ONNX operators Gemm, then ArgMax with select_last_index = 0), for the rows of a batch.
//
// A block finds the greatest of 32 outputs of 16 rows, then a warp a row the greatest of all blocks. What is no number counts as the least; the first
// output stands for a row that has nothing else.
//
//   w   [inputs][outputs], stored as weights.cuh has it        b   [outputs]        parts   [rows][blocks]
#include "products.cuh"

// An output and its sum.
struct Greatest {
  float sum;
  int output;
};

// `LinearArguments` of src/kernels/linear.rs.
struct LinearArguments {
  Batch batch;
  Operand x;  // [inputs]
  Operand y;  // the index, of 64 bits
  const void* w;
  const float* b;
  Greatest* parts;
  int inputs, outputs;
};

constexpr float LEAST = -3.402823466e38f;

// Whether one output precedes another: its sum is greater, or as great and its index less.
DEVICE bool precedes(Greatest a, Greatest b) { return a.sum > b.sum || (a.sum == b.sum && a.output < b.output); }

// Lanes of a warp whose numbers differ in the bits from `least_bit` to 16 alone take part together; each gets their greatest.
DEVICE Greatest greatest_of_warp(Greatest own, int least_bit = 1) {
  for (int by = 16; by >= least_bit; by >>= 1) {
    const Greatest other = {__shfl_xor_sync(0xffffffffu, own.sum, by), __shfl_xor_sync(0xffffffffu, own.output, by)};
    if (precedes(other, own)) own = other;
  }
  return own;
}

template <class Weights> DEVICE void linear_arg_max(const LinearArguments& of) {
  SHARED(RowOfTile<Weights>, tile, [ROWS]);
  SHARED(const float*, of_x, [ROWS]);
  const Part part = part_of(as_now(of.batch).count);
  if (part.thread < ROWS) of_x[part.thread] = part.thread < part.rows ? (const float*)locate(as_now(of.batch), of.x, part.first + part.thread) : nullptr;
  float sums[ROWS_OF_THREAD][1];
  begin_sums<1>(sums, of.b, part.unit, of.outputs);
  add_products<Weights, 1, 1, 0>(sums, tile, of_x, of.w, of.inputs, part, of.outputs);
  SHARED(Greatest, of_warps, [GROUPS][ROWS]);
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const float sum = sums[at][0];
    const bool is_number = part.unit < of.outputs && sum > LEAST;
    // Threads that are 4 apart have units of the same rows.
    const Greatest greatest = greatest_of_warp({is_number ? sum : LEAST, part.unit}, 4);
    if (threadIdx.x < 4) of_warps[threadIdx.y][Part::row_of_block(at)] = greatest;
  }
  __syncthreads();
  if (part.thread >= part.rows) return;
  Greatest greatest = of_warps[0][part.thread];
  for (int warp = 1; warp < GROUPS; warp++)
    if (precedes(of_warps[warp][part.thread], greatest)) greatest = of_warps[warp][part.thread];
  of.parts[(long long)(part.first + part.thread) * gridDim.x + blockIdx.x] = greatest;
}

#define LINEAR(NAME, WEIGHTS)                                                                     \
  extern "C" __global__ void __launch_bounds__(UNITS * GROUPS) NAME(LinearArguments of) {         \
    if (has_rows(of.batch)) linear_arg_max<WEIGHTS>(of);                                          \
  }                                                                                               \
  KERNEL(NAME)

LINEAR(linear_arg_max_f32, F32)
LINEAR(linear_arg_max_bf16, Bf16)

extern "C" __global__ void __launch_bounds__(UNITS * GROUPS) arg_max_of_parts(LinearArguments of) {
  of.batch = as_now(of.batch);
  const int row = blockIdx.x * GROUPS + threadIdx.y, blocks = (of.outputs + UNITS - 1) / UNITS;
  if (row >= of.batch.count) return;
  Greatest greatest = {LEAST, 0};
  for (int part = threadIdx.x; part < blocks; part += UNITS) {
    const Greatest of_part = of.parts[(long long)row * blocks + part];
    if (precedes(of_part, greatest)) greatest = of_part;
  }
  greatest = greatest_of_warp(greatest);
  if (threadIdx.x == 0) *(long long*)locate(of.batch, of.y, row) = greatest.output;
}
KERNEL(arg_max_of_parts)
