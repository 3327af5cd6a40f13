// One step of an LSTM whose weights are bytes (the operator DynamicQuantizeLSTM of ONNX Runtime) for a batch of chains, in two kernels.
//
// The first finds whole numbers that stand for h, and for x where W is bytes too. Between the kernels lie those of h, then those of x: for each row
// what 1 stands for, a float, then the numbers, integers of 32 bits.
//
//   w   [input][hidden][gates] as weights.cuh has it, or [input - 1][hidden][gates] of whole numbers      r   [hidden][hidden][gates] of whole numbers
//   b   [hidden][gates]
//
// Order of sums: the bias, then x, then h, whatever the batch. A sum of products of whole numbers is exact; what it stands for is one term.
#include "recurrent.cuh"

constexpr float BYTE_MAX = 255.f;

// The least of the threads of a warp, in all of them.
DEVICE float least_of_warp(float own) {
  for (int by = 16; by > 0; by >>= 1) own = fminf(own, __shfl_xor_sync(0xffffffffu, own, by));
  return own;
}

// What 1 stands for in a row; no number where some element of the row has no whole number. A warp calls it.
DEVICE float scale_or_none(float scale, bool has_none) { return __any_sync(0xffffffffu, has_none) ? __uint_as_float(0x7fffffffu) : scale; }

// The whole numbers of h as the ONNX operator DynamicQuantizeLinear finds bytes, less the byte of 0. A warp calls it.
DEVICE void write_whole_h(float* to, const float* h, int hidden) {
  float lowest = 0.f, negated_highest = 0.f;
  bool has_infinite = false;
  for (int at = threadIdx.x; at < hidden; at += UNITS) {
    const float x = h ? h[at] : 0.f;
    lowest = fminf(lowest, x);
    negated_highest = fminf(negated_highest, -x);
    has_infinite |= !(x - x == 0.f);
  }
  lowest = least_of_warp(lowest);
  const float highest = -least_of_warp(negated_highest);
  const float scale = highest > lowest ? (highest - lowest) / BYTE_MAX : 1.f;
  const float zero = fminf(fmaxf(rintf(-lowest / scale), 0.f), BYTE_MAX);
  const float written = scale_or_none(scale, has_infinite);
  if (threadIdx.x == 0) to[0] = written;
  for (int at = threadIdx.x; at < hidden; at += UNITS) {
    const float x = h ? h[at] : 0.f;
    ((int*)to)[1 + at] = (int)(fminf(fmaxf(rintf(x / scale) + zero, 0.f), BYTE_MAX) - zero);
  }
}

// The whole numbers that x is, from -255 to 255 and at most 255 apart; its last element is what 1 stands for. A warp calls it.
DEVICE void write_whole_x(float* to, const float* x, int input) {
  float lowest = 0.f;
  bool has_none = false;
  for (int at = threadIdx.x; at < input - 1; at += UNITS) {
    const float element = x ? x[at] : 0.f;
    lowest = fminf(lowest, element);
    has_none |= element != element;
  }
  lowest = rintf(fmaxf(least_of_warp(lowest), -BYTE_MAX));
  const float written = scale_or_none(x ? x[input - 1] : 0.f, has_none);
  if (threadIdx.x == 0) to[0] = written;
  for (int at = threadIdx.x; at < input - 1; at += UNITS) {
    const float element = x ? x[at] : 0.f;
    ((int*)to)[1 + at] = (int)fminf(fmaxf(rintf(element), lowest), lowest + BYTE_MAX);
  }
}

// The part of what lies between the kernels that is of x.
DEVICE Operand between_of_x(const StepArguments& of) {
  Operand of_x = of.between;
  of_x.base += (1 + of.hidden) * sizeof(float);
  return of_x;
}

