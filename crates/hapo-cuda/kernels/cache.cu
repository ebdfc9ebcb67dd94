// The key/value cache: append, and attention of one new row per sequence in f32 (attention_tiles.cu has that in bf16).
//
// A page of PAGE tokens holds, for a layer and a head, keys and values [PAGE, d]; keys lie transposed [d, PAGE] unless
// the tensor cores read them. A row's context (pages of the shared prompt, own pages, its own new key) is cut into parts of PART positions, whose
// number depends on that row alone; a block reads a part once for up to GROUP query heads of a key/value
// head, and a second kernel adds the parts up in order.

#define PART 256
#define GROUP 8

// In place of a cell: the row is a copy of another.
#define NO_CELL 0xffffffff

// k, v [layers, cells, kv_heads, d] into the layers of the cache from `first` on.
template <bool TRANSPOSED, typename X, typename T>
__device__ inline void append(u32 n, const u32* cells, u32 n_cells, u32 first, u32 layers, u32 kv_heads, u32 d,
                              const X* k, const X* v, T* cache) {
    FOR_EACH_32(i, n) {
        u32 row = i / d, column = i - row * d;
        u32 token = row / kv_heads, head = row - token * kv_heads;
        u32 layer = token / n_cells, cell = cells[token - layer * n_cells], at = cell % PAGE;
        if (cell == NO_CELL) continue;
        usize keys = keys_of(cell / PAGE, first + layer, layers, kv_heads, head, d);
        store(cache[keys + (TRANSPOSED ? column * PAGE + at : at * d + column)], number(k[i]));
        store(cache[keys + (d * PAGE + at * d + column)], number(v[i]));
    }
}

// The numbers are f32 and the cache is either, or both are bf16 and the tensor cores read them.
#define CACHE_APPEND(SUFFIX, X, T, TRANSPOSED)                                                                        \
    extern "C" __global__ void cache_append##SUFFIX(u32 n, const u32* cells, u32 n_cells, u32 first, u32 layers,      \
                                                    u32 kv_heads, u32 d, const X* k, const X* v, T* cache) {          \
        append<TRANSPOSED>(n, cells, n_cells, first, layers, kv_heads, d, k, v, cache);                               \
    }

CACHE_APPEND(, float, float, true)
CACHE_APPEND(_rounded, float, u16, true)
CACHE_APPEND(_bf16, u16, u16, false)

// Location of the parts of a row and a query head: [rows, heads, parts], each d sums, the largest score and
// the sum of exponentials.
__device__ inline usize part_at(u32 row, u32 heads, u32 head, u32 parts, u32 part, u32 d) {
    return (((usize)row * heads + head) * parts + part) * (d + 2);
}

// Scores of all heads of q_tile [GROUP][d] against a key, whose numbers are `stride` apart.
template <typename T>
__device__ inline void add_scores(const float* q_tile, u32 n_heads, u32 d, const T* key, u32 stride, float* scores) {
    for (u32 c = 0; c < d; c++) {
        float value = number(key[c * stride]);
#pragma unroll
        for (int g = 0; g < GROUP; g++)
            if (g < n_heads) scores[g] += q_tile[g * d + c] * value;
    }
}

