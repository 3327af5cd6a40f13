// Micro-benchmarks of what a persistent recurrent kernel pays on one GPU beside its arithmetic: barriers of a grid,
// the exchange of a hidden state, the ring between host and GPU, launches, graphs, and the reload of weights. It
// measures no products and no cell.
//
// Build, with CUDA 13 for a GPU of compute capability 9.0:
//
//     nvcc -O3 -std=c++17 -arch=sm_90a -o limits limits.cu
//
// Usage:
//
//     ./limits
//
// It takes no arguments, uses device 0 and prints one table for each measurement. It ends with status 1 at the first
// CUDA call that fails. The GPU must have nothing else to do.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

// ---------------------------------------------------------------------------------------------------------------
// How much is measured
// ---------------------------------------------------------------------------------------------------------------

/// A launch of the barriers or of the exchange passes this many barriers; the best of the repeats counts.
constexpr int kBarriers = 2000;
constexpr int kBarrierRepeats = 5;

/// Threads of a block, wherever a table does not say otherwise.
constexpr int kThreads = 256;

/// Blocks of the one cluster; `cluster_barriers` repeats the number.
constexpr int kClusterBlocks = 8;

constexpr uint32_t kRoundTrips = 5000;

constexpr int kLaunches = 2000;
constexpr int kSynchronisedLaunches = 500;
constexpr int kGraphWarmUps = 10;
constexpr int kGraphLaunches = 200;

/// A thread of the reload holds 24 float4, which are 96 registers.
constexpr int kFloat4sAThread = 24;
constexpr int kReloadRepeats = 10;

// ---------------------------------------------------------------------------------------------------------------
// Memory of the barriers, in words of 32 bits
// ---------------------------------------------------------------------------------------------------------------

constexpr size_t kSyncBytes = 1 << 20;
/// The counter is word 0; the word by which the gathering block releases the others lies 128 bytes on.
constexpr int kReleaseWord = 32;
/// Every block has a flag of its own, in a sector of 32 bytes of its own.
constexpr int kFirstFlag = 64;
constexpr int kFlagStride = 8;

/// Shared memory that a block of the exchange may ask for.
constexpr int kMostSharedBytes = 200 << 10;

// ---------------------------------------------------------------------------------------------------------------
// Host: errors and clocks
// ---------------------------------------------------------------------------------------------------------------

/// Ends the program if a CUDA call has failed, and says which.
void check(cudaError_t status, const char *call, int line) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "limits.cu:%d: %s: %s\n", line, call, cudaGetErrorString(status));
        std::exit(1);
    }
}

#define CHECK(call) check((call), #call, __LINE__)

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Times what the default stream does between two events.
class EventTimer {
  public:
    EventTimer() {
        CHECK(cudaEventCreate(&start_));
        CHECK(cudaEventCreate(&stop_));
    }

    ~EventTimer() {
        CHECK(cudaEventDestroy(start_));
        CHECK(cudaEventDestroy(stop_));
    }

    EventTimer(const EventTimer &) = delete;
    EventTimer &operator=(const EventTimer &) = delete;

    void start() { CHECK(cudaEventRecord(start_)); }

    /// Waits for the stream, and fails if a launch since `start` has failed.
    float stop_us() {
        CHECK(cudaEventRecord(stop_));
        CHECK(cudaEventSynchronize(stop_));
        CHECK(cudaGetLastError());
        float elapsed_ms = 0;
        CHECK(cudaEventElapsedTime(&elapsed_ms, start_, stop_));
        return elapsed_ms * 1e3f;
    }

  private:
    cudaEvent_t start_;
    cudaEvent_t stop_;
};

/// The size of the GPU, and the memory and the timer that measurements share.
struct Bench {
    int sms;
    /// Counter, release word and flags of the barriers: `kSyncBytes` of device memory.
    uint32_t *sync_words;
    /// Device memory that kernels seem to write to, so that the compiler keeps what they compute.
    float *sink;
    EventTimer timer;
};

