// The rows of a batch, and where their data lies: the types of src/kernels/batch.rs.
//
// A row is a chain that takes a step, or a node of a row-wise run. It names what it reads and writes, so nothing is gathered. A roster's rows stay as
// they are from step to step: what changes is the batch's time, which goes up by one with each step.
#pragma once
#include "portable.cuh"

struct Row {
  long long stop;        // the output of one integer that ends the chain, if there is a `stop_output`
  uint32_t request[2];   // its request's index and generation
  uint32_t run;          // the run of its request
  uint32_t slot;         // the slot of its states
  uint32_t first;        // the time of its node 0; times wrap around
  uint32_t half;         // the states before the step at time t lie in half (t + half) mod 2 of the slot
  uint32_t length;       // its nodes: later steps are padding
  uint32_t ports;        // the first of its ports: inputs, then sinks
  uint32_t sinks;        // the number of its sinks
  uint32_t stop_output;  // the output that may end it, or NO_OUTPUT
};

constexpr uint32_t NO_OUTPUT = 0xffffffffu;

// Rows of a value of a request, one for each node.
struct Port {
  char* base;            // the row of node 0; row 0, if there is a list
  const uint32_t* list;  // the rows of nodes, or null
  long long stride;      // bytes from a node's row to the next one's
  uint32_t bytes;        // of a row
  uint32_t sink;         // of a sink: twice the output, plus one if only the last node writes
};

// Where an operand of a kernel has its rows.
enum Place : uint32_t {
  NOWHERE,     // rows of zeros, or that nobody wants
  DENSE,       // one after the other
  STATE,       // in the slots: the states before the step
  NEXT_STATE,  // in the slots: the states after it
  PORT,        // in the values of requests: `stride` is the number of the input port
};

struct Operand {
  char* base;
  uint32_t place;
  uint32_t stride;  // bytes from row to row, or of half a slot
};

// What of a batch changes from task to task of a roster, in the GPU's memory: launches of a graph have the same arguments each time.
struct Now {
  int count;
  uint32_t time;  // at the first step
};

struct Batch {
  const Row* rows;
  const Port* ports;
  const uint32_t* ended;  // for each slot, whether its chain has reached its end of sequence
  const Now* now;         // or null
  int count;              // with `now`, the most that there may be
  uint32_t time;          // with `now`, the steps of the task before this one
};

// A batch with the count and the time that it has now. Kernels ask for it where they need it: what is kept over a product takes registers.
DEVICE Batch as_now(Batch batch) {
  if (batch.now) {
    batch.count = batch.now->count;
    batch.time += batch.now->time;
  }
  return batch;
}

// The node that a row is at.
DEVICE uint32_t node_of(const Batch& batch, int row) { return batch.time - batch.rows[row].first; }

// Whether what a row computes is wanted: not after its chain has ended, nor past its last node.
DEVICE bool is_running(const Batch& batch, int row) {
  return node_of(batch, row) < batch.rows[row].length && !(batch.ended && batch.ended[batch.rows[row].slot]);
}

DEVICE char* row_of_node(const Port& port, uint32_t node) {
  return port.base + (port.list ? (long long)port.list[node] * port.bytes : (long long)node * port.stride);
}

// A sink of a row: its port, behind those of the inputs.
DEVICE const Port& sink_of(const Batch& batch, int row, uint32_t inputs, uint32_t at) { return batch.ports[batch.rows[row].ports + inputs + at]; }

// Whether only the last node of a chain writes to a sink.
DEVICE bool is_of_last(const Port& sink) { return sink.sink & 1; }

// The row of a sink that a node writes.
DEVICE char* row_of_sink(const Port& sink, uint32_t node) { return row_of_node(sink, is_of_last(sink) ? 0 : node); }

// The address of an operand of a row; null if it is nowhere. Padding has the inputs of the last node.
DEVICE char* locate(const Batch& batch, const Operand& of, int row) {
  if (of.place == NOWHERE) return nullptr;
  if (of.place == DENSE) return of.base + (long long)row * of.stride;
  const Row* own = batch.rows + row;
  if (of.place == PORT) {
    const uint32_t node = node_of(batch, row), last = own->length - 1;
    return row_of_node(batch.ports[own->ports + of.stride], node < last ? node : last);
  }
  const uint32_t half = (batch.time + own->half + (of.place == NEXT_STATE)) & 1;
  return of.base + ((long long)own->slot * 2 + half) * of.stride;
}

// An embedding: the rows of a table that the first input names by ids of 64 bits. Without a table, the input is what it is.
struct Lookup {
  const float* table;  // [rows][width], or null
  uint32_t* failed;    // becomes 1 where an id is not one of the table
  int rows, width;
};

// The row that a kernel multiplies with: an operand, or the row of the table that it names; null, for zeros, if the table has none.
DEVICE const float* look_up(const Batch& batch, const Operand& of, const Lookup& lookup, int row) {
  const char* at = locate(batch, of, row);
  if (!lookup.table) return (const float*)at;
  const long long id = *(const long long*)at;
  if (id >= 0 && id < lookup.rows) return lookup.table + id * lookup.width;
  if (is_running(batch, row)) atomicMax(lookup.failed, 1u);
  return nullptr;
}
