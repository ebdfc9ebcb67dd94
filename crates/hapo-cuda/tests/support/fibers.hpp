// Enough of CUDA C++ to compile the kernels with a plain C++ compiler, and a machine that runs them.
//
// Every thread of a block is a fiber of one operating-system thread; it runs until it meets a barrier or a
// shuffle. A barrier that part of a block has left for good, a shuffle that not all lanes of a warp reach,
// and a block that waits for itself are errors. Shared memory starts as NaN and ends at a guard. Launches of a kernel
// take turns with two orders of warps and blocks, and with asynchronous copies that are done at once and when they are
// waited for, so that a race changes bits from run to run.

#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __launch_bounds__(...)
#define HAPO_SHARED(type, name) type* name = (type*)shared_memory

struct Index {
    unsigned x, y, z;
};

static Index threadIdx, blockIdx, blockDim, gridDim;
static unsigned char* shared_memory;

template <typename T>
static inline T min(T a, T b) {
    return b < a ? b : a;
}

static inline float __int_as_float(int bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

enum State { READY, AT_BARRIER, AT_SHUFFLE, DONE };

struct Fiber {
    ucontext_t start;
    jmp_buf here;
    bool begun;
    State state;
    unsigned parity;
};

static const unsigned MOST = 256;
static const size_t STACK = 64 * 1024;
static const unsigned LANES = 32;

static Fiber fibers[MOST];
static unsigned char* stacks;
static jmp_buf scheduler;
static ucontext_t scheduler_context;
static unsigned current;
static unsigned n_threads;
static unsigned long long slots[MOST / LANES][2][LANES];
static char message[256];
static void (*body)(void**);
static void** body_args;

static void to_scheduler() {
    if (_setjmp(fibers[current].here) == 0) _longjmp(scheduler, 1);
}

static void pause(State state) {
    fibers[current].state = state;
    to_scheduler();
}

static inline void __syncthreads() { pause(AT_BARRIER); }

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int with) {
    static_assert(sizeof(T) <= 8, "a slot holds 8 bytes");
    if (mask != 0xffffffffu) abort();
    unsigned warp = current / LANES, lane = current % LANES;
    unsigned parity = fibers[current].parity ^= 1;
    memcpy(&slots[warp][parity][lane], &value, sizeof(T));
    pause(AT_SHUFFLE);
    T other;
    memcpy(&other, &slots[warp][parity][lane ^ with], sizeof(T));
    return other;
}

// What a warp does together on the tensor cores, with the layouts that NVIDIA documents.
#define HAPO_WARP_TILES
static unsigned tile_words[MOST / LANES][2][LANES][6];

// Lanes deposit and meet, as in a shuffle; the words of all are there then.
static unsigned (*meet(const unsigned* words, unsigned n))[6] {
    unsigned warp = current / LANES, lane = current % LANES;
    unsigned parity = fibers[current].parity ^= 1;
    memcpy(tile_words[warp][parity][lane], words, n * 4);
    pause(AT_SHUFFLE);
    return tile_words[warp][parity];
}

static void load_tiles_of(unsigned (&to)[4], const uint16_t* row, bool transposed) {
    unsigned words[2];
    memcpy(words, &row, 8);
    if ((uintptr_t)row % 16) abort();
    auto all = meet(words, 2);
    unsigned lane = current % LANES;
    for (unsigned tile = 0; tile < 4; tile++) {
        uint16_t pair[2];
        for (unsigned i = 0; i < 2; i++) {
            unsigned r = transposed ? lane % 4 * 2 + i : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2 + i;
            const uint16_t* from;
            memcpy(&from, all[tile * 8 + r], 8);
            pair[i] = from[c];
        }
        memcpy(&to[tile], pair, 4);
    }
}

static inline void load_tiles(unsigned (&to)[4], const uint16_t* row) { load_tiles_of(to, row, false); }
static inline void load_tiles_transposed(unsigned (&to)[4], const uint16_t* row) { load_tiles_of(to, row, true); }

static inline float half_of(unsigned word, unsigned half) {
    unsigned bits = half ? word & 0xffff0000u : word << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void multiply_tiles(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    unsigned words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    auto all = meet(words, 6);
    unsigned lane = current % LANES;
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4, below = i / 2, column = lane % 4 * 2 + i % 2;
        float sum = 0;
        for (unsigned k = 0; k < 16; k++) {
            unsigned with = k % 8 / 2, later = k / 8;
            sum += half_of(all[row * 4 + with][later * 2 + below], k % 2) * half_of(all[column * 4 + with][4 + later], k % 2);
        }
        sums[i] += sum;
    }
}

