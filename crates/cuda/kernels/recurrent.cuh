// What the kernels of recurrent cells share: their argument, the products of x, the equations of cells, the states after a step.
#pragma once
#include "products.cuh"

// `StepArguments` of src/kernels/recurrent.rs.
struct StepArguments {
  Batch batch;
  Operand x, h, c;         // [input], [hidden], [hidden]; c of an LSTM
  Operand next_h, next_c;  // [hidden]
  Operand between;         // what the first kernel leaves to the next one, where a step takes two
  Operand projected;       // [hidden][gates], the sums after x that project_inputs.cu left, or nowhere
  Lookup lookup;           // of x
  const void* w;
  const void* r;
  const float* b;
  const float* peepholes;  // [hidden][3], i, o, f, or null
  const float* w_scale;    // [hidden][gates], of an LSTM whose W is bytes, else null
  const float* r_scale;    // [hidden][gates], of an LSTM of bytes
  int input, hidden;
};

// i = sigmoid(s_i + p_i c)   f = sigmoid(s_f + p_f c)   c' = f c + i tanh(s_c)   o = sigmoid(s_o + p_o c')   h' = o tanh(c')
// (the ONNX operator LSTM). Gates and sums i, o, f, c.
struct Lstm {
  static constexpr int GATES = 4, SUMS = 4, LAST_OF_H = 3;
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
  static constexpr int GATES = 3, SUMS = 4, LAST_OF_H = 3;
  static constexpr bool HAS_C = false;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float h, float&, const float*, int) {
    const float z = sigmoid(sums[0]), r = sigmoid(sums[1]);
    const float n = tanhf(fmaf(r, sums[3], sums[2]));
    return fmaf(z, h - n, n);
  }
};

// h' = tanh(s), or the greater of s and 0 (the ONNX operator RNN).
struct RnnTanh {
  static constexpr int GATES = 1, SUMS = 1, LAST_OF_H = 0;
  static constexpr bool HAS_C = false;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float, float&, const float*, int) { return tanhf(sums[0]); }
};

struct RnnRelu {
  static constexpr int GATES = 1, SUMS = 1, LAST_OF_H = 0;
  static constexpr bool HAS_C = false;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float, float&, const float*, int) { return sums[0] > 0 ? sums[0] : 0; }
};

// Begins the sums of a thread with those that project_inputs.cu left; sums of h alone begin with their biases.
template <int SUMS, int GATES> DEVICE void begin_with_projected(float (&sums)[ROWS_OF_THREAD][SUMS], const StepArguments& of, const Part& part) {
  begin_sums<SUMS>(sums, of.b, part.unit, of.hidden);
  if (part.unit >= of.hidden) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    const float* projected = (const float*)locate(of.batch, of.projected, row) + part.unit * GATES;
    for (int gate = 0; gate < GATES; gate++) sums[at][gate] = projected[gate];
  }
}

// Begins the sums of a thread with biases and products of x, whose rows `of_x` names. All threads of the block call it.
template <class Weights, int SUMS, int GATES>
DEVICE void begin_with_x(float (&sums)[ROWS_OF_THREAD][SUMS], Tile<Weights>& tile, const float* const (&of_x)[ROWS], const StepArguments& of,
                         const Part& part) {
  if (of.projected.place != NOWHERE) return begin_with_projected<SUMS, GATES>(sums, of, part);
  begin_sums<SUMS>(sums, of.b, part.unit, of.hidden);
  add_products<Weights, SUMS, GATES, GATES - 1>(sums, tile, of_x, of.w, of.input, part, of.hidden);
}

// A unit of an operand of a row; zero if it is nowhere.
DEVICE float unit_of(const Batch& batch, const Operand& of, int row, int unit) {
  const float* at = (const float*)locate(batch, of, row);
  return at ? at[unit] : 0.f;
}

// Computes the states of a thread's rows from its sums, and writes them.
template <class Cell> DEVICE void write_states(const StepArguments& of, const float (&sums)[ROWS_OF_THREAD][Cell::SUMS], const Part& part) {
  if (part.unit >= of.hidden) return;
  const Batch batch = as_now(of.batch);
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    float c = Cell::HAS_C ? unit_of(batch, of.c, row, part.unit) : 0.f;
    const float h = Cell::next(sums[at], unit_of(batch, of.h, row, part.unit), c, of.peepholes, part.unit);
    ((float*)locate(batch, of.next_h, row))[part.unit] = h;
    if (Cell::HAS_C) ((float*)locate(batch, of.next_c, row))[part.unit] = c;
  }
}

// A kernel of which a multiprocessor holds so many blocks at least.
#define STEP(NAME, BLOCKS, ...)                                                                        \
  extern "C" __global__ void __launch_bounds__(UNITS * GROUPS, BLOCKS) NAME(StepArguments of) {        \
    if (has_rows(of.batch)) __VA_ARGS__(of);                                                           \
  }                                                                                                    \
  KERNEL(NAME)
