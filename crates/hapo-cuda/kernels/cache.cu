// The key/value cache: append, and attention of one new row per sequence.
//
// A region holds, for a layer and a head, the keys transposed [d, capacity] and the values [capacity, d].
// A row's context (shared prompt, own tokens, its own new key) is cut into parts of PART positions, whose
// number depends on that row alone; a block reads a part once for up to GROUP query heads of a key/value
// head, and a second kernel adds the parts up in order.

struct CacheSpan {
    usize base;
    u32 capacity, len;
};

struct CacheRow {
    CacheSpan prompt, own;
};

#define PART 256
#define GROUP 8

// First element of the keys of a layer and a head.
__device__ inline usize region(CacheSpan span, u32 d, u32 layer, u32 kv_heads, u32 head) {
    return span.base + ((usize)layer * kv_heads + head) * 2 * d * span.capacity;
}

// Writes element i of [tokens, kv_heads, d] after the span's tokens.
__device__ inline void append_one(CacheSpan span, u32 layer, u32 kv_heads, u32 d, u32 token, u32 head, u32 column,
                                  float key, float value, float* cache) {
    usize keys = region(span, d, layer, kv_heads, head);
    usize at = span.len + token;
    cache[keys + (usize)column * span.capacity + at] = key;
    cache[keys + (usize)d * span.capacity + at * d + column] = value;
}

extern "C" __global__ void cache_append(usize n, usize base, u32 capacity, u32 len, u32 layer, u32 kv_heads, u32 d,
                                        const float* k, const float* v, float* cache) {
    CacheSpan span = {base, capacity, len};
    FOR_EACH(i, n) {
        u32 column = i % d, head = i / d % kv_heads, token = i / d / kv_heads;
        append_one(span, layer, kv_heads, d, token, head, column, k[i], v[i], cache);
    }
}

// One token of every row and layer: k, v [layers, rows, kv_heads, d].
extern "C" __global__ void cache_append_rows(usize n, const CacheRow* rows, u32 n_rows, u32 kv_heads, u32 d,
                                             const float* k, const float* v, float* cache) {
    FOR_EACH(i, n) {
        u32 column = i % d, head = i / d % kv_heads, row = i / d / kv_heads % n_rows;
        u32 layer = i / d / kv_heads / n_rows;
        append_one(rows[row].own, layer, kv_heads, d, 0, head, column, k[i], v[i], cache);
    }
}

// Location of the parts of a row and a query head: [rows, heads, parts], each d sums, the largest score and
// the sum of exponentials.
__device__ inline usize part_at(u32 row, u32 heads, u32 head, u32 parts, u32 part, u32 d) {
    return (((usize)row * heads + head) * parts + part) * (d + 2);
}

// Grid: rows, blocks of query heads, parts of the longest row.
extern "C" __global__ void __launch_bounds__(THREADS)
    decode_parts(const CacheRow* rows, u32 layer, u32 heads, u32 kv_heads, u32 d, float scale, const float* cache,
                 const float* q, const float* k, const float* v, float* parts) {
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
    u32 cached = it.prompt.len + it.own.len, positions = cached + 1;
    u32 first = part * PART;
    if (first >= positions) return;
    u32 n = min((u32)PART, positions - first);
    for (u32 i = threadIdx.x; i < n_heads * d; i += THREADS)
        q_tile[i] = q[((usize)row * heads + first_head) * d + i] * scale;
    __syncthreads();

    // A thread has one position: scores of all heads against its key.
    usize prompt_keys = region(it.prompt, d, layer, kv_heads, kv_head);
    usize own_keys = region(it.own, d, layer, kv_heads, kv_head);
    usize new_at = ((usize)row * kv_heads + kv_head) * d;
    u32 position = first + threadIdx.x;
    float scores[GROUP];
#pragma unroll
    for (int g = 0; g < GROUP; g++) scores[g] = 0;
    if (threadIdx.x < n) {
        const float* key;
        usize stride;
        if (position < it.prompt.len) {
            key = cache + prompt_keys + position;
            stride = it.prompt.capacity;
        } else if (position < cached) {
            key = cache + own_keys + (position - it.prompt.len);
            stride = it.own.capacity;
        } else {
            key = k + new_at;
            stride = 1;
        }
        for (u32 c = 0; c < d; c++) {
            float value = key[c * stride];
#pragma unroll
            for (int g = 0; g < GROUP; g++)
                if (g < n_heads) scores[g] += q_tile[g * d + c] * value;
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
        const float* prompt_values = cache + prompt_keys + (usize)d * it.prompt.capacity;
        const float* own_values = cache + own_keys + (usize)d * it.own.capacity;
        for (u32 i = chain; i < n; i += chains) {
            u32 at = first + i;
            float value = at < it.prompt.len ? prompt_values[(usize)at * d + column]
                          : at < cached      ? own_values[(usize)(at - it.prompt.len) * d + column]
                                             : v[new_at + column];
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

// out [rows, heads, d] from the parts of each row. Grid: rows, heads.
extern "C" __global__ void decode_sum(const CacheRow* rows, u32 heads, u32 d, u32 most_parts, const float* parts,
                                      float* out) {
    u32 row = blockIdx.x, head = blockIdx.y;
    u32 positions = rows[row].prompt.len + rows[row].own.len + 1;
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
        out[((usize)row * heads + head) * d + c] = total / sum;
    }
}