// A copy is done when it was waited for and not before, or at once: hardware may do either.
static bool early;
struct Copy {
    uint16_t* to;
    const uint16_t* from;
    bool there;
    unsigned group;
};
static std::vector<Copy> copies[MOST];
static unsigned groups[MOST];

static void perform(uint16_t* to, const uint16_t* from, bool there) {
    if (there) memcpy(to, from, 16);
    else memset(to, 0, 16);
}

static inline void begin_copy(uint16_t* to, const uint16_t* from, bool there) {
    if ((uintptr_t)to % 16 || (there && (uintptr_t)from % 16)) abort();
    if (early) perform(to, from, there);
    copies[current].push_back({to, from, there, groups[current]});
}
static inline void end_group() { groups[current]++; }
template <int N>
static inline void wait_for_groups() {
    auto& mine = copies[current];
    size_t kept = 0;
    for (auto& it : mine) {
        if (it.group + N >= groups[current]) {
            mine[kept++] = it;
        } else if (!early) {
            perform(it.to, it.from, it.there);
        }
    }
    mine.resize(kept);
}

static inline unsigned pack(float low, float high) {
    auto rounded = [](float x) {
        unsigned bits;
        memcpy(&bits, &x, 4);
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    };
    return rounded(low) | rounded(high) << 16;
}

static void fiber_main() {
    for (;;) {
        body(body_args);
        pause(DONE);
    }
}

// Lets a fiber run to its next stop.
static void resume(unsigned index) {
    current = index;
    threadIdx = {index, 0, 0};
    Fiber& fiber = fibers[index];
    if (_setjmp(scheduler) == 0) {
        if (fiber.begun) _longjmp(fiber.here, 1);
        fiber.begun = true;
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = stacks + index * STACK;
        fiber.start.uc_stack.ss_size = STACK;
        fiber.start.uc_link = nullptr;
        makecontext(&fiber.start, fiber_main, 0);
        setcontext(&fiber.start);
    }
}

static int run_block(bool backwards) {
    unsigned warps = n_threads / LANES;
    for (unsigned i = 0; i < n_threads; i++) {
        fibers[i].state = READY;
        fibers[i].parity = 0;
    }
    for (;;) {
        bool ran = false;
        for (unsigned w = 0; w < warps; w++) {
            unsigned warp = backwards ? warps - 1 - w : w;
            for (;;) {
                unsigned waiting = 0, left = 0;
                for (unsigned l = 0; l < LANES; l++) {
                    unsigned index = warp * LANES + (backwards ? LANES - 1 - l : l);
                    if (fibers[index].state == READY) {
                        ran = true;
                        resume(index);
                    }
                }
                for (unsigned l = 0; l < LANES; l++) {
                    State state = fibers[warp * LANES + l].state;
                    waiting += state == AT_SHUFFLE;
                    left += state == DONE || state == AT_BARRIER;
                }
                if (waiting == 0) break;
                if (left > 0) {
                    snprintf(message, sizeof message, "warp %u: %u lanes in a shuffle, %u elsewhere", warp, waiting, left);
                    return 1;
                }
                for (unsigned l = 0; l < LANES; l++) fibers[warp * LANES + l].state = READY;
            }
        }
        unsigned at_barrier = 0, done = 0;
        for (unsigned i = 0; i < n_threads; i++) {
            at_barrier += fibers[i].state == AT_BARRIER;
            done += fibers[i].state == DONE;
        }
        if (done == n_threads) {
            for (unsigned i = 0; i < n_threads; i++) {
                if (copies[i].empty()) continue;
                snprintf(message, sizeof message, "thread %u: a copy that nobody waits for", i);
                copies[i].clear();
                return 1;
            }
            return 0;
        }
        if (at_barrier > 0 && done > 0) {
            snprintf(message, sizeof message, "%u threads at a barrier, %u gone", at_barrier, done);
            return 1;
        }
        if (at_barrier == n_threads) {
            for (unsigned i = 0; i < n_threads; i++) fibers[i].state = READY;
        } else if (!ran) {
            snprintf(message, sizeof message, "a block waits for itself");
            return 1;
        }
    }
}

template <auto Kernel>
struct Unpack;

template <typename... Args, void (*Kernel)(Args...)>
struct Unpack<Kernel> {
    template <size_t... I>
    static void call(void** args, std::index_sequence<I...>) {
        Kernel(*(Args*)args[I]...);
    }
    static void run(void** args) { call(args, std::index_sequence_for<Args...>()); }
    static const size_t count = sizeof...(Args);
};

struct Entry {
    const char* name;
    void (*run)(void**);
    size_t count;
};

extern const Entry entries[];
extern const size_t n_entries;

