// The products of x for several steps of a recurrent cell, before the first of them: one large product, whose sums the steps begin with.
//
//   w   [input][columns], stored as weights.cuh has it          sums   [steps][rows][columns]          b   [hidden][sums of a unit]
//
// A column is a gate of a unit, the gates of a unit side by side. Order of sums: the bias, then x in order of k, in f32 one fused multiply-add a term, in
// bfloat16 as mma.cuh adds them. So a step has the bits that it has where it multiplies x itself.
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

// A block computes a square of sums.
constexpr int SIDE = 64;
constexpr int THREADS_OF_SQUARE = UNITS * GROUPS;

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

// What the sums of a column begin with.
DEVICE float bias_of(const ProjectionArguments& of, int column) {
  return column < of.columns ? of.b[column / of.gates * of.sums_of_unit + column % of.gates] : 0.f;
}

DEVICE void write_sum(const ProjectionArguments& of, int row, int column, float sum) {
  if (row < of.steps * of.batch.count && column < of.columns) of.sums[(long long)row * of.columns + column] = sum;
}

// In f32, a thread computes ROWS_EACH rows of COLUMNS_EACH columns, DEPTH elements of x at a time.
constexpr int ROWS_EACH = 8;
constexpr int COLUMNS_EACH = 4;
constexpr int DEPTH = 16;
static_assert(THREADS_OF_SQUARE == SIDE / ROWS_EACH * (SIDE / COLUMNS_EACH), "a thread for each part");

DEVICE void project_inputs(F32, const ProjectionArguments& of) {
  // A row for each k, of elements that threads read side by side.
  SHARED(float, tile_of_x, [DEPTH][SIDE + COLUMNS_EACH]);
  SHARED(float, tile_of_w, [DEPTH][SIDE]);
  SHARED(const float*, of_x, [SIDE]);
  const int thread = threadIdx.y * UNITS + threadIdx.x;
  const int first_row = blockIdx.y * SIDE, first_column = blockIdx.x * SIDE;
  const int row = thread / (SIDE / COLUMNS_EACH) * ROWS_EACH, column = thread % (SIDE / COLUMNS_EACH) * COLUMNS_EACH;
  find_x(of_x, of, thread, first_row);

  float sums[ROWS_EACH][COLUMNS_EACH];
  for (int j = 0; j < COLUMNS_EACH; j++)
    for (int i = 0; i < ROWS_EACH; i++) sums[i][j] = bias_of(of, first_column + column + j);

  for (int start = 0; start < of.input; start += DEPTH) {
    __syncthreads();
    for (int at = thread; at < SIDE * DEPTH; at += THREADS_OF_SQUARE) {
      const int k = at % DEPTH;
      const float* x = of_x[at / DEPTH];
      tile_of_x[k][at / DEPTH] = x && start + k < of.input ? x[start + k] : 0.f;
    }
    for (int at = thread; at < SIDE * DEPTH; at += THREADS_OF_SQUARE) {
      const int k = start + at / SIDE, own = first_column + at % SIDE;
      const bool is_there = k < of.input && own < of.columns;
      tile_of_w[at / SIDE][at % SIDE] = is_there ? ((const float*)of.w)[(long long)k * of.columns + own] : 0.f;
    }
    __syncthreads();
    const int depth = least(DEPTH, of.input - start);
#pragma unroll 2
    for (int k = 0; k < depth; k++) {
      float factors[ROWS_EACH], weights[COLUMNS_EACH];
      for (int i = 0; i < ROWS_EACH; i++) factors[i] = tile_of_x[k][row + i];
      for (int j = 0; j < COLUMNS_EACH; j++) weights[j] = tile_of_w[k][column + j];
      for (int i = 0; i < ROWS_EACH; i++)
        for (int j = 0; j < COLUMNS_EACH; j++) sums[i][j] = fmaf(factors[i], weights[j], sums[i][j]);
    }
  }

  for (int i = 0; i < ROWS_EACH; i++)
    for (int j = 0; j < COLUMNS_EACH; j++) write_sum(of, first_row + row + i, first_column + column + j, sums[i][j]);
}

