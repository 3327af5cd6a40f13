// One step of a recurrent cell for a batch of chains.
//
// A row of the batch names its input, the slot of its state, and where its output goes: nothing is gathered. A thread computes a unit of some rows,
// with a sum for each gate (products.cuh).
//
//   h   [2][slots][hidden]: a chain's state before step s lies in half s mod 2, its state after it in the other half
//   c   [slots][hidden], of an LSTM
//   w   [input][hidden][gates]        r   [hidden][hidden][gates]       the gates of a unit side by side
//   b   [hidden][sums]
//
// A GRU whose reset gate comes before the product of h takes two kernels, one after the other: between them lie its gates, [rows][2][hidden], z and r h.
//
// Order of sums: the bias, then x in order of k, then h in order of k, one fused multiply-add a term, whatever the batch. So a row alone has the
// bits that it has in a batch.
#include "products.cuh"

// A row of a batch: `StepRow` of src/recurrent.rs.
struct StepRow {
  const float* x;  // [input]
  float* y;        // [hidden], or null
  uint32_t slot;
  uint32_t step;
};

DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// i = sigmoid(s_i + p_i c)   f = sigmoid(s_f + p_f c)   c' = f c + i tanh(s_c)   o = sigmoid(s_o + p_o c')   h' = o tanh(c')
// (the ONNX operator LSTM). Gates and sums i, o, f, c; peepholes [hidden][3] i, o, f, or null.
struct Lstm {
  static constexpr int GATES = 4, SUMS = 4, LAST_OF_X = 3, LAST_OF_H = 3;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float, float* c, const float* peepholes, int unit) {
    const float before = *c;
    const float* p = peepholes ? peepholes + unit * 3 : nullptr;
    const float i = sigmoid(p ? fmaf(p[0], before, sums[0]) : sums[0]);
    const float f = sigmoid(p ? fmaf(p[2], before, sums[2]) : sums[2]);
    const float after = fmaf(f, before, i * tanhf(sums[3]));
    const float o = sigmoid(p ? fmaf(p[1], after, sums[1]) : sums[1]);
    *c = after;
    return o * tanhf(after);
  }
};

// z = sigmoid(s_z)   r = sigmoid(s_r)   n = tanh(s_x + r s_h)   h' = (1 - z) n + z h
// (the ONNX operator GRU with linear_before_reset = 1). Gates z, r, h; sums z, r, and of the last gate those of x and of h.
struct GruResetAfter {
  static constexpr int GATES = 3, SUMS = 4, LAST_OF_X = 2, LAST_OF_H = 3;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float h, float*, const float*, int) {
    const float z = sigmoid(sums[0]), r = sigmoid(sums[1]);
    const float n = tanhf(fmaf(r, sums[3], sums[2]));
    return fmaf(z, h - n, n);
  }
};

// h' = tanh(s), or the greater of s and 0 (the ONNX operator RNN).
struct RnnTanh {
  static constexpr int GATES = 1, SUMS = 1, LAST_OF_X = 0, LAST_OF_H = 0;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float, float*, const float*, int) { return tanhf(sums[0]); }
};

struct RnnRelu {
  static constexpr int GATES = 1, SUMS = 1, LAST_OF_X = 0, LAST_OF_H = 0;
  DEVICE_MEMBER float next(const float (&sums)[SUMS], float, float*, const float*, int) { return sums[0] > 0 ? sums[0] : 0; }
};

// The rows and the unit of a thread.
struct Part {
  const StepRow* batch;  // the rows of the block
  int first, rows, unit;
  float* h;
  int slots, hidden;

  // The state of a row, some steps on.
  DEVICE_MEMBER_OF_OBJECT float* state(int row, uint32_t steps) const {
    return h + ((long)((batch[row].step + steps) & 1) * slots + batch[row].slot) * hidden;
  }
};

DEVICE Part part_of(const StepRow* batch, int count, float* h, int slots, int hidden) {
  const int first = blockIdx.y * ROWS;
  return {batch + first, first, least(ROWS, count - first), (int)(blockIdx.x * UNITS + threadIdx.x), h, slots, hidden};
}

template <int SUMS> DEVICE void begin_sums(float (&sums)[ROWS_OF_THREAD][SUMS], const float* b, const Part& part) {
  for (int row = 0; row < ROWS_OF_THREAD; row++)
    for (int at = 0; at < SUMS; at++) sums[row][at] = part.unit < part.hidden ? b[part.unit * SUMS + at] : 0.f;
}

