// Recurrent cells whose weights of h stay on the chip while the batch changes: one launch runs task after task of a roster, as the
// host brings them.
//
// The host writes tasks to a ring in its memory. The last block of the grid is a courier: while the others run steps, it brings the next task to the GPU's
// memory, with what the task's copies read of the host's. Block 0 looks there and tells the others of a task at a barrier, so that all run the same tasks:
// at the barrier of a task's last step, if the next task is there by then; else at one more. Before its steps, a task changes rows and ports of the roster
// in the GPU's memory. After them the launch tells the host that it is done. It ends when the host says so, when there is no task for a while, or when the
// steps of a quantum are over; it tells the host which task it did not run.
//
//   w   [input][hidden][gates]; others as in persistent.cuh
//
// Order of sums: as in persistent.cuh and fragments.cuh after project_inputs.cu. So the bits are those of a launch for each task.
#pragma once
#include "copies.cuh"
#include "persistent.cuh"
#include "signal.cuh"

// A task: `Task` of src/kernels/quantum.rs.
struct Task {
  const Copy* copies;  // what changes: copies from memory of the host and zeros, then copies within the GPU
  uint32_t from_host, within;
  int count;      // rows of the roster
  uint32_t time;  // at the first step
  int steps;      // 0: the launch ends
  uint32_t padding;
  uint64_t number;  // its own, once the rest is there
};

// Counts and a flag of a launch, which are zeros when it begins, unless the launch before is stuck: that one has cleared them.
struct QuantumWords {
  uint32_t arrived;  // how often a block has come to a barrier
  uint32_t is_over;  // not 0 once the courier is to leave
  uint32_t begun;    // the tasks that the courier has seen
  uint32_t brought;  // the tasks that it has brought
  uint32_t taken;    // the tasks whose copies are made
  uint32_t padding;
};

// The count of a task that the courier has not brought, although it was there.
constexpr int NEVER_CAME = -1;

// How long the courier waits between two looks.
constexpr uint32_t LOOK_AGAIN_NS = 200;

// The most bytes of a copy whose source the courier brings.
constexpr uint32_t BROUGHT_BYTES = 4096;

// `QuantumArguments` of src/kernels/quantum.rs.
struct QuantumArguments {
  PersistentArguments of;  // without a count and a time of the batch, sums of products of x, and steps
  Operand x;               // [input]
  Lookup lookup;           // of x
  const void* w;
  const void* w_of_state;  // of a GRU whose reset gate comes before the product: those of its last gate, [input][hidden]
  const float* b_of_state;
  const Task* ring;        // [ring_tasks], in memory of the host; task n is in place n mod ring_tasks
  QuantumWords* words;
  QuantumWords* next_words;  // of the launch after this one
  Task* brought;           // [2]: of the courier, the tasks of a launch in turn
  Copy* brought_copies;    // [2][brought_max]
  char* brought_bytes;     // [2][brought_max][BROUGHT_BYTES]
  Task* announced;         // [2][2]: of even tasks and odd ones, at the barrier of a step and at one more
  uint64_t* done;          // in memory of the host: the number of the last task that is done
  Status* statuses;        // [ring_tasks], in memory of the host, by numbers
  uint32_t* failed;        // [2]: of even tasks and odd ones, 1 where an id is not one of the table
  const uint32_t* end_count;
  uint64_t* next;          // in memory of the host: once a launch ends, the number of the first task that it leaves, or IS_STUCK
  uint64_t until;          // 0, or of a launch that runs what the one before has left: the number of the last task, without steps, if it is known
  Task first;              // the first task; of a launch that runs what the one before has left, only the number that it begins with at the earliest
  uint32_t ring_tasks;
  uint32_t looks_max;      // how often block 0 looks for a task after the first before the launch ends
  int steps_max;           // of all tasks, but for a first one that has more
  uint32_t brought_max;    // copies of a task: of one with more, the sources stay where they are
  int input;
  uint32_t padding;
};

