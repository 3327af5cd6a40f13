// Recurrent cells whose weights of h stay on the chip for many steps (GRNN, sections 5 and 6): in f32 here, in bfloat16 as fragments.cuh has them.
//
// A block computes WIDTH units of h, of HEIGHT rows at a time (output-based tiling): it has all gates of these units, so that it computes the states
// itself. In f32 its threads form groups of LANES threads. A group has an equal part of the block's gate rows, a gate of a unit each; its lanes divide the
// elements of h: lane l has l, l + LANES, and so on, and holds their weights in its registers, those of the last IN_SHARED elements in shared memory. After
// each step the blocks of the grid wait for one another once: h of a step lies in the other half of the slots than h before it.
//
//   r   [hidden][hidden][gates]       b   [hidden][sums]       projected   [steps][rows][hidden][gates], of project_inputs.cu
//
// Order of sums: what the products of x came to, plus the sum of h. In that, a lane adds its elements in order; then lanes are added that are LANES / 2
// apart, LANES / 4 apart, and so on. So the bits of a row follow from LANES alone, not from the batch nor from the other numbers.
#pragma once
#include "fragments.cuh"
#include "recurrent.cuh"

// `PersistentArguments` of src/kernels/persistent.rs.
struct PersistentArguments {
  Batch batch;              // at the first step
  Operand h, c;             // in the slots: the states before a step; c of an LSTM
  Operand next_h, next_c;   // in the slots: those after it
  const float* projected;
  const void* r;
  const void* r_of_state;   // of a GRU whose reset gate comes before the product: that of its last gate, [hidden][hidden]
  const float* b;
  const float* peepholes;   // [hidden][3], i, o, f, or null
  float* between;           // of the same GRU: z and r h, [rows][2][hidden]; or the blocks' sums of r, [2][rows][blocks along units][hidden]
  const float* projected_of_state;  // of the same GRU: [steps][rows][hidden]
  uint32_t* arrived;        // how often a block has come to a barrier, in all launches; wraps around
  uint32_t* failed;         // becomes STUCK if a block has waited for too long
  uint32_t arrived_before;  // `arrived` when the launch begins
  uint32_t tries_max;       // how often a block looks whether the others have come
  uint32_t inputs;          // input ports of a row, which precede its sinks
  int steps;
};

constexpr uint32_t STUCK = 2;

// Waits until so many blocks, of which this is one, have been here `times` times in this launch. False if some do not come. All threads of the block call
// it.
DEVICE bool wait_for_blocks(const PersistentArguments& of, uint32_t blocks, uint32_t times) {
  SHARED(uint32_t, is_stuck, [1]);
  // What all threads of the block have written precedes the release; what others have written follows the acquire.
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t all = of.arrived_before + blocks * times;
    red_release_gpu_add(of.arrived, 1u);
    uint32_t tries = 0, are_missing = 1;
    while (are_missing && tries++ < of.tries_max) are_missing = (int)(ld_acquire_gpu(of.arrived) - all) < 0;
    is_stuck[0] = are_missing;
    if (are_missing) atomicMax(of.failed, STUCK);
  }
  __syncthreads();
  return is_stuck[0] == 0;
}

// The same for all blocks of the grid.
DEVICE bool wait_for_grid(const PersistentArguments& of, uint32_t times) { return wait_for_blocks(of, gridDim.x * gridDim.y, times); }

DEVICE constexpr int power_of_two_from(int value) { return value <= 1 ? 1 : 2 * power_of_two_from((value + 1) / 2); }

