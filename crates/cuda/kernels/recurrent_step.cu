// One step of a recurrent cell for a batch of chains.
//
// A thread computes a unit of some rows, with a sum for each gate (products.cuh).
//
//   w   [input][hidden][gates]        r   [hidden][hidden][gates]       the gates of a unit side by side
//   b   [hidden][sums]
//
// A GRU whose reset gate comes before the product of h takes two kernels, one after the other: between them lie its gates, [rows][2][hidden], z and r h.
//
// Order of sums: the bias, then x in order of k, then h in order of k, one fused multiply-add a term, whatever the batch. So a row alone has the
// bits that it has in a batch.
#include "products.cuh"

// Blocks that a multiprocessor holds at least. It leaves a thread 64 registers; left to itself, ptxas takes 40 for some kernels, and spills.
constexpr int BLOCKS = 8;

// `StepArguments` of src/recurrent.rs.
struct StepArguments {
  Batch batch;
  Operand x, h, c;         // [input], [hidden], [hidden]; c of an LSTM
  Operand next_h, next_c;  // [hidden]
  Operand gates;           // [2][hidden], of a GRU that takes two kernels
  Lookup lookup;           // of x
  const void* w;
  const void* r;
  const float* b;
  const float* peepholes;  // [hidden][3], i, o, f, or null
  int input, hidden;
};

// i = sigmoid(s_i + p_i c)   f = sigmoid(s_f + p_f c)   c' = f c + i tanh(s_c)   o = sigmoid(s_o + p_o c')   h' = o tanh(c')
// (the ONNX operator LSTM). Gates and sums i, o, f, c.
struct Lstm {
  static constexpr int GATES = 4, SUMS = 4, LAST_OF_X = 3, LAST_OF_H = 3;
  static constexpr bool HAS_C = true;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float, float& c, const float* peepholes, int unit) {
    const float before = c;
    const float* p = peepholes ? peepholes + unit * 3 : nullptr;
    const float i = sigmoid(p ? fmaf(p[0], before, sums[0]) : sums[0]);
    const float f = sigmoid(p ? fmaf(p[2], before, sums[2]) : sums[2]);
    c = fmaf(f, before, i * tanhf(sums[3]));
    const float o = sigmoid(p ? fmaf(p[1], c, sums[1]) : sums[1]);
    return o * tanhf(c);
  }
};

// z = sigmoid(s_z)   r = sigmoid(s_r)   n = tanh(s_x + r s_h)   h' = (1 - z) n + z h
// (the ONNX operator GRU with linear_before_reset = 1). Gates z, r, h; sums z, r, and of the last gate those of x and of h.
struct GruResetAfter {
  static constexpr int GATES = 3, SUMS = 4, LAST_OF_X = 2, LAST_OF_H = 3;
  static constexpr bool HAS_C = false;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float h, float&, const float*, int) {
    const float z = sigmoid(sums[0]), r = sigmoid(sums[1]);
    const float n = tanhf(fmaf(r, sums[3], sums[2]));
    return fmaf(z, h - n, n);
  }
};

// h' = tanh(s), or the greater of s and 0 (the ONNX operator RNN).
struct RnnTanh {
  static constexpr int GATES = 1, SUMS = 1, LAST_OF_X = 0, LAST_OF_H = 0;
  static constexpr bool HAS_C = false;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float, float&, const float*, int) { return tanhf(sums[0]); }
};

struct RnnRelu {
  static constexpr int GATES = 1, SUMS = 1, LAST_OF_X = 0, LAST_OF_H = 0;
  static constexpr bool HAS_C = false;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float, float&, const float*, int) { return sums[0] > 0 ? sums[0] : 0; }
};

// Finds what the rows of a block multiply with: x, and h.
DEVICE void find_sources(const float* (&of_x)[ROWS], const float* (&of_h)[ROWS], const StepArguments& of, const Operand& h, const Part& part) {
  if (part.thread >= ROWS) return;
  const int row = part.first + part.thread;
  const bool is_there = part.thread < part.rows;
  of_x[part.thread] = is_there ? look_up(of.batch, of.x, of.lookup, row) : nullptr;
  of_h[part.thread] = is_there ? (const float*)locate(of.batch, h, row) : nullptr;
}