// What `next` becomes if blocks wait for one another in vain.
constexpr uint64_t IS_STUCK = ~0ull;

// Ends the launch: the host learns which task is left. Behind a launch that is stuck, no other one runs a task. One thread calls it.
DEVICE void end_launch(const QuantumArguments& of, uint64_t next) {
  if (next == IS_STUCK) red_release_gpu_add(&of.next_words->is_over, 1u);
  red_release_gpu_add(&of.words->is_over, 1u);
  st_release_sys(of.next, next);
}

// Waits until all blocks but the courier have been here so often. False, and the host is told, if some do not come. All threads of the block call it.
DEVICE bool meet(const QuantumArguments& of, uint32_t times) {
  if (wait_for_blocks(of.of, gridDim.x - 1, times)) return true;
  if (threadIdx.x == 0) end_launch(of, IS_STUCK);
  return false;
}

// The number of the first task of the launch. All threads of the block call it.
DEVICE uint64_t first_task(const QuantumArguments& of) {
  if (of.until == 0) return of.first.number;
  SHARED(uint64_t, left, [1]);
  if (threadIdx.x == 0) left[0] = ld_acquire_sys(of.next);
  __syncthreads();
  return left[0] > of.first.number ? left[0] : of.first.number;
}

// Waits for the task that is the `at`th of the launch, and for its place: those of the last two tasks are in use. False if the launch ends.
DEVICE bool courier_waits(const QuantumArguments& of, uint64_t number, uint32_t at) {
  const uint64_t* there = &of.ring[number % of.ring_tasks].number;
  for (uint32_t tries = 0; tries < of.of.tries_max; tries++) {
    if (ld_acquire_gpu(&of.words->is_over)) return false;
    const bool has_place = at < 2 || (int)(ld_acquire_gpu(&of.words->taken) + 1 - at) >= 0;
    if (has_place && ld_acquire_sys(there) == number) return true;
    __nanosleep(LOOK_AGAIN_NS);
  }
  return false;
}

// The courier: brings task after task, and what their copies read of the host's memory. All threads of the block call it.
DEVICE void bring_tasks(const QuantumArguments& of, uint64_t first) {
  SHARED(Task, shared, [1]);
  SHARED(uint32_t, goes_on, [1]);
  const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (uint32_t at = 0;; at++) {
    const uint64_t number = first + at;
    if (threadIdx.x == 0) {
      const bool is_known = at == 0 && of.until == 0;
      goes_on[0] = is_known || courier_waits(of, number, at);
      if (goes_on[0]) {
        red_release_gpu_add(&of.words->begun, 1u);
        shared[0] = is_known ? of.first : of.ring[number % of.ring_tasks];
      }
    }
    __syncthreads();
    if (!goes_on[0]) return;
    Task task = shared[0];
    const uint32_t count = task.from_host + task.within, place = at & 1;
    const bool has_room = count <= of.brought_max;
    Copy* copies = of.brought_copies + place * of.brought_max;
    char* bytes = of.brought_bytes + (uint64_t)place * of.brought_max * BROUGHT_BYTES;
    for (uint32_t index = warp; has_room && index < count; index += warps) {
      Copy copy = task.copies[index];
      if (index < task.from_host && copy.from && copy.bytes <= BROUGHT_BYTES) {
        char* to = bytes + (uint64_t)index * BROUGHT_BYTES;
        copy_bytes_by(lane, 32, to, copy.from, (uint32_t)copy.bytes);
        copy.from = to;
      }
      if (lane == 0) copies[index] = copy;
    }
    // All threads of the block have brought their parts, and have read the task.
    __syncthreads();
    if (threadIdx.x == 0) {
      if (has_room) task.copies = copies;
      of.brought[place] = task;
      red_release_gpu_add(&of.words->brought, 1u);
    }
    if (task.steps == 0) return;
  }
}