// The weights of h of some gates of a block's units, in the registers of its threads and in shared memory.
template <int GATES, int HIDDEN, int WIDTH, int HEIGHT, int GROUPS_OF_BLOCK, int LANES, int IN_SHARED> struct Resident {
  static constexpr int GATE_ROWS = GATES * WIDTH;
  static constexpr int PART = GATE_ROWS / GROUPS_OF_BLOCK;
  static constexpr int ELEMENTS = (HIDDEN + LANES - 1) / LANES;
  static constexpr int IN_REGISTERS = ELEMENTS - IN_SHARED;
  static constexpr int OWN_WORDS = PART * IN_SHARED;
  static constexpr int THREADS_OF_BLOCK = GROUPS_OF_BLOCK * LANES;
  static constexpr int VALUES = power_of_two_from(PART * HEIGHT);
  static_assert(GATE_ROWS % GROUPS_OF_BLOCK == 0, "groups have equal parts");
  static_assert(32 % LANES == 0 && THREADS_OF_BLOCK % 32 == 0, "groups fill warps");
  static_assert(IN_REGISTERS > 0, "some weights are in registers");

  // A tile of vectors has a number in a word.
  static constexpr bool HAS_EXACT_TILE = true;
  typedef float Word;
  static constexpr int LENGTH = HIDDEN, WORDS = HIDDEN, STRIDE = HIDDEN, ROOM = HIDDEN, WEIGHT_BYTES = 4;

  float weights[PART][IN_REGISTERS];
  // Those of the last elements: words of shared memory that this thread alone uses. Words of all threads of the block lie side by side.
  float* own;

  // The unit of the block and the gate that are the `part`th of a group.
  static DEVICE_IN_STRUCT int gate_row(int part) { return threadIdx.x / LANES * PART + part; }

  // A word of a vector of so many elements.
  DEVICE_MEMBER Word word(const float* from, int at, int elements) { return at < elements ? from[at] : 0.f; }

  // Loads the weights of `stored` gates side by side, from the gate `from` on. Other weights of each thread take `own_before` words of shared memory.
  DEVICE_IN_STRUCT void load(const void* of_all, int first_unit, int own_before, int stored = GATES, int from = 0) {
    const float* r = (const float*)of_all;
    const int lane = threadIdx.x % LANES;
    if constexpr (IN_SHARED > 0) {
      DYNAMIC_SHARED(float, words);
      own = words + own_before * THREADS_OF_BLOCK + threadIdx.x;
    }
#pragma unroll
    for (int part = 0; part < PART; part++) {
      const int unit = first_unit + gate_row(part) / GATES, gate = gate_row(part) % GATES;
      const auto weight = [&](int at) {
        const int k = at * LANES + lane;
        return k < HIDDEN && unit < HIDDEN ? r[((long long)k * HIDDEN + unit) * stored + from + gate] : 0.f;
      };
#pragma unroll
      for (int at = 0; at < IN_REGISTERS; at++) weights[part][at] = weight(at);
#pragma unroll 4
      for (int at = 0; at < IN_SHARED; at++) own[(part * IN_SHARED + at) * THREADS_OF_BLOCK] = weight(IN_REGISTERS + at);
    }
  }

  // Multiplies a tile of h, and writes the sums of each gate row. All threads of the block call it.
  DEVICE_IN_STRUCT void multiply(const float (&tile)[HEIGHT][HIDDEN], float (&totals)[HEIGHT][GATE_ROWS]) const {
    const int lane = threadIdx.x % LANES;
    float sums[VALUES];
#pragma unroll
    for (int at = 0; at < VALUES; at++) sums[at] = 0.f;
    const auto add = [&](int at, const auto& weight) {
      const int k = at * LANES + lane;
      // Weights past the last element are zeros, and not added: the sum of some zeros may have another sign.
      if (HIDDEN % LANES != 0 && k >= HIDDEN) return;
#pragma unroll
      for (int part = 0; part < PART; part++) {
        const float of_part = weight(part);
#pragma unroll
        for (int row = 0; row < HEIGHT; row++) sums[row * PART + part] = fmaf(tile[row][k], of_part, sums[row * PART + part]);
      }
    };
#pragma unroll
    for (int at = 0; at < IN_REGISTERS; at++) add(at, [&](int part) { return weights[part][at]; });
#pragma unroll 2
    for (int at = 0; at < IN_SHARED; at++) add(IN_REGISTERS + at, [&](int part) { return own[(part * IN_SHARED + at) * THREADS_OF_BLOCK]; });
    const int first = add_lanes(sums, lane);
    constexpr int LEFT = VALUES < LANES ? 1 : VALUES / LANES;
    // Where there are more lanes than sums, several have the same one.
    if (VALUES < LANES && lane % (LANES / VALUES) != 0) return;
#pragma unroll
    for (int at = 0; at < LEFT; at++) {
      const int row = (first + at) / PART, part = (first + at) % PART;
      if (row < HEIGHT) totals[row][gate_row(part)] = sums[at];
    }
  }

  // Adds the products of a tile of vectors, of `elements` elements, with weights in memory, [elements][all_gate_rows]. The block has the gate rows from
  // `first_gate_row` on. All of its threads call it.
  static DEVICE_IN_STRUCT void add_products_of_memory(float (&sums)[HEIGHT][GATE_ROWS], const float (&tile)[HEIGHT][HIDDEN], const void* w, int elements,
                                                      int first_gate_row, int all_gate_rows) {
    for (int at = threadIdx.x; at < HEIGHT * GATE_ROWS; at += blockDim.x) {
      const int gate_row = first_gate_row + at % GATE_ROWS;
      if (gate_row >= all_gate_rows) continue;
      const float* weights = (const float*)w + gate_row;
      float sum = sums[at / GATE_ROWS][at % GATE_ROWS];
#pragma unroll 4
      for (int k = 0; k < elements; k++) sum = fmaf(tile[at / GATE_ROWS][k], weights[(long long)k * all_gate_rows], sum);
      sums[at / GATE_ROWS][at % GATE_ROWS] = sum;
    }
  }

  // Adds the sums of all lanes of a group. A lane has some of the totals then, from the one on whose number is returned.
  static DEVICE_IN_STRUCT int add_lanes(float (&sums)[VALUES], int lane) {
    int first = 0;
#pragma unroll
    for (int apart = LANES / 2, count = VALUES; apart > 0; apart /= 2, count = count > 1 ? count / 2 : 1) {
      const bool is_upper = (lane & apart) != 0;
      if (count > 1) {
        const int half = count / 2;
#pragma unroll
        for (int at = 0; at < half; at++) {
          const float given = is_upper ? sums[at] : sums[at + half], kept = is_upper ? sums[at + half] : sums[at];
          sums[at] = kept + __shfl_xor_sync(0xffffffffu, given, apart);
        }
        first += is_upper ? half : 0;
      } else {
        sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], apart);
      }
    }
    return first;
  }
};

