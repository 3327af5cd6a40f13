// How weights are stored, and how they are multiplied: the types of src/kernels/weights.rs.
//
// A type has the `Element` of a vector that weights are multiplied with, and the `Sum` of products. Where a thread multiplies for itself, it has the stored
// `Weight`; `factor` is what of an element is multiplied, `weight` what of a weight.
#pragma once
#include "portable.cuh"

struct F32 {
  typedef float Weight;
  typedef float Element;
  typedef float Sum;
  DEVICE_MEMBER float factor(Element x) { return x; }
  DEVICE_MEMBER float weight(Weight w) { return w; }
  DEVICE_MEMBER Sum add(float x, float w, Sum sum) { return fmaf(x, w, sum); }
};

// The nearest bfloat16: of an f32 the upper 16 bits. A tie goes to even; what is subnormal there is 0; what is no number stays so.
DEVICE float rounded_to_bf16(float x) {
  const uint32_t bits = __float_as_uint(x), nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  const uint32_t normal = (nearest & 0x7f800000u) == 0u ? nearest & 0x80000000u : nearest;
  return x == x ? __uint_as_float(normal) : x;
}

// Weights are stored as bfloat16, and vectors are rounded to it (mma.cuh). Of two rows of a matrix, [k][columns], those of a column lie side by side in a
// word, [k / 2][columns]; a row that is missing is zeros.
struct Bf16 {
  typedef float Element;
  typedef float Sum;
};

// Whole numbers of at most 255 in magnitude stand for floats. Sums are exact.
struct Whole {
  typedef int16_t Weight;
  typedef int Element;
  typedef int Sum;
  DEVICE_MEMBER int factor(Element x) { return x; }
  DEVICE_MEMBER int weight(Weight w) { return w; }
  DEVICE_MEMBER Sum add(int x, int w, Sum sum) { return sum + x * w; }
};