// Tells the other blocks of a task, the `at`th of the launch, once it is there. False if it is not.
DEVICE bool announce(const QuantumArguments& of, uint64_t number, uint32_t at, bool is_late, int steps) {
  if (ld_acquire_gpu(&of.words->brought) <= at) return false;
  Task* task = of.announced + (number & 1) * 2 + is_late;
  *task = of.brought[at & 1];
  // A quantum has an end: other cells wait for theirs.
  if (steps > 0 && steps + task->steps > of.steps_max) task->steps = 0;
  return true;
}

// Waits for a task, and tells the other blocks of it, or of the launch's end. The first task is there, and on its way.
DEVICE void wait_for_task(const QuantumArguments& of, uint64_t number, uint32_t at, int steps) {
  const uint32_t looks_max = at == 0 ? of.of.tries_max : of.looks_max;
  uint32_t looks = 0;
  const bool is_over = at == 0 && ld_acquire_gpu(&of.words->is_over);
  for (uint32_t tries = 0; !is_over && looks < looks_max && tries < of.of.tries_max; tries++) {
    if (announce(of, number, at, true, steps)) return;
    // A task that is on its way is waited for.
    looks += ld_acquire_gpu(&of.words->begun) <= at;
  }
  Task* task = of.announced + (number & 1) * 2 + 1;
  task->steps = 0;
  task->count = looks < of.looks_max || at == 0 ? NEVER_CAME : 0;
  task->number = number;
}

// Makes a task's copies: blocks take turns. All threads of the grid but the courier's call it.
DEVICE void make_copies(const Copy* copies, uint32_t count) {
  for (uint32_t at = blockIdx.x; at < count; at += gridDim.x - 1) {
    const Copy copy = copies[at];
    copy_bytes(copy.to, copy.from, (uint32_t)copy.bytes, blockDim.x);
  }
}

// The sums of products of x of a tile of rows and units, in the order that project_inputs.cu has. All threads of the block call it, and may read the sums
// once all have left it; the tile has x then.
template <int GATES, int SUMS, class Mapping, class Weights>
DEVICE void multiply_x(const QuantumArguments& of, const void* of_all, const float* b, const Lookup& lookup, const Batch& batch, int first, int first_unit,
                       typename Weights::Word (&tile)[Mapping::HEIGHT][Weights::STRIDE], const float* (&of_rows)[Mapping::HEIGHT],
                       float (&sums)[Mapping::HEIGHT][Weights::GATE_ROWS]) {
  constexpr int HIDDEN = Mapping::HIDDEN, HEIGHT = Mapping::HEIGHT, GATE_ROWS = Weights::GATE_ROWS, ROOM = Weights::ROOM;
  if (threadIdx.x < HEIGHT) {
    const int row = first + threadIdx.x;
    of_rows[threadIdx.x] = row < batch.count ? look_up(batch, of.x, lookup, row) : nullptr;
  }
  for (int at = threadIdx.x; at < HEIGHT * GATE_ROWS; at += blockDim.x) {
    const int unit = first_unit + at % GATE_ROWS / GATES, gate = at % GATES;
    sums[at / GATE_ROWS][at % GATE_ROWS] = unit < HIDDEN ? b[unit * SUMS + gate] : 0.f;
  }
  // A tile has room for a part of x at a time.
  for (int start = 0; start < of.input; start += ROOM) {
    const int elements = least(ROOM, of.input - start);
    __syncthreads();
    fill_words<Weights>(tile, of_rows, start, elements);
    __syncthreads();
    const char* w = (const char*)of_all + (long long)start * HIDDEN * GATES * Weights::WEIGHT_BYTES;
    Weights::add_products_of_memory(sums, tile, w, elements, first_unit * GATES, HIDDEN * GATES);
  }
}

// The units and the tiles of rows of a block.
struct Share {
  int first_unit;
  int first_tile, tiles;  // it has every `tiles`th tile from the first one on
};