// A mapping: units and rows of a block's tile, groups and their lanes, and the elements of a lane whose weights are in shared memory.
template <int OF_HIDDEN, int OF_WIDTH, int OF_HEIGHT, int GROUPS_OF_BLOCK, int LANES, int IN_SHARED = 0> struct InF32 {
  static constexpr int HIDDEN = OF_HIDDEN, WIDTH = OF_WIDTH, HEIGHT = OF_HEIGHT, THREADS_OF_BLOCK = GROUPS_OF_BLOCK * LANES;
  template <int GATES> using Weights = Resident<GATES, HIDDEN, WIDTH, HEIGHT, GROUPS_OF_BLOCK, LANES, IN_SHARED>;
};

// Fills the first words of the rows of a tile with vectors of so many elements, zeros where there is none.
template <class Weights, int HEIGHT>
DEVICE void fill_words(typename Weights::Word (&tile)[HEIGHT][Weights::STRIDE], const float* const (&of_rows)[HEIGHT], int start, int elements) {
  for (int at = threadIdx.x; at < HEIGHT * Weights::WORDS; at += blockDim.x) {
    const float* from = of_rows[at / Weights::WORDS];
    tile[at / Weights::WORDS][at % Weights::WORDS] = from ? Weights::word(from + start, at % Weights::WORDS, elements) : 0;
  }
}

