// Cells of a binary TreeLSTM (Tai, Socher and Manning, 2015, the N-ary form with N = 2) for a batch of nodes.
//
// A thread computes a unit of some rows, with a sum for each gate. Sums take their terms in one order whatever the batch: the bias, then the input or the
// left child in order of k, then the right one (products.cuh).
//
//   w   [input][hidden][gates], or of the left child [hidden][hidden][gates]        r   of the right child
//   b   [hidden][gates]        weights are stored as weights.cuh has it
#include "products.cuh"

// `TreeArguments` of src/kernels/tree.rs.
struct TreeArguments {
  Batch batch;
  Operand first;                // x of a leaf, h of the left child
  Operand right;                // h of the right child
  Operand c_left, c_right;      // [hidden]
  Operand h, c;                 // [hidden], of the node
  Lookup lookup;                // of x
  const void* w;
  const void* r;
  const float* b;
  int input, hidden;
};

DEVICE const float* source(const Batch& batch, const Operand& of, const Part& part) {
  return part.thread < part.rows ? (const float*)locate(batch, of, part.first + part.thread) : nullptr;
}

DEVICE void write_node(const TreeArguments& of, int row, int unit, float o, float c) {
  ((float*)locate(of.batch, of.h, row))[unit] = o * tanhf(c);
  ((float*)locate(of.batch, of.c, row))[unit] = c;
}

// i = sigmoid(s_i)   o = sigmoid(s_o)   u = tanh(s_u)   c = i u   h = o tanh(c). Gates i, o, u.
template <class Weights> DEVICE void tree_leaf(const TreeArguments& of) {
  SHARED(RowOfTile<Weights>, tile, [ROWS]);
  SHARED(const float*, of_x, [ROWS]);
  const Part part = part_of(of.batch.count);
  if (part.thread < ROWS) of_x[part.thread] = part.thread < part.rows ? look_up(of.batch, of.first, of.lookup, part.first + part.thread) : nullptr;
  float sums[ROWS_OF_THREAD][3];
  begin_sums<3>(sums, of.b, part.unit, of.hidden);
  add_products<Weights, 3, 3, 2>(sums, tile, of_x, of.w, of.input, part, of.hidden);
  if (part.unit >= of.hidden) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    write_node(of, row, part.unit, sigmoid(sums[at][1]), sigmoid(sums[at][0]) * tanhf(sums[at][2]));
  }
}

// i = sigmoid(s_i)   o, f_l, f_r likewise   u = tanh(s_u)   c = i u + f_l c_l + f_r c_r   h = o tanh(c). Gates i, o, f_l, f_r, u.
template <class Weights> DEVICE void tree_inner(const TreeArguments& of) {
  SHARED(RowOfTile<Weights>, tile, [ROWS]);
  SHARED(const float*, of_left, [ROWS]);
  SHARED(const float*, of_right, [ROWS]);
  const Part part = part_of(of.batch.count);
  if (part.thread < ROWS) {
    of_left[part.thread] = source(of.batch, of.first, part);
    of_right[part.thread] = source(of.batch, of.right, part);
  }
  float sums[ROWS_OF_THREAD][5];
  begin_sums<5>(sums, of.b, part.unit, of.hidden);
  add_products<Weights, 5, 5, 4>(sums, tile, of_left, of.w, of.hidden, part, of.hidden);
  add_products<Weights, 5, 5, 4>(sums, tile, of_right, of.r, of.hidden, part, of.hidden);
  if (part.unit >= of.hidden) return;
  for (int at = 0; at < ROWS_OF_THREAD; at++) {
    const int row = Part::row(part, at);
    if (row < 0) return;
    const float c_left = ((const float*)locate(of.batch, of.c_left, row))[part.unit];
    const float c_right = ((const float*)locate(of.batch, of.c_right, row))[part.unit];
    const float of_left_child = fmaf(sigmoid(sums[at][2]), c_left, sigmoid(sums[at][0]) * tanhf(sums[at][4]));
    write_node(of, row, part.unit, sigmoid(sums[at][1]), fmaf(sigmoid(sums[at][3]), c_right, of_left_child));
  }
}

#define NODE(NAME, ...)                                                                                        \
  extern "C" __global__ void __launch_bounds__(UNITS * GROUPS) NAME(TreeArguments of) { __VA_ARGS__(of); } \
  KERNEL(NAME)

NODE(tree_leaf_f32, tree_leaf<F32>)
NODE(tree_leaf_bf16, tree_leaf<Bf16>)
NODE(tree_inner_f32, tree_inner<F32>)
NODE(tree_inner_bf16, tree_inner<Bf16>)