// A warp a row.
extern "C" __global__ void __launch_bounds__(UNITS * GROUPS) lstm_whole_numbers(StepArguments of) {
  of.batch = as_now(of.batch);
  const int row = blockIdx.x * GROUPS + threadIdx.y;
  if (row >= of.batch.count) return;
  write_whole_h((float*)locate(of.batch, of.between, row), (const float*)locate(of.batch, of.h, row), of.hidden);
  if (of.w_scale) write_whole_x((float*)locate(of.batch, between_of_x(of), row), look_up(of.batch, of.x, of.lookup, row), of.input);
}
KERNEL(lstm_whole_numbers)

// Adds to the sums of a thread what the sums of products of whole numbers stand for. All threads of the block call it.
DEVICE void add_whole(float (&sums)[ROWS_OF_THREAD][Lstm::SUMS], const Batch& batch, const Operand& rows, const void* w, const float* scales, int length,
                      const Part& part, int units) {
  SHARED(RowOfTile<Whole>, whole_tile, [ROWS]);
  SHARED(const int*, numbers, [ROWS]);
  if (part.thread < ROWS) numbers[part.thread] = part.thread < part.rows ? (const int*)locate(batch, rows, part.first + part.thread) + 1 : nullptr;
  int products[ROWS_OF_THREAD][Lstm::SUMS] = {};
  add_products<Whole, Lstm::SUMS, Lstm::GATES, Lstm::LAST_OF_H>(products, whole_tile, numbers, w, length, part, units);
  if (part.unit >= units) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    const float scale = *(const float*)locate(batch, rows, row);
    for (int gate = 0; gate < Lstm::SUMS; gate++) {
      float& sum = sums[at][gate];
      sum = fmaf((float)products[at][gate], scales[part.unit * Lstm::GATES + gate] * scale, sum);
    }
  }
}

// Begins the sums of a thread with biases and products of x, with a W that is floats or whole numbers.
template <class Weights> DEVICE void begin_with_x_of(Weights, float (&sums)[ROWS_OF_THREAD][Lstm::SUMS], const StepArguments& of, const Part& part) {
  SHARED(RowOfTile<Weights>, tile, [ROWS]);
  SHARED(const float*, of_x, [ROWS]);
  if (part.thread < ROWS) {
    const bool is_there = part.thread < part.rows && of.projected.place == NOWHERE;
    of_x[part.thread] = is_there ? look_up(as_now(of.batch), of.x, of.lookup, part.first + part.thread) : nullptr;
  }
  begin_with_x<Weights, Lstm::SUMS, Lstm::GATES>(sums, tile, of_x, of, part);
}

DEVICE void begin_with_x_of(Whole, float (&sums)[ROWS_OF_THREAD][Lstm::SUMS], const StepArguments& of, const Part& part) {
  begin_sums<Lstm::SUMS>(sums, of.b, part.unit, of.hidden);
  add_whole(sums, of.batch, between_of_x(of), of.w, of.w_scale, of.input - 1, part, of.hidden);
}

template <class OfX> DEVICE void lstm_of_bytes_step(const StepArguments& of) {
  const Part part = part_of(as_now(of.batch).count);
  float sums[ROWS_OF_THREAD][Lstm::SUMS];
  begin_with_x_of(OfX(), sums, of, part);
  add_whole(sums, of.batch, of.between, of.r, of.r_scale, of.hidden, part, of.hidden);
  write_states<Lstm>(of, sums, part);
}

// Blocks that a multiprocessor holds at least. It leaves a thread 80 registers: it has twice as many sums as in recurrent_step.cu.
constexpr int BLOCKS_OF_BYTES = 6;

STEP(lstm_of_bytes_step_f32, BLOCKS_OF_BYTES, lstm_of_bytes_step<F32>)
STEP(lstm_of_bytes_step_bf16, BLOCKS_OF_BYTES, lstm_of_bytes_step<Bf16>)
STEP(lstm_of_bytes_step_whole, BLOCKS_OF_BYTES, lstm_of_bytes_step<Whole>)