// Fills a tile with an operand of rows, zeros where there is none. All threads of the block call it, and may read the tile after it.
template <class Weights, int HEIGHT>
DEVICE void fill_tile(typename Weights::Word (&tile)[HEIGHT][Weights::STRIDE], const float* (&of_rows)[HEIGHT], const Batch& batch, const Operand& of,
                      int first) {
  if (threadIdx.x < HEIGHT) {
    const int row = first + threadIdx.x;
    of_rows[threadIdx.x] = row < batch.count ? (const float*)locate(batch, of, row) : nullptr;
  }
  // Who read the tile before has done so, too.
  __syncthreads();
  fill_words<Weights>(tile, of_rows, 0, Weights::LENGTH);
  __syncthreads();
}

// A unit of h of a row, the `in_tile`th of a tile that is filled with h.
template <class Weights, class Tile>
DEVICE float unit_of_tile(const Tile& tile, int in_tile, const Batch& batch, const Operand& h, int row, int unit) {
  if constexpr (Weights::HAS_EXACT_TILE) return tile[in_tile][unit];
  return unit_of(batch, h, row, unit);
}

// Writes a unit of the states of a row to the row's sinks, if it is not padding.
DEVICE void write_to_sinks(const PersistentArguments& of, const Batch& batch, int row, int unit, float h, float c) {
  const Row* own = batch.rows + row;
  const uint32_t node = node_of(batch, row);
  if (!is_running(batch, row)) return;
  for (uint32_t at = 0; at < own->sinks; at++) {
    const Port& sink = sink_of(batch, row, of.inputs, at);
    if (is_of_last(sink) && node + 1 != own->length) continue;
    ((float*)row_of_sink(sink, node))[unit] = sink.sink / 2 == 0 ? h : c;
  }
}

// The batch at a step.
DEVICE Batch batch_at(const PersistentArguments& of, int step) {
  Batch batch = of.batch;
  batch.time += step;
  return batch;
}

// The states of a tile of rows and units after the step, from the sums of products of h, and from those of x: `sums_of_x(row, unit)`, [gates].
template <class Cell, class Mapping, class Weights, class SumsOfX>
DEVICE void finish_tile(const PersistentArguments& of, const Batch& batch, int first, int first_unit,
                        const typename Weights::Word (&tile)[Mapping::HEIGHT][Weights::STRIDE],
                        const float (&totals)[Mapping::HEIGHT][Weights::GATE_ROWS], SumsOfX sums_of_x) {
  constexpr int HIDDEN = Mapping::HIDDEN, WIDTH = Mapping::WIDTH, HEIGHT = Mapping::HEIGHT;
  for (int at = threadIdx.x; at < HEIGHT * WIDTH; at += blockDim.x) {
    const int row = first + at / WIDTH, unit = first_unit + at % WIDTH;
    if (row >= batch.count || unit >= HIDDEN) continue;
    const float* of_x = sums_of_x(row, unit);
    const float* of_h = totals[at / WIDTH] + at % WIDTH * Cell::GATES;
    float sums[Cell::SUMS];
    for (int gate = 0; gate < Cell::GATES; gate++) sums[gate] = of_x[gate];
    if (Cell::LAST_OF_H >= Cell::GATES) sums[Cell::LAST_OF_H] = of.b[unit * Cell::SUMS + Cell::LAST_OF_H];
    for (int gate = 0; gate < Cell::GATES; gate++) sums[gate == Cell::GATES - 1 ? Cell::LAST_OF_H : gate] += of_h[gate];
    float c = Cell::HAS_C ? unit_of(batch, of.c, row, unit) : 0.f;
    const float h = Cell::next(sums, unit_of_tile<Weights>(tile, at / WIDTH, batch, of.h, row, unit), c, of.peepholes, unit);
    ((float*)locate(batch, of.next_h, row))[unit] = h;
    if (Cell::HAS_C) ((float*)locate(batch, of.next_c, row))[unit] = c;
    write_to_sinks(of, batch, row, unit, h, c);
  }
}