// Steps of a cell with one barrier a step.
template <class Cell, class OfCell> struct OneBarrier {
  typedef OfCell Mapping;
  typedef typename Mapping::template Weights<Cell::GATES> Weights;
  Weights weights;

  DEVICE_IN_STRUCT void load(const QuantumArguments& of, int first_unit) { weights.load(of.of.r, first_unit, 0); }

  // Runs a step, but for its last barrier. False if blocks wait in vain at another one.
  DEVICE_IN_STRUCT bool run(const QuantumArguments& of, const Lookup& lookup, const Batch& batch, const Share& share, uint32_t&) const {
    constexpr int HEIGHT = Mapping::HEIGHT;
    SHARED(typename Weights::Word, tile, [HEIGHT][Weights::STRIDE]);
    SHARED(float, totals, [HEIGHT][Weights::GATE_ROWS]);
    SHARED(float, sums_of_x, [HEIGHT][Weights::GATE_ROWS]);
    SHARED(const float*, of_rows, [HEIGHT]);
    for (int first = share.first_tile * HEIGHT; first < batch.count; first += share.tiles * HEIGHT) {
      // Who read the sums and rows of the tile before has done so.
      __syncthreads();
      multiply_x<Cell::GATES, Cell::SUMS, Mapping, Weights>(of, of.w, of.of.b, lookup, batch, first, share.first_unit, tile, of_rows, sums_of_x);
      fill_tile<Weights>(tile, of_rows, batch, of.of.h, first);
      weights.multiply(tile, totals);
      __syncthreads();
      const auto of_x = [&](int row, int unit) { return sums_of_x[row - first] + (unit - share.first_unit) * Cell::GATES; };
      finish_tile<Cell, Mapping, Weights>(of.of, batch, first, share.first_unit, tile, totals, of_x);
    }
    return true;
  }
};

// Steps of a GRU whose reset gate comes before the product: a barrier between z and r, and the state.
template <class OfCell> struct TwoBarriers {
  typedef OfCell Mapping;
  typedef typename Mapping::template Weights<2> OfGates;
  typedef typename Mapping::template Weights<1> OfState;
  OfGates gates;
  OfState state;

  DEVICE_IN_STRUCT void load(const QuantumArguments& of, int first_unit) {
    gates.load(of.of.r, first_unit, 0);
    state.load(of.of.r_of_state, first_unit, OfGates::OWN_WORDS);
  }

  DEVICE_IN_STRUCT bool run(const QuantumArguments& of, const Lookup& lookup, const Batch& batch, const Share& share, uint32_t& barriers) const {
    constexpr int HEIGHT = Mapping::HEIGHT;
    SHARED(typename OfGates::Word, tile, [HEIGHT][OfGates::STRIDE]);
    SHARED(float, totals, [HEIGHT][OfGates::GATE_ROWS]);
    SHARED(float, sums_of_x, [HEIGHT][OfGates::GATE_ROWS]);
    SHARED(float, totals_of_state, [HEIGHT][OfState::GATE_ROWS]);
    SHARED(float, sums_of_x_of_state, [HEIGHT][OfState::GATE_ROWS]);
    SHARED(const float*, of_rows, [HEIGHT]);
    const OfReset reset = reset_of<Mapping>(of.of);
    for (int first = share.first_tile * HEIGHT; first < batch.count; first += share.tiles * HEIGHT) {
      // Who read the sums of the tile before has done so.
      __syncthreads();
      multiply_x<2, 2, Mapping, OfGates>(of, of.w, of.of.b, lookup, batch, first, share.first_unit, tile, of_rows, sums_of_x);
      fill_tile<OfGates>(tile, of_rows, batch, of.of.h, first);
      gates.multiply(tile, totals);
      __syncthreads();
      const auto of_x = [&](int row, int unit) { return sums_of_x[row - first] + (unit - share.first_unit) * 2; };
      finish_gates<Mapping, OfGates>(of.of, reset, batch, first, share.first_unit, tile, totals, of_x);
    }
    if (!meet(of, ++barriers)) return false;
    for (int first = share.first_tile * HEIGHT; first < batch.count; first += share.tiles * HEIGHT) {
      // The sums of the tile before were read by the threads that now begin them.
      multiply_x<1, 1, Mapping, OfState>(of, of.w_of_state, of.b_of_state, lookup, batch, first, share.first_unit, tile, of_rows, sums_of_x_of_state);
      fill_tile<OfState>(tile, of_rows, batch, reset.r_h, first);
      state.multiply(tile, totals_of_state);
      __syncthreads();
      const auto of_x = [&](int row, int unit) { return sums_of_x_of_state[row - first][unit - share.first_unit]; };
      finish_state<Mapping>(of.of, reset, batch, first, share.first_unit, totals_of_state, of_x);
    }
    return true;
  }
};