// In bfloat16, a warp computes a quarter of the square: products of two gate rows' fragments with four of x.
constexpr int HALF = SIDE / 2;
constexpr int OF_COLUMNS = HALF / Fragment::GATE_ROWS, OF_ROWS = HALF / Fragment::ROWS;
static_assert(GROUPS == 4, "a warp for each quarter");

DEVICE void project_inputs(Bf16, const ProjectionArguments& of) {
  typedef TileProduct<Bf16> Product;
  SHARED(uint32_t, tile_of_x, [SIDE][Product::STRIDE]);
  SHARED(const float*, of_x, [SIDE]);
  const int thread = threadIdx.y * UNITS + threadIdx.x, row = threadIdx.y / 2 * HALF;
  const int first_row = blockIdx.y * SIDE, first_column = blockIdx.x * SIDE + threadIdx.y % 2 * HALF;
  find_x(of_x, of, thread, first_row);

  float sums[OF_COLUMNS][OF_ROWS][4];
  for (int columns = 0; columns < OF_COLUMNS; columns++)
    for (int rows = 0; rows < OF_ROWS; rows++)
      for (int at = 0; at < 4; at++)
        sums[columns][rows][at] = bias_of(of, first_column + columns * Fragment::GATE_ROWS + Fragment::gate_row_of_sum(at));

  for (int start = 0; start < of.input; start += Product::CHUNK) {
    __syncthreads();
    for (int at = thread; at < SIDE * Product::WORDS; at += THREADS_OF_SQUARE) {
      const float* x = of_x[at / Product::WORDS];
      tile_of_x[at / Product::WORDS][at % Product::WORDS] = x ? Product::word(x + start, at % Product::WORDS, of.input - start) : 0;
    }
    __syncthreads();
    const int elements = least(Product::CHUNK, of.input - start);
#pragma unroll 2
    for (int first = 0; first < elements; first += Fragment::ELEMENTS) {
      Words weights[OF_COLUMNS];
      for (int columns = 0; columns < OF_COLUMNS; columns++)
        for (int at = 0; at < 4; at++) {
          const int k = start + first + Fragment::element(at), own = first_column + columns * Fragment::GATE_ROWS + Fragment::gate_row(at);
          const bool is_there = k < of.input && own < of.columns;
          weights[columns].of[at] = is_there ? ((const uint32_t*)of.w)[(long long)(k / 2) * of.columns + own] : 0;
        }
      for (int rows = 0; rows < OF_ROWS; rows++) {
        uint32_t vectors[2];
        load_vectors(vectors, tile_of_x, row + rows * Fragment::ROWS, first / 2);
        for (int columns = 0; columns < OF_COLUMNS; columns++) add_product(sums[columns][rows], weights[columns], vectors);
      }
    }
  }

  for (int columns = 0; columns < OF_COLUMNS; columns++)
    for (int rows = 0; rows < OF_ROWS; rows++)
      for (int at = 0; at < 4; at++) {
        const int own_row = first_row + row + rows * Fragment::ROWS + Fragment::row_of_sum(at);
        write_sum(of, own_row, first_column + columns * Fragment::GATE_ROWS + Fragment::gate_row_of_sum(at), sums[columns][rows][at]);
      }
}

// Blocks that a multiprocessor holds at least. It leaves a thread 80 registers.
constexpr int BLOCKS_OF_PROJECTION = 6;

#define PROJECT(NAME, WEIGHTS)                                                                                   \
  extern "C" __global__ void __launch_bounds__(THREADS_OF_SQUARE, BLOCKS_OF_PROJECTION) NAME(ProjectionArguments of) { \
    project_inputs(WEIGHTS(), of);                                                                               \
  }                                                                                                              \
  KERNEL(NAME)

PROJECT(project_inputs_f32, F32)
PROJECT(project_inputs_bf16, Bf16)