// 0, or 1 with a message.
extern "C" int fibers_launch(const char* name, const unsigned* grid, unsigned threads, unsigned shared, void** args,
                             size_t n_args, const char** problem) {
    static std::map<std::string, unsigned> launches;
    const unsigned GUARD = 64;
    *problem = message;
    const Entry* entry = nullptr;
    for (size_t i = 0; i < n_entries; i++)
        if (strcmp(entries[i].name, name) == 0) entry = &entries[i];
    if (!entry || entry->count != n_args || threads > MOST || threads % LANES) {
        snprintf(message, sizeof message, "%s: no such kernel with %zu arguments", name, n_args);
        return 1;
    }
    if (!stacks) stacks = (unsigned char*)aligned_alloc(64, MOST * STACK);
    unsigned char* memory = (unsigned char*)aligned_alloc(64, (shared + GUARD + 63) / 64 * 64);
    shared_memory = memory;
    n_threads = threads;
    body = entry->run;
    body_args = args;
    blockDim = {threads, 1, 1};
    gridDim = {grid[0], grid[1], grid[2]};
    unsigned turn = launches[name]++;
    bool backwards = turn % 2;
    early = turn / 2 % 2;
    size_t blocks = (size_t)grid[0] * grid[1] * grid[2];
    int failed = 0;
    for (size_t i = 0; i < blocks && !failed; i++) {
        size_t at = backwards ? blocks - 1 - i : i;
        blockIdx = {(unsigned)(at % grid[0]), (unsigned)(at / grid[0] % grid[1]), (unsigned)(at / grid[0] / grid[1])};
        memset(memory, 0xff, shared + GUARD);
        failed = run_block(backwards);
        for (unsigned g = 0; g < GUARD && !failed; g++) {
            if (memory[shared + g] != 0xff) {
                snprintf(message, sizeof message, "%s writes beyond its %u bytes of shared memory", name, shared);
                failed = 1;
            }
        }
    }
    free(memory);
    // After a failure fibers stand in the middle of a kernel: they begin anew.
    if (failed)
        for (unsigned i = 0; i < MOST; i++) fibers[i].begun = false;
    return failed;
}

// Kinds of factors: f32, bf16, and f32 of which a product reads ten bits of mantissa.
enum Kind { F32, BF16, TF32 };

static float element(const void* data, int kind, size_t at) {
    unsigned bits;
    if (kind == BF16) {
        bits = (unsigned)((const uint16_t*)data)[at] << 16;
    } else {
        memcpy(&bits, (const float*)data + at, 4);
        if (kind == TF32) bits = (bits + 0x1000) & ~0x1fffu;
    }
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// The upper half, rounded to the nearest, ties to even.
static uint16_t nearest_bf16(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// A product as BLAS has it: matrices by columns, `stride` elements apart. Unless it is to be whole, a library may split
// the inner dimension as it likes: here into as many parts as the result has few columns.
extern "C" void fibers_product(size_t m, size_t n, size_t k, int kind, const void* left, size_t left_stride,
                               int left_transposed, const void* right, size_t right_stride, int right_transposed,
                               float factor, int add, int whole, void* out, int out_kind, size_t out_stride, const float* bias) {
    size_t parts = whole ? 1 : n <= 8 ? 3 : n <= 64 ? 2 : 1;
    // Columns of the left factor, one after the other.
    float* columns = (float*)malloc(m * k * sizeof(float));
    float* sums = (float*)malloc(2 * m * sizeof(float));
    float* totals = sums + m;
    for (size_t i = 0; i < k; i++)
        for (size_t row = 0; row < m; row++)
            columns[i * m + row] = element(left, kind, left_transposed ? row * left_stride + i : i * left_stride + row);
    for (size_t column = 0; column < n; column++) {
        for (size_t row = 0; row < m; row++) totals[row] = 0;
        for (size_t part = 0; part < parts; part++) {
            for (size_t row = 0; row < m; row++) sums[row] = 0;
            for (size_t i = k * part / parts; i < k * (part + 1) / parts; i++) {
                size_t at = right_transposed ? i * right_stride + column : column * right_stride + i;
                float factor = element(right, kind, at);
                for (size_t row = 0; row < m; row++) sums[row] += columns[i * m + row] * factor;
            }
            for (size_t row = 0; row < m; row++) totals[row] += sums[row];
        }
        for (size_t row = 0; row < m; row++) {
            size_t at = column * out_stride + row;
            float sum = (add ? element(out, out_kind, at) : 0.0f) + factor * totals[row] + (bias ? bias[row] : 0.0f);
            if (out_kind == BF16) {
                ((uint16_t*)out)[at] = nearest_bf16(sum);
            } else {
                ((float*)out)[at] = sum;
            }
        }
    }
    free(columns);
    free(sums);
}
