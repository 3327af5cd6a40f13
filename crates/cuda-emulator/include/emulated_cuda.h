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
