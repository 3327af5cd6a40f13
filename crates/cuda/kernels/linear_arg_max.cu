// The first index of the greatest of the sums W x + b (the ONNX operators Gemm, then ArgMax with select_last_index = 0), for the rows of a batch.
//
// A block finds the greatest of 32 outputs of 16 rows, then a warp a row the greatest of all blocks. What is no number counts as the least; the first
// output stands for a row that has nothing else.
//
//   w   [inputs][outputs]        b   [outputs]        parts   [rows][blocks]
#include "products.cuh"

// A row of a batch: `ArgMaxRow` of src/linear.rs.
struct ArgMaxRow {
  const float* x;  // [inputs]
  long long* y;    // the index
};

// An output and its sum.
struct Greatest {
  float sum;
  int output;
};

constexpr float LEAST = -3.402823466e38f;

// Whether one output precedes another: its sum is greater, or as great and its index less.
DEVICE bool precedes(Greatest a, Greatest b) { return a.sum > b.sum || (a.sum == b.sum && a.output < b.output); }

// The greatest of the threads of a warp, in all of them.
DEVICE Greatest greatest_of_warp(Greatest own) {
  for (int by = 16; by > 0; by >>= 1) {
    const Greatest other = {__shfl_xor_sync(0xffffffffu, own.sum, by), __shfl_xor_sync(0xffffffffu, own.output, by)};
    if (precedes(other, own)) own = other;
  }
  return own;
}

extern "C" __global__ void __launch_bounds__(UNITS * GROUPS)
    linear_arg_max_f32(const ArgMaxRow* batch, int count, const float* w, const float* b, Greatest* parts, int inputs, int outputs) {
  SHARED(float, tile, [ROWS][CHUNK + 1]);
  const int output = blockIdx.x * UNITS + threadIdx.x, first = blockIdx.y * ROWS;
  const int rows = least(ROWS, count - first);
  float sums[ROWS_OF_THREAD][1];
  for (int row = 0; row < ROWS_OF_THREAD; row++) sums[row][0] = output < outputs ? b[output] : 0.f;
  const auto input_of = [=](int row) { return batch[first + row].x; };
  add_products<1, 1, 0>(sums, tile, input_of, rows, w, inputs, output, outputs);
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const float sum = sums[at][0];
    const bool is_number = output < outputs && sum > LEAST;
    const Greatest greatest = greatest_of_warp({is_number ? sum : LEAST, output});
    const int row = threadIdx.y * ROWS_OF_THREAD + at;
    if (threadIdx.x == 0 && row < rows) parts[(long)(first + row) * gridDim.x + blockIdx.x] = greatest;
  }
}
KERNEL(linear_arg_max_f32)

extern "C" __global__ void __launch_bounds__(UNITS * GROUPS)
    arg_max_of_parts_f32(const ArgMaxRow* batch, int count, const Greatest* parts, int blocks) {
  const int row = blockIdx.x * GROUPS + threadIdx.y;
  if (row >= count) return;
  Greatest greatest = {LEAST, 0};
  for (int part = threadIdx.x; part < blocks; part += UNITS) {
    const Greatest of_part = parts[(long)row * blocks + part];
    if (precedes(of_part, greatest)) greatest = of_part;
  }
  greatest = greatest_of_warp(greatest);
  if (threadIdx.x == 0) *batch[row].y = greatest.output;
}
KERNEL(arg_max_of_parts_f32)
