// What a kernel sees of CUDA where g++ compiles it for the emulator.
//
// Include it first, compile with `-fsanitize=thread,alignment` and link no sanitizer: the compiler then calls a function of this file before
// each load and store, and another one where an address is misaligned; the emulator behind `calls` sees the access. Only one file of a library
// may include it.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define EMULATED_NOT_SEEN __attribute__((no_sanitize("thread", "alignment"), noinline))
#define EMULATED_HERE __builtin_return_address(0)

struct emulated_dim3 {
  unsigned x, y, z;
};

enum emulated_scope : uint32_t { EMULATED_BLOCK, EMULATED_GPU, EMULATED_SYSTEM };
enum emulated_order : uint32_t { EMULATED_RELAXED, EMULATED_ACQUIRE, EMULATED_RELEASE, EMULATED_ACQ_REL };
enum emulated_atomic : uint32_t {
  EMULATED_LOAD, EMULATED_STORE, EMULATED_EXCHANGE, EMULATED_ADD, EMULATED_ADD_F32, EMULATED_MAX, EMULATED_MIN, EMULATED_OR, EMULATED_AND,
  EMULATED_COMPARE_AND_SWAP
};
enum emulated_warp : uint32_t {
  EMULATED_SHUFFLE, EMULATED_SHUFFLE_UP, EMULATED_SHUFFLE_DOWN, EMULATED_SHUFFLE_XOR, EMULATED_BALLOT, EMULATED_SYNC_WARP, EMULATED_ALL, EMULATED_ANY
};

// What the emulator does for a kernel; the layout is that of `Calls` in src/abi.rs.
struct emulated_calls {
  void (*access)(void* at, size_t bytes, uint32_t is_write, const void* site);
  void (*volatile_access)(void* at, size_t bytes, uint32_t is_write, const void* site);
  void (*read_only)(const void* at, size_t bytes, const void* site);
  void (*misaligned)(const void* at, size_t alignment, const char* type, const void* site);
  emulated_dim3 (*position)(uint32_t of);
  void (*sync_threads)(const char* file, uint32_t line, const void* site);
  void (*fence)(emulated_scope scope);
  uint64_t (*atomic)(emulated_atomic operation, emulated_order order, emulated_scope scope, void* at, uint32_t bytes, uint64_t value,
                     uint64_t compared, const void* site);
  uint32_t (*warp)(emulated_warp operation, uint32_t mask, uint32_t value, uint32_t argument, uint32_t width, const void* site);
  void* (*shared)(const void* key, size_t bytes, const char* name);
  void (*pause)();
};

struct emulated_kernel {
  const char* name;
  void (*call)(void** arguments);
  const size_t* parameter_bytes;
  size_t parameters;
};

static const emulated_calls* calls;
static emulated_kernel emulated_kernels[64];
static size_t emulated_kernel_count;

// The emulator calls this once, and has the kernels of the library.
extern "C" EMULATED_NOT_SEEN const emulated_kernel* emulated_attach(const emulated_calls* given, size_t* count) {
  calls = given;
  *count = emulated_kernel_count;
  return emulated_kernels;
}

// The functions that `-fsanitize=thread` has the compiler call.
#define EMULATED_ACCESSES(BYTES)                                                                                              \
  extern "C" EMULATED_NOT_SEEN void __tsan_read##BYTES(void* at) { calls->access(at, BYTES, 0, EMULATED_HERE); }              \
  extern "C" EMULATED_NOT_SEEN void __tsan_write##BYTES(void* at) { calls->access(at, BYTES, 1, EMULATED_HERE); }             \
  extern "C" EMULATED_NOT_SEEN void __tsan_unaligned_read##BYTES(void* at) { calls->access(at, BYTES, 0, EMULATED_HERE); }    \
  extern "C" EMULATED_NOT_SEEN void __tsan_unaligned_write##BYTES(void* at) { calls->access(at, BYTES, 1, EMULATED_HERE); }   \
  extern "C" EMULATED_NOT_SEEN void __tsan_volatile_read##BYTES(void* at) { calls->volatile_access(at, BYTES, 0, EMULATED_HERE); }     \
  extern "C" EMULATED_NOT_SEEN void __tsan_volatile_write##BYTES(void* at) { calls->volatile_access(at, BYTES, 1, EMULATED_HERE); }
