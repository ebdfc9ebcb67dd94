// In front of every kernel file: short types, and reductions whose order is fixed by the launch alone.
//
// Every block has 256 threads. Indices that may pass 32 bits are `usize`.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long usize;
typedef unsigned long long u64;

#define THREADS 256
#define WARPS (THREADS / 32)
#define ALL_LANES 0xffffffffu

// Shared memory of the launch: one array per block.
#ifndef HAPO_SHARED
#define HAPO_SHARED(type, name)         \
    extern __shared__ double raw_##name[]; \
    type* name = (type*)raw_##name
#endif

#define MINUS_INFINITY (-__int_as_float(0x7f800000))

// A grid may be smaller than the work: every thread takes its element and those a whole grid apart.
#define FOR_EACH(i, n)                                                              \
    for (usize i = (usize)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (usize)gridDim.x * blockDim.x)

// The same for fewer than 2^31 elements, whose indices are divided: a division of 64 bits is a call.
#define FOR_EACH_32(i, n) for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

template <typename T>
__device__ inline T warp_sum(T value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
}

__device__ inline float warp_max(float value) {
    for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, step));
    return value;
}

// The sum over a block, in every thread: lanes in a butterfly, warps in order. `scratch` holds WARPS.
template <typename T>
__device__ inline T block_sum(T value, T* scratch) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    T sum = 0;
    for (int warp = 0; warp < WARPS; warp++) sum += scratch[warp];
    __syncthreads();
    return sum;
}

__device__ inline float block_max(float value, float* scratch) {
    value = warp_max(value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    float most = scratch[0];
    for (int warp = 1; warp < WARPS; warp++) most = fmaxf(most, scratch[warp]);
    __syncthreads();
    return most;
}

// Of a row of logits that lie d below its largest: the sums of e^d, of e^d d, and of e^d at another temperature.
struct SoftmaxSums {
    double plain, weighted, tempered;
};

// The same in every thread. `scratch` holds WARPS.
__device__ inline SoftmaxSums softmax_sums(const float* z, u32 vocabulary, float most, float inverse,
                                           double* scratch) {
    double plain = 0, weighted = 0, tempered = 0;
    for (u32 i = threadIdx.x; i < vocabulary; i += THREADS) {
        // A logit of minus infinity has no weight. One that is NaN stays it, and all statistics with it.
        float d = z[i] - most;
        if (d < -1e4f) d = -1e4f;
        float e = expf(d);
        plain += e;
        weighted += e * d;
        tempered += inverse == 1.0f ? e : expf(d * inverse);
    }
    plain = block_sum(plain, scratch);
    weighted = block_sum(weighted, scratch);
    tempered = block_sum(tempered, scratch);
    return {plain, weighted, tempered};
}

// Of a token whose logit is z: its log-probabilities at a temperature and at 1, the row's entropy, and the logarithms
// of its sums. A draw and the head of training both call this, so their numbers have the same bits.
struct TokenStats {
    float log_prob, log_prob_t1, entropy, log_tempered, log_plain;
};

__device__ inline TokenStats token_stats(SoftmaxSums sums, float z, float most, float inverse) {
    float d = z - most, log_tempered = (float)log(sums.tempered);
    double log_plain = log(sums.plain);
    float entropy = (float)fmax(log_plain - sums.weighted / sums.plain, 0.0);
    return {d * inverse - log_tempered, d - (float)log_plain, entropy, log_tempered, (float)log_plain};
}

// The upper half of an f32, rounded to the nearest, ties to even.
__device__ inline u16 to_bf16(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits >> 16) | 0x40);
    return (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// The upper half of an f32 after 16 random bits are added: rounded up with a probability equal to the lower half's
// share of one unit of the upper half. Infinities and NaN stay as they are.
__device__ inline u16 to_bf16_randomly(float x, u32 draw) {
    u32 bits = __float_as_uint(x);
    return (u16)(((bits & 0x7f800000u) == 0x7f800000u ? bits : bits + draw) >> 16);
}

__device__ inline float from_bf16(u16 x) { return __int_as_float((int)((u32)x << 16)); }

// A number in memory, which is f32 or bf16, and what memory keeps of one.
__device__ inline float number(float x) { return x; }
__device__ inline float number(u16 x) { return from_bf16(x); }
__device__ inline void store(float& to, float x) { to = x; }
__device__ inline void store(u16& to, float x) { to = to_bf16(x); }

// Four neighbours, read and written at once: where they lie is a multiple of their size.
template <typename T>
struct alignas(4 * sizeof(T)) Four {
    T x[4];
};

// Whether four neighbours at `at` may be read and written at once.
template <typename T>
__device__ inline bool is_whole(const T* at) {
    return (usize)at % sizeof(Four<T>) == 0;
}

// The same of every four of rows of a width.
template <typename A, typename B, typename C, typename D>
__device__ inline bool rows_are_whole(u32 width, const A* a, const B* b, const C* c, const D* d) {
    return width % 4 == 0 && is_whole(a) && is_whole(b) && is_whole(c) && is_whole(d);
}

// Four neighbours, one by one where they do not lie so.
template <typename T>
__device__ inline Four<T> four_of(const T* at, bool whole) {
    if (whole) return *(const Four<T>*)at;
    return {{at[0], at[1], at[2], at[3]}};
}

template <typename T>
__device__ inline void store_four(T* at, bool whole, Four<T> four) {
    if (whole) {
        *(Four<T>*)at = four;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) at[k] = four.x[k];
}

// Tables of attention: rows start..start + len, which see the rows of a prefix and then their own.
struct Segment {
    u32 start, len, prefix_start, prefix_len, prefix_group;
};

// Queries first.. of a segment.
struct QueryTile {
    u32 segment, first;
};

// The packed row of key j of a segment.
__device__ inline usize key_row(Segment s, u32 j) {
    return j < s.prefix_len ? s.prefix_start + j : s.start + (j - s.prefix_len);
}

// Packed rows row..row + rows, the segments of their prefix group, and of the tiles of queries that see these rows
// those numbered from..to; the sums go to `part`.
struct KeyChunk {
    u32 row, rows, first_segment, end_segment, from, to, part;
};

// Where the sums of one head and chunk lie: keys' gradients, then values', each [tile][d].
__device__ inline usize part_of(u32 part, u32 heads, u32 head, u32 tile, u32 d) {
    return ((usize)part * heads + head) * 2 * tile * d;
}

// A decoded row: its context is that many tokens of pages of its prompt, as many of its own pages, and its new one.
struct CacheRow {
    u32 first_page, prompt_len, own_len;
};

#define PAGE 64

// First element of the keys of a page for a layer and a head.
__device__ inline usize keys_of(u32 page, u32 layer, u32 layers, u32 kv_heads, u32 head, u32 d) {
    return (((usize)page * layers + layer) * kv_heads + head) * 2 * d * PAGE;
}

// Where a position of a row's context is: the keys of its page, and its place in the page.
struct Cached {
    usize keys;
    u32 at;
};

__device__ inline Cached cached(CacheRow row, const u32* pages, u32 position, u32 layer, u32 layers, u32 kv_heads,
                                u32 head, u32 d) {
    u32 own = position - row.prompt_len;
    bool of_prompt = position < row.prompt_len;
    u32 index = of_prompt ? position / PAGE : (row.prompt_len + PAGE - 1) / PAGE + own / PAGE;
    return {keys_of(pages[row.first_page + index], layer, layers, kv_heads, head, d),
            (of_prompt ? position : own) % PAGE};
}