// The steps of an LSTM, of a GRU whose reset gate comes after the product, or of an RNN: one barrier a step.
template <class Cell, class Mapping> DEVICE void run_steps(const PersistentArguments& of) {
  typedef typename Mapping::template Weights<Cell::GATES> Weights;
  constexpr int HIDDEN = Mapping::HIDDEN, WIDTH = Mapping::WIDTH, HEIGHT = Mapping::HEIGHT;
  SHARED(typename Weights::Word, tile, [HEIGHT][Weights::STRIDE]);
  SHARED(float, totals, [HEIGHT][Weights::GATE_ROWS]);
  SHARED(const float*, of_rows, [HEIGHT]);
  const int first_unit = blockIdx.x * WIDTH;
  Weights weights;
  weights.load(of.r, first_unit, 0);
  for (int step = 0; step < of.steps; step++) {
    const Batch batch = batch_at(of, step);
    for (int first = blockIdx.y * HEIGHT; first < batch.count; first += gridDim.y * HEIGHT) {
      fill_tile<Weights>(tile, of_rows, batch, of.h, first);
      weights.multiply(tile, totals);
      __syncthreads();
      const float* projected = of.projected + (long long)step * batch.count * HIDDEN * Cell::GATES;
      const auto sums_of_x = [&](int row, int unit) { return projected + ((long long)row * HIDDEN + unit) * Cell::GATES; };
      finish_tile<Cell, Mapping, Weights>(of, batch, first, first_unit, tile, totals, sums_of_x);
    }
    if (step + 1 < of.steps && !wait_for_grid(of, step + 1)) return;
  }
}

// What blocks leave to one another between the barriers of a GRU whose reset gate comes before the product: z, and r h, [hidden] each.
struct OfReset {
  Operand z, r_h;
};

template <class Mapping> DEVICE OfReset reset_of(const PersistentArguments& of) {
  constexpr uint32_t ROW_BYTES = 2 * Mapping::HIDDEN * sizeof(float);
  return {{(char*)of.between, DENSE, ROW_BYTES}, {(char*)(of.between + Mapping::HIDDEN), DENSE, ROW_BYTES}};
}

// z and r h of a tile of rows and units, from the sums of products of h, and from those of x: `sums_of_x(row, unit)`, [2].
template <class Mapping, class OfGates, class SumsOfX>
DEVICE void finish_gates(const PersistentArguments& of, const OfReset& reset, const Batch& batch, int first, int first_unit,
                         const typename OfGates::Word (&tile)[Mapping::HEIGHT][OfGates::STRIDE],
                         const float (&totals)[Mapping::HEIGHT][OfGates::GATE_ROWS], SumsOfX sums_of_x) {
  constexpr int WIDTH = Mapping::WIDTH;
  for (int at = threadIdx.x; at < Mapping::HEIGHT * WIDTH; at += blockDim.x) {
    const int row = first + at / WIDTH, unit = first_unit + at % WIDTH;
    if (row >= batch.count || unit >= Mapping::HIDDEN) continue;
    const float* of_x = sums_of_x(row, unit);
    const float* of_h = totals[at / WIDTH] + at % WIDTH * 2;
    ((float*)locate(batch, reset.z, row))[unit] = sigmoid(of_x[0] + of_h[0]);
    ((float*)locate(batch, reset.r_h, row))[unit] = sigmoid(of_x[1] + of_h[1]) * unit_of_tile<OfGates>(tile, at / WIDTH, batch, of.h, row, unit);
  }
}

// The states of a tile of rows and units after the step, from the sums of products of r h, and from those of x: `sum_of_x(row, unit)`.
template <class Mapping, class SumOfX>
DEVICE void finish_state(const PersistentArguments& of, const OfReset& reset, const Batch& batch, int first, int first_unit,
                         const float (&totals)[Mapping::HEIGHT][Mapping::WIDTH], SumOfX sum_of_x) {
  constexpr int WIDTH = Mapping::WIDTH;
  for (int at = threadIdx.x; at < Mapping::HEIGHT * WIDTH; at += blockDim.x) {
    const int row = first + at / WIDTH, unit = first_unit + at % WIDTH;
    if (row >= batch.count || unit >= Mapping::HIDDEN) continue;
    const float n = tanhf(sum_of_x(row, unit) + totals[at / WIDTH][at % WIDTH]);
    const float h = fmaf(unit_of(batch, reset.z, row, unit), unit_of(batch, of.h, row, unit) - n, n);
    ((float*)locate(batch, of.next_h, row))[unit] = h;
    write_to_sinks(of, batch, row, unit, h, 0.f);
  }
}