EMULATED_ACCESSES(1)
EMULATED_ACCESSES(2)
EMULATED_ACCESSES(4)
EMULATED_ACCESSES(8)
EMULATED_ACCESSES(16)
extern "C" EMULATED_NOT_SEEN void __tsan_read_range(void* at, size_t bytes) { calls->access(at, bytes, 0, EMULATED_HERE); }
extern "C" EMULATED_NOT_SEEN void __tsan_write_range(void* at, size_t bytes) { calls->access(at, bytes, 1, EMULATED_HERE); }
extern "C" EMULATED_NOT_SEEN void __tsan_init() {}
extern "C" EMULATED_NOT_SEEN void __tsan_func_entry(void*) {}
extern "C" EMULATED_NOT_SEEN void __tsan_func_exit() {}


// The function that `-fsanitize=alignment` has the compiler call where an address is no multiple of the alignment of the type that is accessed there.
// Compilers for GPUs rely on the same alignment: they load and store as many bytes at once as it allows, and those of packed structures one by one.
struct emulated_type {
  uint16_t kind, info;
  char name[1];  // ends with a zero
};
struct emulated_mismatch {
  struct {
    const char* file;
    uint32_t line, column;
  } place;
  const emulated_type* type;
  uint8_t log_alignment, access;
};
extern "C" EMULATED_NOT_SEEN void __ubsan_handle_type_mismatch_v1(emulated_mismatch* of, void* at) {
  calls->misaligned(at, (size_t)1 << of->log_alignment, of->type->name, EMULATED_HERE);
}

// Words of the language.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
static EMULATED_NOT_SEEN emulated_dim3 emulated_position(uint32_t of) { return calls->position(of); }
#define threadIdx (emulated_position(0))
#define blockIdx (emulated_position(1))
#define blockDim (emulated_position(2))
#define gridDim (emulated_position(3))

static EMULATED_NOT_SEEN void* emulated_shared(const void* key, size_t bytes, const char* name) { return calls->shared(key, bytes, name); }
// `SHARED(float, tile, [16][17])` is `__shared__ float tile[16][17]`; `DYNAMIC_SHARED(float, rows)` is `extern __shared__ float rows[]`.
#define SHARED(TYPE, NAME, DIMENSIONS)      \
  typedef TYPE NAME##_type DIMENSIONS;      \
  static const char NAME##_key = 0;         \
  NAME##_type& NAME = *(NAME##_type*)emulated_shared(&NAME##_key, sizeof(NAME##_type), #NAME)
#define DYNAMIC_SHARED(TYPE, NAME) TYPE* NAME = (TYPE*)emulated_shared(nullptr, 0, #NAME)

// A barrier is told by its line: compilers may copy the call to several places.
static EMULATED_NOT_SEEN void __syncthreads(const char* file = __builtin_FILE(), uint32_t line = __builtin_LINE()) {
  calls->sync_threads(file, line, EMULATED_HERE);
}
static EMULATED_NOT_SEEN void __threadfence_block() { calls->fence(EMULATED_BLOCK); }
static EMULATED_NOT_SEEN void __threadfence() { calls->fence(EMULATED_GPU); }
static EMULATED_NOT_SEEN void __threadfence_system() { calls->fence(EMULATED_SYSTEM); }
static EMULATED_NOT_SEEN void __nanosleep(unsigned) { calls->pause(); }

// Warps.
static EMULATED_NOT_SEEN void __syncwarp(uint32_t mask = 0xffffffffu) { calls->warp(EMULATED_SYNC_WARP, mask, 0, 0, 32, EMULATED_HERE); }
static EMULATED_NOT_SEEN uint32_t __ballot_sync(uint32_t mask, int predicate) {
  return calls->warp(EMULATED_BALLOT, mask, predicate != 0, 0, 32, EMULATED_HERE);
}
static EMULATED_NOT_SEEN int __any_sync(uint32_t mask, int predicate) {
  return calls->warp(EMULATED_ANY, mask, predicate != 0, 0, 32, EMULATED_HERE);
}
static EMULATED_NOT_SEEN int __all_sync(uint32_t mask, int predicate) {
  return calls->warp(EMULATED_ALL, mask, predicate != 0, 0, 32, EMULATED_HERE);
}