// The sums of a thread: biases, then the products of x, then those of h. The arguments of the template are those of `add_products`, for x and for h.
template <int SUMS, int GATES, int LAST_OF_X, int LAST_OF_H, class Source>
DEVICE void add_x_and_h(float (&sums)[ROWS_OF_THREAD][SUMS], float (&tile)[ROWS][CHUNK + 1], const Part& part, const float* w, const float* r,
                        const float* b, int input, Source of_h) {
  begin_sums<SUMS>(sums, b, part);
  const StepRow* batch = part.batch;
  const auto of_x = [=](int row) { return batch[row].x; };
  add_products<SUMS, GATES, LAST_OF_X>(sums, tile, of_x, part.rows, w, input, part.unit, part.hidden);
  add_products<SUMS, GATES, LAST_OF_H>(sums, tile, of_h, part.rows, r, part.hidden, part.unit, part.hidden);
}

template <class Cell>
DEVICE void recurrent_step(const StepRow* batch, int count, const float* w, const float* r, const float* b, const float* peepholes, float* h,
                           float* c, int slots, int input, int hidden) {
  SHARED(float, tile, [ROWS][CHUNK + 1]);
  const Part part = part_of(batch, count, h, slots, hidden);
  float sums[ROWS_OF_THREAD][Cell::SUMS];
  const auto state_of = [=](int row) { return (const float*)part.state(row, 0); };
  add_x_and_h<Cell::SUMS, Cell::GATES, Cell::LAST_OF_X, Cell::LAST_OF_H>(sums, tile, part, w, r, b, input, state_of);
  if (part.unit >= hidden) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = threadIdx.y * ROWS_OF_THREAD + at;
    if (row >= part.rows) return;
    const StepRow own = part.batch[row];
    float* of_c = c ? c + (long)own.slot * hidden + part.unit : nullptr;
    const float next = Cell::next(sums[at], part.state(row, 0)[part.unit], of_c, peepholes, part.unit);
    part.state(row, 1)[part.unit] = next;
    if (own.y) own.y[part.unit] = next;
  }
}

#define STEP(NAME, CELL)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(UNITS * GROUPS)                                                                   \
      NAME(const StepRow* batch, int count, const float* w, const float* r, const float* b, const float* peepholes, float* h,    \
           float* c, int slots, int input, int hidden) {                                                                         \
    recurrent_step<CELL>(batch, count, w, r, b, peepholes, h, c, slots, input, hidden);                                          \
  }                                                                                                                              \
  KERNEL(NAME)

STEP(lstm_step_f32, Lstm)
STEP(gru_reset_after_step_f32, GruResetAfter)
STEP(rnn_tanh_step_f32, RnnTanh)
STEP(rnn_relu_step_f32, RnnRelu)

// z = sigmoid(s_z)   r = sigmoid(s_r), and r h
// (the first half of the ONNX operator GRU with linear_before_reset = 0). Gates and sums z, r.
extern "C" __global__ void __launch_bounds__(UNITS * GROUPS)
    gru_gates_f32(const StepRow* batch, int count, const float* w, const float* r, const float* b, const float*, float* h, float* gates,
                  int slots, int input, int hidden) {
  SHARED(float, tile, [ROWS][CHUNK + 1]);
  const Part part = part_of(batch, count, h, slots, hidden);
  float sums[ROWS_OF_THREAD][2];
  const auto state_of = [=](int row) { return (const float*)part.state(row, 0); };
  add_x_and_h<2, 2, 1, 1>(sums, tile, part, w, r, b, input, state_of);
  if (part.unit >= hidden) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = threadIdx.y * ROWS_OF_THREAD + at;
    if (row >= part.rows) return;
    float* of_row = gates + (long)(part.first + row) * 2 * hidden;
    of_row[part.unit] = sigmoid(sums[at][0]);
    of_row[hidden + part.unit] = sigmoid(sums[at][1]) * part.state(row, 0)[part.unit];
  }
}
KERNEL(gru_gates_f32)

// n = tanh(s), whose products of h are those of r h   h' = (1 - z) n + z h
// (the second half). One gate.
extern "C" __global__ void __launch_bounds__(UNITS * GROUPS)
    gru_state_f32(const StepRow* batch, int count, const float* w, const float* r, const float* b, const float*, float* h, float* gates,
                  int slots, int input, int hidden) {
  SHARED(float, tile, [ROWS][CHUNK + 1]);
  const Part part = part_of(batch, count, h, slots, hidden);
  float sums[ROWS_OF_THREAD][1];
  const auto reset_of = [=](int row) { return (const float*)gates + ((long)(part.first + row) * 2 + 1) * hidden; };
  add_x_and_h<1, 1, 0, 0>(sums, tile, part, w, r, b, input, reset_of);
  if (part.unit >= hidden) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = threadIdx.y * ROWS_OF_THREAD + at;
    if (row >= part.rows) return;
    const StepRow own = part.batch[row];
    const float z = gates[(long)(part.first + row) * 2 * hidden + part.unit], n = tanhf(sums[at][0]);
    const float next = fmaf(z, part.state(row, 0)[part.unit] - n, n);
    part.state(row, 1)[part.unit] = next;
    if (own.y) own.y[part.unit] = next;
  }
}
KERNEL(gru_state_f32)