// The steps of a GRU whose reset gate comes before the product: two barriers a step, the first between z and r, and the state.
template <class Mapping> DEVICE void run_gru_reset_before(const PersistentArguments& of) {
  typedef typename Mapping::template Weights<2> OfGates;
  typedef typename Mapping::template Weights<1> OfState;
  constexpr int HIDDEN = Mapping::HIDDEN, WIDTH = Mapping::WIDTH, HEIGHT = Mapping::HEIGHT;
  SHARED(typename OfGates::Word, tile, [HEIGHT][OfGates::STRIDE]);
  SHARED(float, totals, [HEIGHT][OfGates::GATE_ROWS]);
  SHARED(float, totals_of_state, [HEIGHT][OfState::GATE_ROWS]);
  SHARED(const float*, of_rows, [HEIGHT]);
  const int first_unit = blockIdx.x * WIDTH;
  OfGates gates;
  OfState state;
  gates.load(of.r, first_unit, 0);
  state.load(of.r_of_state, first_unit, OfGates::OWN_WORDS);
  const OfReset reset = reset_of<Mapping>(of);
  for (int step = 0; step < of.steps; step++) {
    const Batch batch = batch_at(of, step);
    const auto place = [&](int row, int unit) { return ((long long)step * batch.count + row) * HIDDEN + unit; };
    for (int first = blockIdx.y * HEIGHT; first < batch.count; first += gridDim.y * HEIGHT) {
      fill_tile<OfGates>(tile, of_rows, batch, of.h, first);
      gates.multiply(tile, totals);
      __syncthreads();
      const auto of_x = [&](int row, int unit) { return of.projected + place(row, unit) * 2; };
      finish_gates<Mapping, OfGates>(of, reset, batch, first, first_unit, tile, totals, of_x);
    }
    if (!wait_for_grid(of, 2 * step + 1)) return;
    for (int first = blockIdx.y * HEIGHT; first < batch.count; first += gridDim.y * HEIGHT) {
      fill_tile<OfState>(tile, of_rows, batch, reset.r_h, first);
      state.multiply(tile, totals_of_state);
      __syncthreads();
      const auto of_x = [&](int row, int unit) { return of.projected_of_state[place(row, unit)]; };
      finish_state<Mapping>(of, reset, batch, first, first_unit, totals_of_state, of_x);
    }
    if (step + 1 < of.steps && !wait_for_grid(of, 2 * step + 2)) return;
  }
}