static EMULATED_NOT_SEEN uint32_t emulated_shuffle(emulated_warp how, uint32_t mask, uint32_t value, uint32_t argument, int width) {
  return calls->warp(how, mask, value, argument, (uint32_t)width, EMULATED_HERE);
}
template <class T>
static inline __attribute__((always_inline)) T emulated_shuffle_of(emulated_warp how, uint32_t mask, T value, uint32_t argument, int width) {
  static_assert(sizeof(T) == 4, "shuffles of four bytes only");
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = emulated_shuffle(how, mask, bits, argument, width);
  std::memcpy(&value, &bits, 4);
  return value;
}
#define EMULATED_SHUFFLES(NAME, HOW)                                                                                  \
  template <class T> static inline __attribute__((always_inline)) T NAME(uint32_t mask, T value, int by, int width = 32) {   \
    return emulated_shuffle_of(HOW, mask, value, (uint32_t)by, width);                                                \
  }
EMULATED_SHUFFLES(__shfl_sync, EMULATED_SHUFFLE)
EMULATED_SHUFFLES(__shfl_up_sync, EMULATED_SHUFFLE_UP)
EMULATED_SHUFFLES(__shfl_down_sync, EMULATED_SHUFFLE_DOWN)
EMULATED_SHUFFLES(__shfl_xor_sync, EMULATED_SHUFFLE_XOR)

// Products of matrices that a warp multiplies together: `d += a b` for a of 16 rows and 16 columns and b of 16 rows and 8 columns, in bfloat16, and d in
// f32 (the instruction `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`). The threads of a warp hold fragments of the matrices, two numbers in each
// register of a and b.
//
// Which element a thread holds is taken from NVIDIA's CuTe, whose layouts give the place of a value of a thread in a matrix that is stored by columns
// (CUTLASS, `include/cute/atom/mma_traits_sm80.hpp`, SM80_16x8x16_F32BF16BF16F32_TN): strides of the thread's number mod 4 and its number over 4, then of
// the bits of the value's number.
struct emulated_layout {
  int rows, of_thread[2], of_value[3], values;
};
static constexpr emulated_layout EMULATED_A = {16, {32, 1}, {16, 8, 128}, 8};
static constexpr emulated_layout EMULATED_B = {8, {16, 1}, {8, 64, 0}, 4};  // its transpose
static constexpr emulated_layout EMULATED_D = {16, {32, 1}, {16, 8, 0}, 4};

static constexpr int emulated_place(const emulated_layout& of, int lane, int value) {
  return lane % 4 * of.of_thread[0] + lane / 4 * of.of_thread[1] + (value & 1) * of.of_value[0] + (value >> 1 & 1) * of.of_value[1] +
         (value >> 2 & 1) * of.of_value[2];
}

// For each element of a matrix, by columns, the lane and the value: 8 times the one plus the other.
struct emulated_holders {
  uint8_t of[256];
};
static constexpr emulated_holders emulated_holders_of(const emulated_layout& layout) {
  emulated_holders holders = {};
  for (int lane = 0; lane < 32; lane++)
    for (int value = 0; value < layout.values; value++) holders.of[emulated_place(layout, lane, value)] = (uint8_t)(lane * 8 + value);
  return holders;
}
static constexpr emulated_holders EMULATED_HOLDERS_OF_A = emulated_holders_of(EMULATED_A), EMULATED_HOLDERS_OF_B = emulated_holders_of(EMULATED_B);

// What the lanes of a warp have given: two numbers a word. Warps that are as far apart as there are places are not resident at a time.
struct emulated_fragments {
  uint32_t a[32][4], b[32][2];
};
static constexpr unsigned EMULATED_WARPS = 1024;

