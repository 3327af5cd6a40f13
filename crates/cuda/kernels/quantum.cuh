// Recurrent cells with one barrier a step whose weights of h stay in registers while the batch changes: one launch runs task after task of a roster, as the
// host brings them.
//
// The host writes tasks to a ring in its memory. Block 0 looks there and tells the others of a task at a barrier, so that all blocks run the same tasks:
// at the barrier of a task's last step, if the next task is there by then; else at one more. Before its steps, a task changes rows and ports of the roster
// in the GPU's memory. After them the launch tells the host that it is done. It ends when the host says so, when there is no task for a while, or when the
// steps of a quantum are over; it tells the host which task it did not run.
//
//   w   [input][hidden][gates]; others as in persistent.cuh
//
// Order of sums: as in persistent.cuh after project_inputs.cu. So the bits are those of a launch for each task.
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

// `QuantumArguments` of src/kernels/quantum.rs.
struct QuantumArguments {
  PersistentArguments of;  // without a count and a time of the batch, sums of products of x, and steps
  Operand x;               // [input]
  Lookup lookup;           // of x
  const float* w;
  const Task* ring;        // [ring_tasks], in memory of the host; task n is in place n mod ring_tasks
  Task* announced;         // [2][2]: of even tasks and odd ones, at the barrier of a step and at one more
  uint64_t* done;          // in memory of the host: the number of the last task that is done
  Status* statuses;        // [ring_tasks], in memory of the host, by numbers
  uint32_t* failed;        // [2]: of even tasks and odd ones, 1 where an id is not one of the table
  const uint32_t* end_count;
  uint64_t* next;          // in memory of the host: once a launch ends, the number of the first task that it leaves, or IS_STUCK
  uint64_t first;          // the number of the first task, one at least, unless the launch before leaves a later one
  uint32_t ring_tasks;
  uint32_t looks_max;      // how often block 0 looks for a task before the launch ends
  int steps_max;           // of all tasks, but for a first one that has more
  int input;
};

// What `next` becomes if blocks wait for one another in vain.
constexpr uint64_t IS_STUCK = ~0ull;

// Waits until all blocks have been here so often. False, and the host is told, if some do not come. All threads of the block call it.
DEVICE bool meet(const QuantumArguments& of, uint32_t times) {
  if (wait_for_grid(of.of, times)) return true;
  if (threadIdx.x == 0) st_release_sys(of.next, IS_STUCK);
  return false;
}

// The number of the first task of the launch. All threads of the block call it.
DEVICE uint64_t first_task(const QuantumArguments& of) {
  SHARED(uint64_t, left, [1]);
  if (threadIdx.x == 0) left[0] = ld_acquire_sys(of.next);
  __syncthreads();
  return left[0] > of.first ? left[0] : of.first;
}

// Tells the other blocks of a task, once it is there. False if it is not.
DEVICE bool announce(const QuantumArguments& of, uint64_t number, bool is_late, int steps) {
  const Task* there = of.ring + number % of.ring_tasks;
  if (ld_acquire_sys(&there->number) != number) return false;
  Task* task = of.announced + (number & 1) * 2 + is_late;
  *task = *there;
  // A quantum has an end: other cells wait for theirs.
  if (steps > 0 && steps + task->steps > of.steps_max) task->steps = 0;
  return true;
}

// Waits for a task, and tells the other blocks of it, or of the launch's end.
DEVICE void wait_for_task(const QuantumArguments& of, uint64_t number, int steps) {
  for (uint32_t look = 0; look < of.looks_max; look++)
    if (announce(of, number, true, steps)) return;
  Task* task = of.announced + (number & 1) * 2 + 1;
  task->steps = 0;
  task->number = number;
}

// Makes a task's copies: blocks take turns. All threads of the grid call it.
DEVICE void make_copies(const Copy* copies, uint32_t count) {
  const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
  for (uint32_t at = block; at < count; at += gridDim.x * gridDim.y) {
    const Copy copy = copies[at];
    copy_bytes(copy.to, copy.from, (uint32_t)copy.bytes, blockDim.x);
  }
}

