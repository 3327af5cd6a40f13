// Copies of rows, the end of a step, and the signal that work is done. A block copies a row.
#include "batch.cuh"
#include "copies.cuh"
#include "signal.cuh"

constexpr int THREADS = 128;

// `CopyArguments` of src/kernels/rows.rs.
struct CopyArguments {
  const Copy* copies;
};

extern "C" __global__ void __launch_bounds__(THREADS) copy_rows(CopyArguments of) {
  const Copy copy = of.copies[blockIdx.x];
  copy_bytes(copy.to, copy.from, (uint32_t)copy.bytes, THREADS);
}
KERNEL(copy_rows)

// `CopyOperandArguments` of src/kernels/rows.rs.
struct CopyOperandArguments {
  Batch batch;
  Operand from, to;
  uint32_t bytes;
  uint32_t clears_idle;  // whether rows that nobody wants are zeros
};

// Copies an operand of each row to another.
extern "C" __global__ void __launch_bounds__(THREADS) copy_operand(CopyOperandArguments of) {
  of.batch = as_now(of.batch);
  const int row = blockIdx.x;
  if (row >= of.batch.count) return;
  const bool is_wanted = !of.clears_idle || is_running(of.batch, row);
  copy_bytes(locate(of.batch, of.to, row), is_wanted ? locate(of.batch, of.from, row) : nullptr, of.bytes, THREADS);
}
KERNEL(copy_operand)

// A chain that reached its end of sequence: `End` of src/kernels/rows.rs.
struct End {
  uint32_t request[2];
  uint32_t run;
  uint32_t nodes;
};

// `FinishArguments` of src/kernels/rows.rs.
struct FinishArguments {
  Batch batch;
  const Operand* outputs;  // where the step has left each output
  uint32_t* ended;         // that of the batch
  End* ends;               // [ends_max], in memory of the host
  uint32_t* end_count;     // of all ends so far
  uint32_t ends_max;
  uint32_t inputs;  // input ports, which precede the sinks
};

// Ends a step: a chain whose output is its stop has ended, and writes nothing; others write their sinks.
extern "C" __global__ void __launch_bounds__(THREADS) finish_step(FinishArguments of) {
  of.batch = as_now(of.batch);
  const int row = blockIdx.x;
  if (row >= of.batch.count) return;
  const Row* own = of.batch.rows + row;
  if (!is_running(of.batch, row)) return;
  const uint32_t node = node_of(of.batch, row);
  const bool has_stop = own->stop_output != NO_OUTPUT;
  if (has_stop && *(const long long*)locate(of.batch, of.outputs[own->stop_output], row) == own->stop) {
    // All threads have seen that the chain had not ended before.
    __syncthreads();
    if (threadIdx.x > 0) return;
    of.ended[own->slot] = 1;
    of.ends[atomicAdd(of.end_count, 1u) % of.ends_max] = {{own->request[0], own->request[1]}, own->run, node + 1};
    return;
  }
  for (uint32_t at = 0; at < own->sinks; at++) {
    const Port& sink = sink_of(of.batch, row, of.inputs, at);
    // A chain that may end with its next node may have its last row in this one.
    if (is_of_last(sink) && node + 1 != own->length && !has_stop) continue;
    copy_bytes(row_of_sink(sink, node), locate(of.batch, of.outputs[sink.sink / 2], row), sink.bytes, THREADS);
  }
}
KERNEL(finish_step)

// `SignalArguments` of src/kernels/rows.rs.
struct SignalArguments {
  uint64_t* counter;  // of work that is done, in memory of the host
  Status* status;     // of this work, in memory of the host
  uint32_t* failed;
  const uint32_t* end_count;
  uint64_t number;  // of this work
};

// Tells the host that all work up to this is done. (The C library has a function `signal`, which the emulator's host code would call instead.)
extern "C" __global__ void __launch_bounds__(1) signal_host(SignalArguments of) {
  tell_host(of.counter, of.status, of.failed, *of.end_count, of.number);
}
KERNEL(signal_host)