// ---------------------------------------------------------------------------------------------------------------
// Device: words by which blocks wait for each other
// ---------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t load_acquire(const uint32_t *word) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ void store_release(uint32_t *word, uint32_t value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ void add_release(uint32_t *word, uint32_t value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ void wait_for(const uint32_t *word, uint32_t at_least) {
    while (load_acquire(word) < at_least) {
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Device: barriers of a grid
//
// They need a cooperative launch, since all blocks must be resident, and cleared words. Epochs count from 1. Where
// the threads of a block poll the flags of all blocks, each thread polls one: a block needs as many threads as the
// grid has blocks (132 <= 256 on an H100; `main` checks it).
// ---------------------------------------------------------------------------------------------------------------

enum class BarrierKind { central_counter, one_gathers, all_poll_all, cooperative_groups };

/// Every block adds one to a counter and polls it until all have.
__device__ void central_counter_barrier(uint32_t *counter, uint32_t target) {
    __syncthreads();
    if (threadIdx.x == 0) {
        add_release(counter, 1);
        wait_for(counter, target);
    }
    __syncthreads();
}

/// Every other block raises its flag; the threads of block 0 poll the flags, then one word releases the others.
__device__ void one_gathers_barrier(uint32_t *flags, uint32_t *release, uint32_t epoch) {
    __syncthreads();
    if (blockIdx.x == 0) {
        if (threadIdx.x > 0 && threadIdx.x < gridDim.x) {
            wait_for(flags + threadIdx.x * kFlagStride, epoch);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            store_release(release, epoch);
        }
    } else {
        if (threadIdx.x == 0) {
            store_release(flags + blockIdx.x * kFlagStride, epoch);
            wait_for(release, epoch);
        }
        __syncthreads();
    }
}

/// Every block raises its flag, and the threads of every block poll all flags.
__device__ void all_poll_all_barrier(uint32_t *flags, uint32_t epoch) {
    __syncthreads();
    if (threadIdx.x == 0) {
        store_release(flags + blockIdx.x * kFlagStride, epoch);
    }
    if (threadIdx.x < gridDim.x) {
        wait_for(flags + threadIdx.x * kFlagStride, epoch);
    }
    __syncthreads();
}

/// The kernel passes `count` barriers of one kind and does nothing else.
template <BarrierKind kind>
__global__ void grid_barriers(uint32_t *sync_words, int count) {
    uint32_t *flags = sync_words + kFirstFlag;
    for (int epoch = 1; epoch <= count; ++epoch) {
        if constexpr (kind == BarrierKind::central_counter) {
            central_counter_barrier(sync_words, gridDim.x * epoch);
        } else if constexpr (kind == BarrierKind::one_gathers) {
            one_gathers_barrier(flags, sync_words + kReleaseWord, epoch);
        } else if constexpr (kind == BarrierKind::all_poll_all) {
            all_poll_all_barrier(flags, epoch);
        } else {
            cg::this_grid().sync();
        }
    }
}

/// The kernel passes `count` barriers of a cluster.
__global__ void __cluster_dims__(8, 1, 1) cluster_barriers(int count) {
    for (int i = 0; i < count; ++i) {
        cg::this_cluster().sync();
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Device: the other kernels
// ---------------------------------------------------------------------------------------------------------------

/// The kernel exchanges a hidden state of `floats` values `count` times, as the steps of a recurrent kernel would.
///
/// In a step every block writes its share, passes a barrier at which all blocks poll all flags, and reads the whole
/// state into shared memory. The state is double-buffered: a block can be one step ahead of those that still read,
/// never two, so that one barrier a step is enough. Stores and loads pass by L1.
///
/// `state` holds 2 * `floats` values, shared memory `floats`; `floats` is a multiple of 4.
__global__ void exchange(uint32_t *sync_words, float *state, int floats, int count, float *sink) {
    extern __shared__ __align__(16) float copy[];
    uint32_t *flags = sync_words + kFirstFlag;
    const int share = (floats + gridDim.x - 1) / gridDim.x;
    float carried = 0;
    for (int epoch = 1; epoch <= count; ++epoch) {
        float *buffer = state + (epoch & 1) * floats;
        for (int i = threadIdx.x; i < share; i += blockDim.x) {
            const int at = blockIdx.x * share + i;
            if (at < floats) {
                __stcg(buffer + at, carried + at);
            }
        }
        all_poll_all_barrier(flags, epoch);

        const float4 *from = reinterpret_cast<const float4 *>(buffer);
        float4 *to = reinterpret_cast<float4 *>(copy);
        for (int i = threadIdx.x; i < floats / 4; i += blockDim.x) {
            to[i] = __ldcg(from + i);
        }
        __syncthreads();
        // What is read decides what the next step writes, so that no step can be left out.
        carried = copy[(threadIdx.x * 7 + epoch) % floats];
    }
    if (carried == 12345.f) {
        sink[0] = carried;
    }
}

/// The kernel answers each number that the host writes to `request`, from 1 to `count`, by writing it to `reply`.
__global__ void answer(volatile uint32_t *request, volatile uint32_t *reply, uint32_t count) {
    for (uint32_t number = 1; number <= count; ++number) {
        while (*request < number) {
        }
        __threadfence_system();
        *reply = number;
    }
}

/// The kernel does nothing; no block has a thread 9999.
__global__ void empty(float *sink) {
    if (sink != nullptr && threadIdx.x == 9999) {
        sink[0] = 1;
    }
}

/// Every thread loads `float4s` float4 into registers: a block reads one run of memory, its threads side by side.
template <int float4s>
__global__ void reload(const float4 *weights, float *sink, size_t float4s_a_block) {
    float4 held[float4s];
    const float4 *mine = weights + blockIdx.x * float4s_a_block;
#pragma unroll
    for (int i = 0; i < float4s; ++i) {
        held[i] = mine[i * blockDim.x + threadIdx.x];
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < float4s; ++i) {
        sum += held[i].x + held[i].y + held[i].z + held[i].w;
    }
    if (sum == 1.2345f) {
        sink[0] = sum;
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Measurements: barriers and the exchange
// ---------------------------------------------------------------------------------------------------------------

/// Launches a kernel cooperatively, with the words of the barriers cleared before each launch, and returns the
/// microseconds a barrier of the best launch.
float best_us_a_barrier(Bench &bench, const void *kernel, int blocks, int threads, void **arguments,
                        size_t shared_bytes) {
    float best_us = 1e9f;
    for (int repeat = 0; repeat < kBarrierRepeats; ++repeat) {
        CHECK(cudaMemset(bench.sync_words, 0, kSyncBytes));
        bench.timer.start();
        CHECK(cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(threads), arguments, shared_bytes, nullptr));
        best_us = std::min(best_us, bench.timer.stop_us());
    }
    return best_us / kBarriers;
}

/// Times barriers of a grid, by the number of blocks, the threads of a block and the kind.
void measure_grid_barriers(Bench &bench) {
    const void *const kernels[] = {
        reinterpret_cast<const void *>(grid_barriers<BarrierKind::central_counter>),
        reinterpret_cast<const void *>(grid_barriers<BarrierKind::one_gathers>),
        reinterpret_cast<const void *>(grid_barriers<BarrierKind::all_poll_all>),
        reinterpret_cast<const void *>(grid_barriers<BarrierKind::cooperative_groups>),
    };
    std::printf("\nBarrier of a grid, us\n");
    std::printf("%8s%9s%17s%13s%14s%20s\n", "blocks", "threads", "central counter", "one gathers", "all poll all",
                "cooperative groups");
    for (int blocks : {8, 32, 64, bench.sms}) {
        for (int threads : {256, 512}) {
            float us[4];
            for (int kind = 0; kind < 4; ++kind) {
                int count = kBarriers;
                void *arguments[] = {&bench.sync_words, &count};
                us[kind] = best_us_a_barrier(bench, kernels[kind], blocks, threads, arguments, 0);
            }
            std::printf("%8d%9d%17.3f%13.3f%14.3f%20.3f\n", blocks, threads, us[0], us[1], us[2], us[3]);
        }
    }
}

/// Times the exchange of a hidden state among one block an SM, by its size.
void measure_exchange(Bench &bench) {
    const int sizes[] = {256, 1024, 4096, 10240, 20480, 49152};
    const int largest = 49152;
    const void *const kernel = reinterpret_cast<const void *>(exchange);
    float *state = nullptr;
    CHECK(cudaMalloc(&state, 2 * largest * sizeof(float)));
    CHECK(cudaFuncSetAttribute(exchange, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSharedBytes));
    std::printf("\nExchange of a hidden state, all blocks read all (%d blocks x %d threads), us\n", bench.sms,
                kThreads);
    std::printf("%8s%12s\n", "floats", "a step");
    for (int floats : sizes) {
        int count = kBarriers;
        void *arguments[] = {&bench.sync_words, &state, &floats, &count, &bench.sink};
        const size_t shared_bytes = floats * sizeof(float);
        const float step_us = best_us_a_barrier(bench, kernel, bench.sms, kThreads, arguments, shared_bytes);
        std::printf("%8d%12.3f\n", floats, step_us);
    }
    CHECK(cudaFree(state));
}

/// Times the barrier of one cluster.
void measure_cluster_barrier(Bench &bench) {
    float best_us = 1e9f;
    for (int repeat = 0; repeat < kBarrierRepeats; ++repeat) {
        bench.timer.start();
        cluster_barriers<<<kClusterBlocks, kThreads>>>(kBarriers);
        best_us = std::min(best_us, bench.timer.stop_us());
    }
    std::printf("\nBarrier of a cluster, us\n");
    std::printf("%8s%9s%10s\n", "blocks", "threads", "barrier");
    std::printf("%8d%9d%10.3f\n", kClusterBlocks, kThreads, best_us / kBarriers);
}

// ---------------------------------------------------------------------------------------------------------------
// Measurements: host and GPU
// ---------------------------------------------------------------------------------------------------------------

/// Times the round trip of a number from the host to a running kernel and back, in mapped pinned host memory. Both
/// sides poll.
void measure_ring() {
    using Word = std::atomic<uint32_t>;
    static_assert(sizeof(Word) == sizeof(uint32_t), "the kernel reads the words as plain ones");
    // The two words lie 1 KiB apart, so that they share no cache line.
    constexpr size_t reply_at = 256;
    void *page = nullptr;
    void *device_page = nullptr;
    CHECK(cudaHostAlloc(&page, 4096, cudaHostAllocMapped | cudaHostAllocPortable));
    CHECK(cudaHostGetDevicePointer(&device_page, page, 0));
    Word *request = new (page) Word(0);
    Word *reply = new (static_cast<uint32_t *>(page) + reply_at) Word(0);
    uint32_t *device_words = static_cast<uint32_t *>(device_page);

    answer<<<1, 1>>>(device_words, device_words + reply_at, kRoundTrips);
    CHECK(cudaGetLastError());
    const Clock::time_point start = Clock::now();
    for (uint32_t number = 1; number <= kRoundTrips; ++number) {
        request->store(number, std::memory_order_release);
        while (reply->load(std::memory_order_acquire) < number) {
        }
    }
    const double elapsed_us = us_since(start);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeHost(page));

    std::printf("\nRing in mapped host memory, us\n");
    std::printf("%-34s%8.2f\n", "  host to GPU to host", elapsed_us / kRoundTrips);
}

/// Times launches of an empty kernel on every SM: many in a row, and one at a time. A loop of launches is checked
/// once, after it: an error stays until it is asked for, and asking takes time.
void measure_launches(Bench &bench, cudaStream_t stream) {
    double host_us = 0;
    double done_us = 0;
    // The first of two passes warms up.
    for (int pass = 0; pass < 2; ++pass) {
        const Clock::time_point start = Clock::now();
        for (int i = 0; i < kLaunches; ++i) {
            empty<<<bench.sms, kThreads, 0, stream>>>(bench.sink);
        }
        host_us = us_since(start);
        CHECK(cudaStreamSynchronize(stream));
        done_us = us_since(start);
        CHECK(cudaGetLastError());
    }

    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kSynchronisedLaunches; ++i) {
        empty<<<bench.sms, kThreads, 0, stream>>>(bench.sink);
        CHECK(cudaStreamSynchronize(stream));
    }
    const double synchronised_us = us_since(start);
    CHECK(cudaGetLastError());

    std::printf("\nLaunch of an empty kernel (%d blocks x %d threads), us\n", bench.sms, kThreads);
    std::printf("%-34s%8.2f\n", "  in a row, the host's part", host_us / kLaunches);
    std::printf("%-34s%8.2f\n", "  in a row, until done", done_us / kLaunches);
    std::printf("%-34s%8.2f\n", "  launch and synchronise", synchronised_us / kSynchronisedLaunches);
}

/// Captures a chain of `kernels` empty kernels as a graph.
cudaGraphExec_t capture_empty_kernels(Bench &bench, cudaStream_t stream, int kernels) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < kernels; ++i) {
        empty<<<bench.sms, kThreads, 0, stream>>>(bench.sink);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return executable;
}

/// Times launches of graphs of empty kernels, by the number of kernels: back to back, and one at a time.
void measure_graphs(Bench &bench, cudaStream_t stream) {
    std::printf("\nLaunch of a graph of empty kernels, us\n");
    std::printf("%9s%14s%10s%24s\n", "kernels", "back to back", "a kernel", "launch and synchronise");
    for (int kernels : {1, 5, 64, 256}) {
        cudaGraphExec_t graph = capture_empty_kernels(bench, stream, kernels);
        for (int i = 0; i < kGraphWarmUps; ++i) {
            CHECK(cudaGraphLaunch(graph, stream));
        }
        CHECK(cudaStreamSynchronize(stream));

        const Clock::time_point row_start = Clock::now();
        for (int i = 0; i < kGraphLaunches; ++i) {
            CHECK(cudaGraphLaunch(graph, stream));
        }
        CHECK(cudaStreamSynchronize(stream));
        const double row_us = us_since(row_start) / kGraphLaunches;

        const Clock::time_point single_start = Clock::now();
        for (int i = 0; i < kGraphLaunches; ++i) {
            CHECK(cudaGraphLaunch(graph, stream));
            CHECK(cudaStreamSynchronize(stream));
        }
        const double single_us = us_since(single_start) / kGraphLaunches;

        std::printf("%9d%14.2f%10.2f%24.2f\n", kernels, row_us, row_us / kernels, single_us);
        CHECK(cudaGraphExecDestroy(graph));
    }
}

/// Times the reload of weights into the registers of all SMs, at the kernel's first launch and at the best of all;
/// and an empty kernel between the same events, for comparison.
void measure_reload(Bench &bench) {
    const size_t float4s_a_block = static_cast<size_t>(kThreads) * kFloat4sAThread;
    const size_t bytes = bench.sms * float4s_a_block * sizeof(float4);
    float4 *weights = nullptr;
    CHECK(cudaMalloc(&weights, bytes));
    CHECK(cudaMemset(weights, 0, bytes));
    float first_us = 0;
    float best_us = 1e9f;
    for (int repeat = 0; repeat < kReloadRepeats; ++repeat) {
        bench.timer.start();
        reload<kFloat4sAThread><<<bench.sms, kThreads>>>(weights, bench.sink, float4s_a_block);
        const float elapsed_us = bench.timer.stop_us();
        if (repeat == 0) {
            first_us = elapsed_us;
        }
        best_us = std::min(best_us, elapsed_us);
    }
    CHECK(cudaFree(weights));

    float empty_us = 1e9f;
    for (int repeat = 0; repeat < kReloadRepeats; ++repeat) {
        bench.timer.start();
        empty<<<bench.sms, kThreads>>>(bench.sink);
        empty_us = std::min(empty_us, bench.timer.stop_us());
    }

    std::printf("\nReload of %.1f MiB into registers (%d blocks x %d threads), launch included, us\n",
                bytes / 1048576.0, bench.sms, kThreads);
    std::printf("%-34s%8.1f\n", "  first launch of the kernel", first_us);
    std::printf("%-34s%8.1f\n", "  again, from L2", best_us);
    std::printf("%-34s%8.1f\n", "  an empty kernel instead", empty_us);
}

int main() {
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    if (device.multiProcessorCount > kThreads) {
        std::fprintf(stderr, "limits: %d SMs, but a block's %d threads must poll a flag of each\n",
                     device.multiProcessorCount, kThreads);
        return 1;
    }
    std::printf("%s, %d SMs, L2 %d MiB\n", device.name, device.multiProcessorCount, device.l2CacheSize >> 20);

    Bench bench;
    bench.sms = device.multiProcessorCount;
    CHECK(cudaMalloc(&bench.sync_words, kSyncBytes));
    CHECK(cudaMalloc(&bench.sink, 1024));
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));

    measure_grid_barriers(bench);
    measure_exchange(bench);
    measure_cluster_barrier(bench);
    measure_ring();
    measure_launches(bench, stream);
    measure_graphs(bench, stream);
    measure_reload(bench);

    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(bench.sync_words));
    CHECK(cudaFree(bench.sink));
    return 0;
}