template <class Steps> DEVICE void run_tasks(const QuantumArguments& of) {
  typedef typename Steps::Mapping Mapping;
  constexpr int COLUMNS = (Mapping::HIDDEN + Mapping::WIDTH - 1) / Mapping::WIDTH;
  const Share share = {(int)(blockIdx.x % COLUMNS) * Mapping::WIDTH, (int)(blockIdx.x / COLUMNS), (int)(gridDim.x - 1) / COLUMNS};
  const bool is_first = blockIdx.x == 0 && threadIdx.x == 0;
  // A launch behind one that is stuck is over before it begins.
  if (is_first) *of.next_words = {0, ld_acquire_gpu(&of.words->is_over)};
  const uint64_t first_number = first_task(of);
  // The launch before has left nothing.
  if (of.until != 0 && first_number >= of.until) return;
  if (blockIdx.x + 1 == gridDim.x) return bring_tasks(of, first_number);
  Steps own;
  own.load(of, share.first_unit);
  uint32_t barriers = 0;
  int steps = 0;
  for (uint64_t number = first_number;; number++) {
    const uint32_t at = (uint32_t)(number - first_number);
    const Task* announced = of.announced + (number & 1) * 2;
    // Nothing is announced at a barrier before the first task.
    if (number == first_number || announced->number != number) {
      if (is_first) wait_for_task(of, number, at, steps);
      if (!meet(of, ++barriers)) return;
      announced++;
    }
    // After the barrier of the last step, the place may be another task's.
    const int task_steps = announced->steps, count = announced->count;
    const uint32_t time = announced->time;
    if (task_steps == 0) {
      if (is_first) end_launch(of, count == NEVER_CAME ? IS_STUCK : number);
      return;
    }
    if (announced->from_host > 0) {
      make_copies(announced->copies, announced->from_host);
      if (!meet(of, ++barriers)) return;
    }
    if (announced->within > 0) {
      make_copies(announced->copies + announced->from_host, announced->within);
      if (!meet(of, ++barriers)) return;
    }
    if (is_first) red_release_gpu_add(&of.words->taken, 1u);
    steps += task_steps;
    // Other blocks may be at the task after this one when the host is told what has failed in this one.
    Lookup lookup = of.lookup;
    lookup.failed = of.failed + (number & 1);
    for (int step = 0; step < task_steps; step++) {
      Batch batch = of.of.batch;
      batch.count = count;
      batch.time = time + step;
      if (!own.run(of, lookup, batch, share, barriers)) return;
      if (step + 1 == task_steps && is_first) announce(of, number + 1, at + 1, false, steps);
      if (!meet(of, ++barriers)) return;
    }
    if (is_first) tell_host(of.done, of.statuses + number % of.ring_tasks, lookup.failed, *of.end_count, number);
  }
}

// A kernel of a cell, whose blocks have so many threads.
#define QUANTUM(NAME, THREADS_OF_BLOCK, ...)                                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 1) NAME(QuantumArguments of) { __VA_ARGS__(of); } \
  KERNEL(NAME)
