// y[i] = factor x[i] in five rows, where one structure passed by value has the pointers, the factors and where each row begins.
#include "emulated_cuda.h"

struct Rows {
  const float* x;
  float* y;
  float factors[40];
  int begins[6];
};
static_assert(sizeof(Rows) == 200, "the test has its layout");

static __device__ __attribute__((noinline)) float scaled(const Rows& rows, int at) { return rows.factors[at % 40] * rows.x[at]; }

extern "C" __global__ void structure(const __grid_constant__ Rows rows) {
  const Rows copy = rows;
  for (int row = blockIdx.x; row < 5; row += gridDim.x) {
    const int at = rows.begins[row] + threadIdx.x;
    if (at < rows.begins[row + 1]) copy.y[at] = scaled(rows, at);
#ifdef BUG_BEYOND_Y
    if (at == rows.begins[5]) copy.y[at] = 0;
#endif
  }
}
KERNEL(structure)