// Sums have their terms in order of a's columns, which hardware does not promise.
static EMULATED_NOT_SEEN void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  static thread_local emulated_fragments warps[EMULATED_WARPS];
  const emulated_dim3 thread = calls->position(0), block = calls->position(1), threads = calls->position(2), blocks = calls->position(3);
  const unsigned number = (thread.z * threads.y + thread.y) * threads.x + thread.x, lane = number % 32;
  const unsigned of_block = (threads.x * threads.y * threads.z + 31) / 32;
  emulated_fragments& own = warps[(((block.z * blocks.y + block.y) * blocks.x + block.x) * of_block + number / 32) % EMULATED_WARPS];
  for (int at = 0; at < 4; at++) own.a[lane][at] = a[at];
  for (int at = 0; at < 2; at++) own.b[lane][at] = b[at];
  // All lanes meet, as at a shuffle: that orders no memory.
  calls->warp(EMULATED_SHUFFLE, 0xffffffffu, 0, lane, 32, EMULATED_HERE);
  for (int value = 0; value < 4; value++) {
    const int place = emulated_place(EMULATED_D, (int)lane, value), row = place % EMULATED_D.rows, column = place / EMULATED_D.rows;
    for (int k = 0; k < 16; k++) {
      const int of_a = EMULATED_HOLDERS_OF_A.of[k * EMULATED_A.rows + row], of_b = EMULATED_HOLDERS_OF_B.of[k * EMULATED_B.rows + column];
      const uint32_t words[2] = {own.a[of_a / 8][of_a % 8 / 2] << (of_a % 2 ? 0 : 16), own.b[of_b / 8][of_b % 8 / 2] << (of_b % 2 ? 0 : 16)};
      float factors[2];
      for (int at = 0; at < 2; at++) {
        const uint32_t bits = words[at] & 0xffff0000u;
        __builtin_memcpy(&factors[at], &bits, 4);
      }
      d[value] = std::fmaf(factors[0], factors[1], d[value]);
    }
  }
  // Nobody gives the fragments of the next product before all have read these.
  calls->warp(EMULATED_SHUFFLE, 0xffffffffu, 0, lane, 32, EMULATED_HERE);
}

// Loads and stores with a hint for caches are accesses like others; `__ldg` reads what nobody writes during the launch.
template <class T> static inline __attribute__((always_inline)) T __ldcg(const T* at) { return *at; }
template <class T> static inline __attribute__((always_inline)) void __stcg(T* at, T value) { *at = value; }
static EMULATED_NOT_SEEN void emulated_read_only(const void* at, size_t bytes) { calls->read_only(at, bytes, EMULATED_HERE); }
template <class T> static inline __attribute__((always_inline)) T __ldg(const T* at) {
  emulated_read_only(at, sizeof(T));
  return *at;
}

// Atomic operations: those of CUDA C++ are relaxed and of the GPU's scope; the others have the names of the PTX instructions.
template <class T>
static EMULATED_NOT_SEEN T emulated_atomically(emulated_atomic operation, emulated_order order, emulated_scope scope, const T* at, T value,
                                               T compared) {
  uint64_t bits = 0, other = 0;
  std::memcpy(&bits, &value, sizeof(T));
  std::memcpy(&other, &compared, sizeof(T));
  static_assert(std::is_unsigned<T>::value || std::is_same<T, float>::value, "unsigned numbers and float only");
  bits = calls->atomic(operation, order, scope, (void*)at, sizeof(T), bits, other, EMULATED_HERE);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T> static constexpr emulated_atomic emulated_sum = std::is_same<T, float>::value ? EMULATED_ADD_F32 : EMULATED_ADD;
#define EMULATED_PTX(SCOPE, WORD)                                                                                              \
  template <class T> static inline __attribute__((always_inline)) T ld_relaxed_##WORD(const T* at) {                           \
    return emulated_atomically(EMULATED_LOAD, EMULATED_RELAXED, SCOPE, at, T(), T());                                          \
  }                                                                                                                            \
  template <class T> static inline __attribute__((always_inline)) T ld_acquire_##WORD(const T* at) {                           \
    return emulated_atomically(EMULATED_LOAD, EMULATED_ACQUIRE, SCOPE, at, T(), T());                                          \
  }                                                                                                                            \
  template <class T> static inline __attribute__((always_inline)) void st_relaxed_##WORD(T* at, T value) {                     \
    emulated_atomically(EMULATED_STORE, EMULATED_RELAXED, SCOPE, at, value, T());                                              \
  }                                                                                                                            \
  template <class T> static inline __attribute__((always_inline)) void st_release_##WORD(T* at, T value) {                     \
    emulated_atomically(EMULATED_STORE, EMULATED_RELEASE, SCOPE, at, value, T());                                              \
  }                                                                                                                            \
  template <class T> static inline __attribute__((always_inline)) void red_relaxed_##WORD##_add(T* at, T value) {              \
    emulated_atomically(emulated_sum<T>, EMULATED_RELAXED, SCOPE, at, value, T());                                                \
  }                                                                                                                            \
  template <class T> static inline __attribute__((always_inline)) void red_release_##WORD##_add(T* at, T value) {              \
    emulated_atomically(emulated_sum<T>, EMULATED_RELEASE, SCOPE, at, value, T());                                                \
  }                                                                                                                            \
  template <class T> static inline __attribute__((always_inline)) T atom_acq_rel_##WORD##_add(T* at, T value) {                \
    return emulated_atomically(emulated_sum<T>, EMULATED_ACQ_REL, SCOPE, at, value, T());                                         \
  }