// Grid: rows, blocks of query heads, parts of the longest row.
template <typename T>
__device__ inline void parts_of_rows(const CacheRow* rows, const u32* pages, u32 layer, u32 layers, u32 heads,
                                     u32 kv_heads, u32 d, float scale, const T* cache, const float* q,
                                     const float* k, const float* v, float* parts) {
    HAPO_SHARED(float, shared);
    float* q_tile = shared;                // [GROUP][d], scaled
    float* p_tile = q_tile + GROUP * d;    // [GROUP][PART]
    float* scratch = p_tile + GROUP * PART;   // [THREADS / d][GROUP][d], at most GROUP * THREADS
    u32 row = blockIdx.x, part = blockIdx.z, group = heads / kv_heads;
    u32 blocks = (group + GROUP - 1) / GROUP;
    u32 kv_head = blockIdx.y / blocks;
    u32 first_head = kv_head * group + blockIdx.y % blocks * GROUP;
    u32 n_heads = min((u32)GROUP, (kv_head + 1) * group - first_head);
    CacheRow it = rows[row];
    u32 written = it.prompt_len + it.own_len, positions = written + 1;
    u32 first = part * PART;
    if (first >= positions) return;
    u32 n = min((u32)PART, positions - first);
    for (u32 i = threadIdx.x; i < n_heads * d; i += THREADS)
        q_tile[i] = q[((usize)row * heads + first_head) * d + i] * scale;
    __syncthreads();

    // A thread has one position: scores of all heads against its key.
    usize new_at = ((usize)row * kv_heads + kv_head) * d;
    u32 position = first + threadIdx.x;
    float scores[GROUP];
#pragma unroll
    for (int g = 0; g < GROUP; g++) scores[g] = 0;
    if (threadIdx.x < n) {
        if (position < written) {
            Cached place = cached(it, pages, position, layer, layers, kv_heads, kv_head, d);
            add_scores(q_tile, n_heads, d, cache + place.keys + place.at, PAGE, scores);
        } else {
            add_scores(q_tile, n_heads, d, k + new_at, 1, scores);
        }
    }
    // The loop runs for all heads in all threads: the reductions need every lane.
    for (u32 g = 0; g < GROUP; g++) {
        if (g >= n_heads) break;
        float score = MINUS_INFINITY;
#pragma unroll
        for (int h = 0; h < GROUP; h++)
            if (h == g && threadIdx.x < n) score = scores[h];
        float most = block_max(score, scratch);
        float e = threadIdx.x < n ? expf(score - most) : 0.0f;
        p_tile[g * PART + threadIdx.x] = e;
        float sum = block_sum(e, scratch);
        if (threadIdx.x == 0) {
            usize at = part_at(row, heads, first_head + g, gridDim.z, part, d);
            parts[at + d] = most;
            parts[at + d + 1] = sum;
        }
    }
    __syncthreads();

    // A thread has one column and every chains-th position.
    u32 chains = THREADS / d, chain = threadIdx.x / d, column = threadIdx.x % d;
    float sums[GROUP];
#pragma unroll
    for (int g = 0; g < GROUP; g++) sums[g] = 0;
    if (chain < chains) {
        for (u32 i = chain; i < n; i += chains) {
            float value;
            if (first + i < written) {
                Cached place = cached(it, pages, first + i, layer, layers, kv_heads, kv_head, d);
                value = number(cache[place.keys + (d * PAGE + place.at * d + column)]);
            } else {
                value = v[new_at + column];
            }
#pragma unroll
            for (int g = 0; g < GROUP; g++)
                if (g < n_heads) sums[g] += p_tile[g * PART + i] * value;
        }
#pragma unroll
        for (int g = 0; g < GROUP; g++) scratch[(chain * GROUP + g) * d + column] = sums[g];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < n_heads * d; i += THREADS) {
        u32 g = i / d, c = i % d;
        float total = 0;
        for (u32 j = 0; j < chains; j++) total += scratch[(j * GROUP + g) * d + c];
        parts[part_at(row, heads, first_head + g, gridDim.z, part, d) + c] = total;
    }
}

#define DECODE_PARTS(SUFFIX, T)                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
        decode_parts##SUFFIX(const CacheRow* rows, const u32* pages, u32 layer, u32 layers, u32 heads, u32 kv_heads,  \
                             u32 d, float scale, const T* cache, const float* q, const float* k, const float* v,      \
                             float* parts) {                                                                          \
        parts_of_rows(rows, pages, layer, layers, heads, kv_heads, d, scale, cache, q, k, v, parts);                  \
    }

DECODE_PARTS(, float)
DECODE_PARTS(_rounded, u16)

// out [rows, heads, d] from the parts of each row; its rows are `out_stride` apart. Grid: rows, heads.
extern "C" __global__ void decode_sum(const CacheRow* rows, u32 heads, u32 d, u32 most_parts, const float* parts,
                                      float* out, u32 out_stride) {
    u32 row = blockIdx.x, head = blockIdx.y;
    u32 positions = rows[row].prompt_len + rows[row].own_len + 1;
    u32 n = (positions + PART - 1) / PART;
    float most = MINUS_INFINITY;
    for (u32 p = 0; p < n; p++) most = fmaxf(most, parts[part_at(row, heads, head, most_parts, p, d) + d]);
    for (u32 c = threadIdx.x; c < d; c += THREADS) {
        float total = 0, sum = 0;
        for (u32 p = 0; p < n; p++) {
            usize at = part_at(row, heads, head, most_parts, p, d);
            float factor = expf(parts[at + d] - most);
            total += parts[at + c] * factor;
            sum += parts[at + d + 1] * factor;
        }
        out[(usize)row * out_stride + head * d + c] = total / sum;
    }
}
