// One step of a recurrent cell for a batch of chains.
//
// A thread computes a unit of some rows, with a sum for each gate (products.cuh).
//
//   w   [input][hidden][gates]        r   [hidden][hidden][gates]       the gates of a unit side by side, stored as weights.cuh has it
//   b   [hidden][sums]
//
// A GRU whose reset gate comes before the product of h takes two kernels, one after the other: between them lie z and r h, [rows][2][hidden].
//
// Order of sums: the bias, then x in order of k, then h in order of k (products.cuh), whatever the batch, and whoever multiplied x.
// So a row alone has the bits that it has in a batch.
#include "recurrent.cuh"

// Blocks that a multiprocessor holds at least. It leaves a thread 64 registers; left to itself, ptxas takes 40 for some kernels, and spills. Some spill with
// 64 on one architecture or another.
constexpr int BLOCKS = 8, FEWER_BLOCKS = 7;

// Finds what the rows of a block multiply with: x, and h.
DEVICE void find_sources(const float* (&of_x)[ROWS], const float* (&of_h)[ROWS], const StepArguments& of, const Operand& h, const Part& part) {
  if (part.thread >= ROWS) return;
  const Batch batch = as_now(of.batch);
  const int row = part.first + part.thread;
  const bool is_there = part.thread < part.rows;
  of_x[part.thread] = is_there && of.projected.place == NOWHERE ? look_up(batch, of.x, of.lookup, row) : nullptr;
  of_h[part.thread] = is_there ? (const float*)locate(batch, h, row) : nullptr;
}

// The sums of a thread: biases, then the products of x, then those of h.
template <class Weights, int SUMS, int GATES, int LAST_OF_H>
DEVICE void add_x_and_h(float (&sums)[ROWS_OF_THREAD][SUMS], const StepArguments& of, const Operand& h, const Part& part) {
  SHARED(RowOfTile<Weights>, tile, [ROWS]);
  SHARED(const float*, of_x, [ROWS]);
  SHARED(const float*, of_h, [ROWS]);
  find_sources(of_x, of_h, of, h, part);
  begin_with_x<Weights, SUMS, GATES>(sums, tile, of_x, of, part);
  add_products<Weights, SUMS, GATES, LAST_OF_H>(sums, tile, of_h, of.r, of.hidden, part, of.hidden);
}

template <class Weights, class Cell> DEVICE void recurrent_step(const StepArguments& of) {
  const Part part = part_of(as_now(of.batch).count);
  float sums[ROWS_OF_THREAD][Cell::SUMS];
  add_x_and_h<Weights, Cell::SUMS, Cell::GATES, Cell::LAST_OF_H>(sums, of, of.h, part);
  write_states<Cell>(of, sums, part);
}

// z = sigmoid(s_z)   r = sigmoid(s_r), and r h
// (the first half of the ONNX operator GRU with linear_before_reset = 0). Gates and sums z, r.
template <class Weights> DEVICE void gru_gates(const StepArguments& of) {
  const Part part = part_of(as_now(of.batch).count);
  float sums[ROWS_OF_THREAD][2];
  add_x_and_h<Weights, 2, 2, 1>(sums, of, of.h, part);
  if (part.unit >= of.hidden) return;
  const Batch batch = as_now(of.batch);
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    float* gates = (float*)locate(of.batch, of.between, row);
    gates[part.unit] = sigmoid(sums[at][0]);
    gates[of.hidden + part.unit] = sigmoid(sums[at][1]) * unit_of(batch, of.h, row, part.unit);
  }
}

// n = tanh(s), whose products of h are those of r h   h' = (1 - z) n + z h
// (the second half). One gate.
template <class Weights> DEVICE void gru_state(const StepArguments& of) {
  const Part part = part_of(as_now(of.batch).count);
  float sums[ROWS_OF_THREAD][1];
  Operand reset = of.between;
  reset.base += of.hidden * sizeof(float);
  add_x_and_h<Weights, 1, 1, 0>(sums, of, reset, part);
  if (part.unit >= of.hidden) return;
  const Batch batch = as_now(of.batch);
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    const float z = unit_of(of.batch, of.between, row, part.unit), n = tanhf(sums[at][0]);
    ((float*)locate(batch, of.next_h, row))[part.unit] = fmaf(z, unit_of(batch, of.h, row, part.unit) - n, n);
  }
}

STEP(lstm_step_f32, BLOCKS, recurrent_step<F32, Lstm>)
STEP(lstm_step_bf16, BLOCKS, recurrent_step<Bf16, Lstm>)
STEP(gru_reset_after_step_f32, BLOCKS, recurrent_step<F32, GruResetAfter>)
STEP(gru_reset_after_step_bf16, BLOCKS, recurrent_step<Bf16, GruResetAfter>)
STEP(gru_gates_f32, FEWER_BLOCKS, gru_gates<F32>)
STEP(gru_gates_bf16, BLOCKS, gru_gates<Bf16>)
STEP(gru_state_f32, BLOCKS, gru_state<F32>)
STEP(gru_state_bf16, BLOCKS, gru_state<Bf16>)
STEP(rnn_tanh_step_f32, BLOCKS, recurrent_step<F32, RnnTanh>)
STEP(rnn_tanh_step_bf16, BLOCKS, recurrent_step<Bf16, RnnTanh>)
STEP(rnn_relu_step_f32, BLOCKS, recurrent_step<F32, RnnRelu>)
STEP(rnn_relu_step_bf16, BLOCKS, recurrent_step<Bf16, RnnRelu>)