// The sums of products of x of a tile of rows and units, each of which begins with its bias. A thread has some sums, and adds to them in order of x. All
// threads of the block call it, and may read the sums once all have left it; the tile has x then.
template <class Cell, int HIDDEN, int WIDTH, int HEIGHT, int GATE_ROWS>
DEVICE void multiply_x(const QuantumArguments& of, const Lookup& lookup, const Batch& batch, int first, int first_unit, float (&tile)[HEIGHT][HIDDEN],
                       const float* (&of_rows)[HEIGHT], float (&sums)[HEIGHT][GATE_ROWS]) {
  if (threadIdx.x < HEIGHT) {
    const int row = first + threadIdx.x;
    of_rows[threadIdx.x] = row < batch.count ? look_up(batch, of.x, lookup, row) : nullptr;
  }
  for (int at = threadIdx.x; at < HEIGHT * GATE_ROWS; at += blockDim.x) {
    const int unit = first_unit + at % GATE_ROWS / Cell::GATES, gate = at % Cell::GATES;
    sums[at / GATE_ROWS][at % GATE_ROWS] = unit < HIDDEN ? of.of.b[unit * Cell::SUMS + gate] : 0.f;
  }
  // A tile has room for so many elements of x at a time.
  for (int start = 0; start < of.input; start += HIDDEN) {
    __syncthreads();
    for (int at = threadIdx.x; at < HEIGHT * HIDDEN; at += blockDim.x) {
      const float* from = of_rows[at / HIDDEN];
      tile[at / HIDDEN][at % HIDDEN] = from && start + at % HIDDEN < of.input ? from[start + at % HIDDEN] : 0.f;
    }
    __syncthreads();
    const int elements = least(HIDDEN, of.input - start);
    for (int at = threadIdx.x; at < HEIGHT * GATE_ROWS; at += blockDim.x) {
      const int column = first_unit * Cell::GATES + at % GATE_ROWS;
      if (column >= HIDDEN * Cell::GATES) continue;
      float sum = sums[at / GATE_ROWS][at % GATE_ROWS];
      for (int k = 0; k < elements; k++) sum = fmaf(tile[at / GATE_ROWS][k], of.w[(long long)(start + k) * HIDDEN * Cell::GATES + column], sum);
      sums[at / GATE_ROWS][at % GATE_ROWS] = sum;
    }
  }
}

template <class Cell, int HIDDEN, int WIDTH, int HEIGHT, int GROUPS_OF_BLOCK, int LANES> DEVICE void run_tasks(const QuantumArguments& of) {
  typedef Resident<Cell::GATES, HIDDEN, WIDTH, HEIGHT, GROUPS_OF_BLOCK, LANES> Weights;
  SHARED(float, tile, [HEIGHT][HIDDEN]);
  SHARED(float, totals, [HEIGHT][Weights::GATE_ROWS]);
  SHARED(float, sums_of_x, [HEIGHT][Weights::GATE_ROWS]);
  SHARED(const float*, of_rows, [HEIGHT]);
  const int first_unit = blockIdx.x * WIDTH;
  const bool is_first = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
  Weights weights;
  weights.load(of.of.r, first_unit);
  uint32_t barriers = 0;
  int steps = 0;
  const uint64_t first_number = first_task(of);
  for (uint64_t number = first_number;; number++) {
    const Task* announced = of.announced + (number & 1) * 2;
    // Nothing is announced at a barrier before the first task.
    if (number == first_number || announced->number != number) {
      if (is_first) wait_for_task(of, number, steps);
      if (!meet(of, ++barriers)) return;
      announced++;
    }
    // After the barrier of the last step, the place may be another task's.
    const int task_steps = announced->steps, count = announced->count;
    const uint32_t time = announced->time;
    if (task_steps == 0) {
      if (is_first) st_release_sys(of.next, number);
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
    steps += task_steps;
    // Other blocks may be at the task after this one when the host is told what has failed in this one.
    Lookup lookup = of.lookup;
    lookup.failed = of.failed + (number & 1);
    for (int step = 0; step < task_steps; step++) {
      Batch batch = of.of.batch;
      batch.count = count;
      batch.time = time + step;
      for (int first = blockIdx.y * HEIGHT; first < batch.count; first += gridDim.y * HEIGHT) {
        // Who read the sums and rows of the tile before has done so.
        __syncthreads();
        multiply_x<Cell, HIDDEN, WIDTH>(of, lookup, batch, first, first_unit, tile, of_rows, sums_of_x);
        fill_tile(tile, of_rows, batch, of.of.h, first);
        weights.multiply(tile, totals);
        __syncthreads();
        const auto of_x = [&](int row, int unit) { return sums_of_x[row - first] + (unit - first_unit) * Cell::GATES; };
        finish_tile<Cell, HIDDEN, WIDTH>(of.of, batch, first, first_unit, tile, totals, of_x);
      }
      if (step + 1 == task_steps && is_first) announce(of, number + 1, false, steps);
      if (!meet(of, ++barriers)) return;
    }
    if (is_first) tell_host(of.done, of.statuses + number % of.ring_tasks, lookup.failed, *of.end_count, number);
  }
}

// A kernel of a cell, whose blocks have so many threads.
#define QUANTUM(NAME, THREADS_OF_BLOCK, ...)                                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 1) NAME(QuantumArguments of) { __VA_ARGS__(of); } \
  KERNEL(NAME)