// The same GRU with one barrier a step (GRNN, section 5.1). A block multiplies its own units of h with the weights of r of all units, as soon as it has
// them; after the barrier each block adds these sums of all blocks, and has r whole. The order of the sums of r follows from WIDTH.
template <class Mapping> DEVICE void run_gru_reset_before_once(const PersistentArguments& of) {
  typedef typename Mapping::template Weights<1> OfUnits;
  static_assert(OfUnits::OWN_WORDS == 0, "all weights are in registers");
  constexpr int HIDDEN = Mapping::HIDDEN, WIDTH = Mapping::WIDTH, HEIGHT = Mapping::HEIGHT, THREADS_OF_BLOCK = Mapping::THREADS_OF_BLOCK;
  constexpr int OUTPUTS = (HIDDEN + THREADS_OF_BLOCK - 1) / THREADS_OF_BLOCK;
  SHARED(float, tile, [HEIGHT][HIDDEN]);
  SHARED(float, reset, [HEIGHT][HIDDEN]);
  SHARED(float, own, [HEIGHT][WIDTH]);
  SHARED(float, totals_of_z, [HEIGHT][OfUnits::GATE_ROWS]);
  SHARED(float, totals_of_state, [HEIGHT][OfUnits::GATE_ROWS]);
  SHARED(const float*, of_rows, [HEIGHT]);
  const int first_unit = blockIdx.x * WIDTH;
  const long long part = (long long)of.batch.count * gridDim.x * HIDDEN;
  OfUnits z, state;
  z.load(of.r, first_unit, 0, 2, 0);
  state.load(of.r_of_state, first_unit, 0);
  // Of r: the block's units of h, for each output of a thread.
  float weights[OUTPUTS][WIDTH];
#pragma unroll
  for (int at = 0; at < OUTPUTS; at++)
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
      const int output = at * THREADS_OF_BLOCK + threadIdx.x;
      const bool is_there = output < HIDDEN && first_unit + k < HIDDEN;
      weights[at][k] = is_there ? ((const float*)of.r)[((long long)(first_unit + k) * HIDDEN + output) * 2 + 1] : 0.f;
    }
  // Before step 0, and after each step but the last: the block's sums of r for the next step, and the barrier.
  for (int step = -1; step < of.steps; step++) {
    const Batch batch = batch_at(of, step < 0 ? 0 : step);
    const float* sums_of_r = of.between + (step & 1) * part;
    float* next_sums_of_r = of.between + ((step + 1) & 1) * part;
    for (int first = blockIdx.y * HEIGHT; first < batch.count; first += gridDim.y * HEIGHT) {
      fill_tile<OfUnits>(tile, of_rows, batch, of.h, first);
      if (step >= 0) {
        for (int at = threadIdx.x; at < HEIGHT * HIDDEN; at += blockDim.x) {
          const int row = first + at / HIDDEN, unit = at % HIDDEN;
          float sum = row < batch.count ? of.projected[(((long long)step * batch.count + row) * HIDDEN + unit) * 2 + 1] : 0.f;
          for (int block = 0; block < gridDim.x && row < batch.count; block++) sum += sums_of_r[((long long)row * gridDim.x + block) * HIDDEN + unit];
          reset[at / HIDDEN][unit] = sigmoid(sum) * tile[at / HIDDEN][unit];
        }
        z.multiply(tile, totals_of_z);
        __syncthreads();
        state.multiply(reset, totals_of_state);
        __syncthreads();
      }
      for (int at = threadIdx.x; at < HEIGHT * WIDTH; at += blockDim.x) {
        const int row = first + at / WIDTH, unit = first_unit + at % WIDTH;
        const bool is_there = row < batch.count && unit < HIDDEN;
        float h = is_there ? tile[at / WIDTH][unit] : 0.f;
        if (is_there && step >= 0) {
          const long long place = ((long long)step * batch.count + row) * HIDDEN + unit;
          const float n = tanhf(of.projected_of_state[place] + totals_of_state[at / WIDTH][at % WIDTH]);
          h = fmaf(sigmoid(of.projected[place * 2] + totals_of_z[at / WIDTH][at % WIDTH]), h - n, n);
          ((float*)locate(batch, of.next_h, row))[unit] = h;
          write_to_sinks(of, batch, row, unit, h, 0.f);
        }
        own[at / WIDTH][at % WIDTH] = h;
      }
      if (step + 1 == of.steps) continue;
      __syncthreads();
      for (int at = 0; at < OUTPUTS; at++) {
        const int output = at * THREADS_OF_BLOCK + threadIdx.x;
        for (int row = 0; row < HEIGHT && output < HIDDEN && first + row < batch.count; row++) {
          float sum = 0.f;
#pragma unroll
          for (int k = 0; k < WIDTH; k++) sum = fmaf(own[row][k], weights[at][k], sum);
          next_sums_of_r[((long long)(first + row) * gridDim.x + blockIdx.x) * HIDDEN + output] = sum;
        }
      }
    }
    if (step + 1 < of.steps && !wait_for_grid(of, step + 2)) return;
  }
}

// A kernel of a cell, whose blocks have so many threads.
#define PERSISTENT(NAME, THREADS_OF_BLOCK, ...)                                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 1) NAME(PersistentArguments of) { __VA_ARGS__(of); } \
  KERNEL(NAME)
