// The products of x for several steps of a recurrent cell, before the first of them: one large product, whose sums the steps begin with.
//
//   w   [input][columns]          sums   [steps][rows][columns]          b   [hidden][sums of a unit]
//
// A column is a gate of a unit, the gates of a unit side by side. Order of sums: the bias, then x in order of k, one fused multiply-add a term. So a
// step has the bits that it has where it multiplies x itself.
#include "products.cuh"

// `ProjectionArguments` of src/kernels/projection.rs.
struct ProjectionArguments {
  Batch batch;    // at the first step
  Operand x;      // [input]
  Lookup lookup;  // of x
  const void* w;
  const float* b;
  float* sums;
  int input, columns, steps;
  int gates, sums_of_unit;  // of a unit: the sums that begin with a bias each may be more than the gates
};

// A block computes a square of sums; a thread ROWS_EACH rows of COLUMNS_EACH columns. It multiplies DEPTH elements of x at a time.
constexpr int SIDE = 64;
constexpr int ROWS_EACH = 8;
constexpr int COLUMNS_EACH = 4;
constexpr int DEPTH = 16;
constexpr int THREADS_OF_SQUARE = SIDE / ROWS_EACH * (SIDE / COLUMNS_EACH);
static_assert(THREADS_OF_SQUARE == UNITS * GROUPS, "a thread for each part");

// Finds x of the rows of a block. Rows are those of the first step, then those of the second, and so on.
DEVICE void find_x(const float* (&of_x)[SIDE], const ProjectionArguments& of, int thread, int first) {
  if (thread >= SIDE) return;
  // Sums have room for as many rows as there may be.
  const int rows = of.batch.count, row = first + thread;
  Batch at_step = as_now(of.batch);
  at_step.time += row / rows;
  const bool is_there = row < of.steps * rows && row % rows < at_step.count;
  of_x[thread] = is_there ? look_up(at_step, of.x, of.lookup, row % rows) : nullptr;
}

template <class Weights> DEVICE void project_inputs(const ProjectionArguments& of) {
  // A row for each k, of elements that threads read side by side.
  SHARED(float, tile_of_x, [DEPTH][SIDE + COLUMNS_EACH]);
  SHARED(float, tile_of_w, [DEPTH][SIDE]);
  SHARED(const float*, of_x, [SIDE]);
  const int thread = threadIdx.y * UNITS + threadIdx.x;
  const int first_row = blockIdx.y * SIDE, first_column = blockIdx.x * SIDE;
  const int row = thread / (SIDE / COLUMNS_EACH) * ROWS_EACH, column = thread % (SIDE / COLUMNS_EACH) * COLUMNS_EACH;
  find_x(of_x, of, thread, first_row);

  float sums[ROWS_EACH][COLUMNS_EACH];
  for (int j = 0; j < COLUMNS_EACH; j++) {
    const int own = first_column + column + j;
    const float bias = own < of.columns ? of.b[own / of.gates * of.sums_of_unit + own % of.gates] : 0.f;
    for (int i = 0; i < ROWS_EACH; i++) sums[i][j] = bias;
  }

  for (int start = 0; start < of.input; start += DEPTH) {
    __syncthreads();
    for (int at = thread; at < SIDE * DEPTH; at += THREADS_OF_SQUARE) {
      const int k = at % DEPTH;
      const float* x = of_x[at / DEPTH];
      tile_of_x[k][at / DEPTH] = x && start + k < of.input ? Weights::factor(x[start + k]) : 0.f;
    }
    for (int at = thread; at < SIDE * DEPTH; at += THREADS_OF_SQUARE) {
      const int k = start + at / SIDE, own = first_column + at % SIDE;
      const bool is_there = k < of.input && own < of.columns;
      tile_of_w[at / SIDE][at % SIDE] = is_there ? Weights::weight(((const typename Weights::Weight*)of.w)[(long long)k * of.columns + own]) : 0.f;
    }
    __syncthreads();
    const int depth = least(DEPTH, of.input - start);
#pragma unroll 2
    for (int k = 0; k < depth; k++) {
      float factors[ROWS_EACH], weights[COLUMNS_EACH];
      for (int i = 0; i < ROWS_EACH; i++) factors[i] = tile_of_x[k][row + i];
      for (int j = 0; j < COLUMNS_EACH; j++) weights[j] = tile_of_w[k][column + j];
      for (int i = 0; i < ROWS_EACH; i++)
        for (int j = 0; j < COLUMNS_EACH; j++) sums[i][j] = Weights::add(factors[i], weights[j], sums[i][j]);
    }
  }

  for (int i = 0; i < ROWS_EACH; i++)
    for (int j = 0; j < COLUMNS_EACH; j++) {
      const int own_row = first_row + row + i, own_column = first_column + column + j;
      if (own_row < of.steps * of.batch.count && own_column < of.columns) of.sums[(long long)own_row * of.columns + own_column] = sums[i][j];
    }
}

// Blocks that a multiprocessor holds at least. It leaves a thread 80 registers.
constexpr int BLOCKS_OF_PROJECTION = 6;

#define PROJECT(NAME, ...)                                                                                       \
  extern "C" __global__ void __launch_bounds__(THREADS_OF_SQUARE, BLOCKS_OF_PROJECTION) NAME(ProjectionArguments of) { __VA_ARGS__(of); } \
  KERNEL(NAME)

PROJECT(project_inputs_f32, project_inputs<F32>)
PROJECT(project_inputs_bf16, project_inputs<Bf16>)