// The sums of a thread: biases, then the products of x, then those of h.
template <class Weights, int SUMS, int GATES, int LAST_OF_X, int LAST_OF_H>
DEVICE void add_x_and_h(float (&sums)[ROWS_OF_THREAD][SUMS], const StepArguments& of, const Operand& h, const Part& part) {
  SHARED(float, tile, [ROWS][CHUNK + 1]);
  SHARED(const float*, of_x, [ROWS]);
  SHARED(const float*, of_h, [ROWS]);
  find_sources(of_x, of_h, of, h, part);
  begin_sums<SUMS>(sums, of.b, part.unit, of.hidden);
  add_products<Weights, SUMS, GATES, LAST_OF_X>(sums, tile, of_x, of.w, of.input, part, of.hidden);
  add_products<Weights, SUMS, GATES, LAST_OF_H>(sums, tile, of_h, of.r, of.hidden, part, of.hidden);
}

// A unit of an operand of a row; zero if it is nowhere.
DEVICE float unit_of(const Batch& batch, const Operand& of, int row, int unit) {
  const float* at = (const float*)locate(batch, of, row);
  return at ? at[unit] : 0.f;
}

template <class Weights, class Cell> DEVICE void recurrent_step(const StepArguments& of) {
  const Part part = part_of(of.batch);
  float sums[ROWS_OF_THREAD][Cell::SUMS];
  add_x_and_h<Weights, Cell::SUMS, Cell::GATES, Cell::LAST_OF_X, Cell::LAST_OF_H>(sums, of, of.h, part);
  if (part.unit >= of.hidden) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    float c = Cell::HAS_C ? unit_of(of.batch, of.c, row, part.unit) : 0.f;
    const float h = Cell::next(sums[at], unit_of(of.batch, of.h, row, part.unit), c, of.peepholes, part.unit);
    ((float*)locate(of.batch, of.next_h, row))[part.unit] = h;
    if (Cell::HAS_C) ((float*)locate(of.batch, of.next_c, row))[part.unit] = c;
  }
}

// z = sigmoid(s_z)   r = sigmoid(s_r), and r h
// (the first half of the ONNX operator GRU with linear_before_reset = 0). Gates and sums z, r.
template <class Weights> DEVICE void gru_gates(const StepArguments& of) {
  const Part part = part_of(of.batch);
  float sums[ROWS_OF_THREAD][2];
  add_x_and_h<Weights, 2, 2, 1, 1>(sums, of, of.h, part);
  if (part.unit >= of.hidden) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    float* gates = (float*)locate(of.batch, of.gates, row);
    gates[part.unit] = sigmoid(sums[at][0]);
    gates[of.hidden + part.unit] = sigmoid(sums[at][1]) * unit_of(of.batch, of.h, row, part.unit);
  }
}

// n = tanh(s), whose products of h are those of r h   h' = (1 - z) n + z h
// (the second half). One gate.
template <class Weights> DEVICE void gru_state(const StepArguments& of) {
  const Part part = part_of(of.batch);
  float sums[ROWS_OF_THREAD][1];
  Operand reset = of.gates;
  reset.base += of.hidden * sizeof(float);
  add_x_and_h<Weights, 1, 1, 0, 0>(sums, of, reset, part);
  if (part.unit >= of.hidden) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    const float z = unit_of(of.batch, of.gates, row, part.unit), n = tanhf(sums[at][0]);
    ((float*)locate(of.batch, of.next_h, row))[part.unit] = fmaf(z, unit_of(of.batch, of.h, row, part.unit) - n, n);
  }
}

#define STEP(NAME, ...)                                                                                                \
  extern "C" __global__ void __launch_bounds__(UNITS * GROUPS, BLOCKS) NAME(StepArguments of) { __VA_ARGS__(of); } \
  KERNEL(NAME)

STEP(lstm_step_f32, recurrent_step<F32, Lstm>)
STEP(lstm_step_bf16, recurrent_step<Bf16, Lstm>)
STEP(gru_reset_after_step_f32, recurrent_step<F32, GruResetAfter>)
STEP(gru_reset_after_step_bf16, recurrent_step<Bf16, GruResetAfter>)
STEP(gru_gates_f32, gru_gates<F32>)
STEP(gru_gates_bf16, gru_gates<Bf16>)
STEP(gru_state_f32, gru_state<F32>)
STEP(gru_state_bf16, gru_state<Bf16>)
STEP(rnn_tanh_step_f32, recurrent_step<F32, RnnTanh>)
STEP(rnn_tanh_step_bf16, recurrent_step<Bf16, RnnTanh>)
STEP(rnn_relu_step_f32, recurrent_step<F32, RnnRelu>)
STEP(rnn_relu_step_bf16, recurrent_step<Bf16, RnnRelu>)