EMULATED_PTX(EMULATED_BLOCK, cta)
EMULATED_PTX(EMULATED_GPU, gpu)
EMULATED_PTX(EMULATED_SYSTEM, sys)

#define EMULATED_CUDA_ATOMIC(NAME, OPERATION)                                                       \
  template <class T> static inline __attribute__((always_inline)) T NAME(T* at, T value) {          \
    static_assert(OPERATION <= EMULATED_ADD || std::is_unsigned<T>::value, "unsigned numbers only"); \
    return emulated_atomically(OPERATION, EMULATED_RELAXED, EMULATED_GPU, at, value, T());          \
  }
static inline __attribute__((always_inline)) float atomicAdd(float* at, float value) {
  return emulated_atomically(EMULATED_ADD_F32, EMULATED_RELAXED, EMULATED_GPU, at, value, 0.f);
}
EMULATED_CUDA_ATOMIC(atomicAdd, EMULATED_ADD)
EMULATED_CUDA_ATOMIC(atomicExch, EMULATED_EXCHANGE)
EMULATED_CUDA_ATOMIC(atomicMax, EMULATED_MAX)
EMULATED_CUDA_ATOMIC(atomicMin, EMULATED_MIN)
EMULATED_CUDA_ATOMIC(atomicOr, EMULATED_OR)
EMULATED_CUDA_ATOMIC(atomicAnd, EMULATED_AND)
template <class T> static inline __attribute__((always_inline)) T atomicCAS(T* at, T compared, T value) {
  return emulated_atomically(EMULATED_COMPARE_AND_SWAP, EMULATED_RELAXED, EMULATED_GPU, at, value, compared);
}

// `KERNEL(name)` after a kernel makes it known to the emulator.
template <class... A> struct emulated_arguments {
  static constexpr size_t bytes[sizeof...(A) + 1] = {sizeof(A)..., 0};
  template <size_t... I> static EMULATED_NOT_SEEN void call(void (*kernel)(A...), void** at, std::index_sequence<I...>) { kernel(*(A*)at[I]...); }
};
template <class... A> static EMULATED_NOT_SEEN void emulated_call(void (*kernel)(A...), void** arguments) {
  emulated_arguments<A...>::call(kernel, arguments, std::make_index_sequence<sizeof...(A)>{});
}
template <class... A> static EMULATED_NOT_SEEN void emulated_register(const char* name, void (*)(A...), void (*call)(void**)) {
  emulated_kernels[emulated_kernel_count++] = {name, call, emulated_arguments<A...>::bytes, sizeof...(A)};
}
#define KERNEL(NAME)                                                                           \
  static EMULATED_NOT_SEEN void NAME##_call(void** arguments) { emulated_call(&NAME, arguments); } \
  __attribute__((constructor)) static EMULATED_NOT_SEEN void NAME##_register() { emulated_register(#NAME, &NAME, &NAME##_call); }
