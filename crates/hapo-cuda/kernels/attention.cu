// Causal attention over packed segments, in tiles: no score outlives its tile.
//
// A block has 16 by 16 threads over a tile of T queries and T keys: thread (ty, tx) holds the scores of
// queries ty, ty + 16, ... and keys tx, tx + 16, ..., and of the output the columns tx, tx + 16, ... A
// head of d columns runs in the kernel of the next larger D, its columns beyond d being zeros.
//
// A segment's keys are those of its prefix and then its own. The gradient of keys and values is one block
// per tile of keys, query head and chunk of the queries that see it; a second kernel adds these up in order: no atomics.

// The parts of the packed rows row..row + rows.
struct KeyParts {
    u32 row, rows, first_part, end_part;
};

// to [T][D + 1] = rows of one head, zero beyond the n-th row and the d-th column.
template <int D, int T>
__device__ inline void load_rows(float* to, const float* x, usize first_row, u32 n, u32 stride, u32 d, float scale) {
    for (u32 i = threadIdx.x; i < T * D; i += THREADS) {
        u32 row = i / D, column = i % D;
        to[row * (D + 1) + column] =
            row < n && column < d ? x[(first_row + row) * stride + column] * scale : 0.0f;
    }
}

// As load_rows, of the keys base.. of a segment, n in all.
template <int D, int T>
__device__ inline void load_keys(float* to, const float* x, Segment s, u32 base, u32 n, u32 stride, u32 d) {
    for (u32 i = threadIdx.x; i < T * D; i += THREADS) {
        u32 row = i / D, column = i % D;
        to[row * (D + 1) + column] =
            base + row < n && column < d ? x[key_row(s, base + row) * stride + column] : 0.0f;
    }
}

// sums [R][R] += rows ty + 16 i of a times rows tx + 16 j of b.
template <int D, int R>
__device__ inline void add_products(float (&sums)[R][R], const float* a, const float* b, u32 ty, u32 tx) {
#pragma unroll 4
    for (int c = 0; c < D; c++) {
        float left[R], right[R];
#pragma unroll
        for (int i = 0; i < R; i++) {
            left[i] = a[(ty + 16 * i) * (D + 1) + c];
            right[i] = b[(tx + 16 * i) * (D + 1) + c];
        }
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++) sums[i][j] += left[i] * right[j];
    }
}

// out [R][D / 16] += weights [row][step] times rows of values; `weights` strides are given.
template <int D, int T, int R>
__device__ inline void add_weighted(float (&out)[R][D / 16], const float* weights, u32 row_stride, u32 step_stride,
                                    const float* values, u32 ty, u32 tx) {
#pragma unroll 2
    for (int step = 0; step < T; step++) {
        float weight[R];
#pragma unroll
        for (int i = 0; i < R; i++) weight[i] = weights[(ty + 16 * i) * row_stride + step * step_stride];
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            float value = values[step * (D + 1) + tx + 16 * c];
#pragma unroll
            for (int i = 0; i < R; i++) out[i][c] += weight[i] * value;
        }
    }
}

// Over the 16 threads that share a row.
__device__ inline float row_max(float value) {
    for (int step = 8; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, step));
    return value;
}

__device__ inline float row_sum(float value) {
    for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
    return value;
}

template <int D, int T>
__device__ inline void forward(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d,
                               float scale, const float* q, const float* k, const float* v, float* out,
                               u32 out_stride, float* log_sums) {
    HAPO_SHARED(float, shared);
    const int R = T / 16, C = D / 16;
    float* q_tile = shared;
    float* kv_tile = q_tile + T * (D + 1);
    float* p_tile = kv_tile + T * (D + 1);
    QueryTile tile = tiles[blockIdx.x];
    Segment s = segments[tile.segment];
    u32 head = blockIdx.y, kv_head = head / (heads / kv_heads);
    u32 ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    u32 n = min((u32)T, s.len - tile.first);
    u32 q_stride = heads * d, kv_stride = kv_heads * d;
    k += kv_head * d;
    v += kv_head * d;
    load_rows<D, T>(q_tile, q + head * d, s.start + tile.first, n, q_stride, d, scale);
    float o[R][C] = {}, most[R], sum[R];
    for (int i = 0; i < R; i++) {
        most[i] = MINUS_INFINITY;
        sum[i] = 0;
    }
    u32 keys = s.prefix_len + tile.first + n;
    for (u32 base = 0; base < keys; base += T) {
        __syncthreads();
        load_keys<D, T>(kv_tile, k, s, base, keys, kv_stride, d);
        __syncthreads();
        float score[R][R] = {};
        add_products<D, R>(score, q_tile, kv_tile, ty, tx);
#pragma unroll
        for (int i = 0; i < R; i++) {
            u32 row = ty + 16 * i;
            u32 seen = row < n ? s.prefix_len + tile.first + row + 1 : 0;
            float here = MINUS_INFINITY;
#pragma unroll
            for (int j = 0; j < R; j++) {
                if (base + tx + 16 * j >= seen) score[i][j] = MINUS_INFINITY;
                here = fmaxf(here, score[i][j]);
            }
            here = fmaxf(most[i], row_max(here));
            float shrink = most[i] == MINUS_INFINITY ? 0.0f : expf(most[i] - here);
            most[i] = here;
            float total = 0;
#pragma unroll
            for (int j = 0; j < R; j++) {
                float p = score[i][j] == MINUS_INFINITY ? 0.0f : expf(score[i][j] - here);
                p_tile[row * (T + 1) + tx + 16 * j] = p;
                total += p;
            }
            sum[i] = sum[i] * shrink + row_sum(total);
#pragma unroll
            for (int c = 0; c < C; c++) o[i][c] *= shrink;
        }
        __syncthreads();
        load_keys<D, T>(kv_tile, v, s, base, keys, kv_stride, d);
        __syncthreads();
        add_weighted<D, T, R>(o, p_tile, T + 1, 1, kv_tile, ty, tx);
    }
    for (int i = 0; i < R; i++) {
        u32 row = ty + 16 * i;
        if (row >= n) continue;
        usize token = s.start + tile.first + row;
        for (int c = 0; c < C; c++) {
            u32 column = tx + 16 * c;
            if (column < d) out[token * out_stride + head * d + column] = o[i][c] / sum[i];
        }
        if (tx == 0) log_sums[token * heads + head] = most[i] + logf(sum[i]);
    }
}

// deltas [rows, heads] = the dot product of a head's output with its gradient. A warp per head.
template <typename T>
__device__ inline void deltas_of(u32 rows_heads, u32 heads, u32 d, const T* out, u32 out_stride, const T* dout,
                                 float* deltas) {
    u32 at = blockIdx.x * WARPS + threadIdx.x / 32;
    if (at >= rows_heads) return;
    u32 row = at / heads;
    out += (usize)row * out_stride + (at - row * heads) * d;
    dout += (usize)at * d;
    float sum = 0;
    for (u32 i = threadIdx.x % 32; i < d; i += 32) sum += number(out[i]) * number(dout[i]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) deltas[at] = sum;
}

extern "C" __global__ void attention_deltas(u32 rows_heads, u32 heads, u32 d, const float* out, u32 out_stride,
                                            const float* dout, float* deltas) {
    deltas_of(rows_heads, heads, d, out, out_stride, dout, deltas);
}

extern "C" __global__ void attention_deltas_bf16(u32 rows_heads, u32 heads, u32 d, const u16* out, u32 out_stride,
                                                 const u16* dout, float* deltas) {
    deltas_of(rows_heads, heads, d, out, out_stride, dout, deltas);
}

// Scores and gradients of probabilities of one pair of tiles become p and ds, in shared memory.
// seen(row) is the number of keys, counted from the tile's first, that query `row` sees.
template <int R, int T, typename Sees>
__device__ inline void score_grads(float (&score)[R][R], float (&dp)[R][R], const float* row_log_sums,
                                   const float* row_deltas, float* p_tile, float* ds_tile, u32 ty, u32 tx, Sees sees) {
#pragma unroll
    for (int i = 0; i < R; i++) {
        u32 row = ty + 16 * i;
#pragma unroll
        for (int j = 0; j < R; j++) {
            u32 key = tx + 16 * j;
            float p = sees(row, key) ? expf(score[i][j] - row_log_sums[row]) : 0.0f;
            if (p_tile) p_tile[row * (T + 1) + key] = p;
            ds_tile[row * (T + 1) + key] = p * (dp[i][j] - row_deltas[row]);
        }
    }
}

template <int T>
__device__ inline void load_row_numbers(float* to, const float* x, usize first_row, u32 n, u32 heads, u32 head) {
    for (u32 i = threadIdx.x; i < T; i += THREADS) to[i] = i < n ? x[(first_row + i) * heads + head] : 0.0f;
}

template <int D, int T>
__device__ inline void grad_q(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d,
                              float scale, const float* q, const float* k, const float* v, const float* log_sums,
                              const float* deltas, const float* dout, float* dq) {
    HAPO_SHARED(float, shared);
    const int R = T / 16, C = D / 16;
    float* q_tile = shared;
    float* dout_tile = q_tile + T * (D + 1);
    float* k_tile = dout_tile + T * (D + 1);
    float* v_tile = k_tile + T * (D + 1);
    float* ds_tile = v_tile + T * (D + 1);
    float* row_log_sums = ds_tile + 2 * T * (T + 1);
    float* row_deltas = row_log_sums + T;
    QueryTile tile = tiles[blockIdx.x];
    Segment s = segments[tile.segment];
    u32 head = blockIdx.y, kv_head = head / (heads / kv_heads);
    u32 ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    u32 n = min((u32)T, s.len - tile.first);
    u32 q_stride = heads * d, kv_stride = kv_heads * d;
    usize first_row = s.start + tile.first;
    load_rows<D, T>(q_tile, q + head * d, first_row, n, q_stride, d, scale);
    load_rows<D, T>(dout_tile, dout + head * d, first_row, n, q_stride, d, 1.0f);
    load_row_numbers<T>(row_log_sums, log_sums, first_row, n, heads, head);
    load_row_numbers<T>(row_deltas, deltas, first_row, n, heads, head);
    float sums[R][C] = {};
    u32 keys = s.prefix_len + tile.first + n;
    for (u32 base = 0; base < keys; base += T) {
        __syncthreads();
        load_keys<D, T>(k_tile, k + kv_head * d, s, base, keys, kv_stride, d);
        load_keys<D, T>(v_tile, v + kv_head * d, s, base, keys, kv_stride, d);
        __syncthreads();
        float score[R][R] = {}, dp[R][R] = {};
        add_products<D, R>(score, q_tile, k_tile, ty, tx);
        add_products<D, R>(dp, dout_tile, v_tile, ty, tx);
        u32 before = s.prefix_len + tile.first;
        score_grads<R, T>(score, dp, row_log_sums, row_deltas, (float*)0, ds_tile, ty, tx,
                          [=](u32 row, u32 key) { return row < n && base + key <= before + row; });
        __syncthreads();
        add_weighted<D, T, R>(sums, ds_tile, T + 1, 1, k_tile, ty, tx);
    }
    for (int i = 0; i < R; i++) {
        u32 row = ty + 16 * i;
        if (row >= n) continue;
        for (int c = 0; c < C; c++) {
            u32 column = tx + 16 * c;
            if (column < d) dq[(first_row + row) * q_stride + head * d + column] = sums[i][c] * scale;
        }
    }
}

template <int D, int T>
__device__ inline void grad_kv(const Segment* segments, const KeyChunk* chunks, u32 heads, u32 kv_heads, u32 d,
                               float scale, const float* q, const float* k, const float* v, const float* log_sums,
                               const float* deltas, const float* dout, float* parts) {
    HAPO_SHARED(float, shared);
    const int R = T / 16, C = D / 16;
    float* k_tile = shared;
    float* v_tile = k_tile + T * (D + 1);
    float* q_tile = v_tile + T * (D + 1);
    float* dout_tile = q_tile + T * (D + 1);
    float* p_tile = dout_tile + T * (D + 1);
    float* ds_tile = p_tile + T * (T + 1);
    float* row_log_sums = ds_tile + T * (T + 1);
    float* row_deltas = row_log_sums + T;
    KeyChunk tile = chunks[blockIdx.x];
    u32 head = blockIdx.y, kv_head = head / (heads / kv_heads);
    u32 ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    u32 q_stride = heads * d, kv_stride = kv_heads * d;
    load_rows<D, T>(k_tile, k + kv_head * d, tile.row, tile.rows, kv_stride, d, 1.0f);
    load_rows<D, T>(v_tile, v + kv_head * d, tile.row, tile.rows, kv_stride, d, 1.0f);
    float k_sums[R][C] = {}, v_sums[R][C] = {};
    u32 end = tile.row + tile.rows, number = 0;
    for (u32 index = tile.first_segment; index < tile.end_segment && number < tile.to; index++) {
        Segment s = segments[index];
        bool as_prefix = tile.row < s.prefix_start + s.prefix_len && end > s.prefix_start;
        bool as_own = tile.row < s.start + s.len && end > s.start;
        if (!as_prefix && !as_own) continue;
        // Own keys are seen from their own row on.
        u32 first = as_prefix || tile.row < s.start ? 0 : (tile.row - s.start) / T * T;
        for (; first < s.len && number < tile.to; first += T, number++) {
            if (number < tile.from) continue;
            u32 n = min((u32)T, s.len - first);
            usize first_row = s.start + first;
            __syncthreads();
            load_rows<D, T>(q_tile, q + head * d, first_row, n, q_stride, d, scale);
            load_rows<D, T>(dout_tile, dout + head * d, first_row, n, q_stride, d, 1.0f);
            load_row_numbers<T>(row_log_sums, log_sums, first_row, n, heads, head);
            load_row_numbers<T>(row_deltas, deltas, first_row, n, heads, head);
            __syncthreads();
            float score[R][R] = {}, dp[R][R] = {};
            add_products<D, R>(score, q_tile, k_tile, ty, tx);
            add_products<D, R>(dp, dout_tile, v_tile, ty, tx);
            score_grads<R, T>(score, dp, row_log_sums, row_deltas, p_tile, ds_tile, ty, tx,
                              [=](u32 row, u32 key) {
                                  u32 at = tile.row + key;
                                  if (row >= n || at >= end) return false;
                                  if (at >= s.prefix_start && at < s.prefix_start + s.prefix_len) return true;
                                  return at >= s.start && at - s.start <= first + row;
                              });
            __syncthreads();
            add_weighted<D, T, R>(v_sums, p_tile, 1, T + 1, dout_tile, ty, tx);
            add_weighted<D, T, R>(k_sums, ds_tile, 1, T + 1, q_tile, ty, tx);
        }
    }
    parts += part_of(tile.part, heads, head, T, d);
    for (int i = 0; i < R; i++) {
        u32 row = ty + 16 * i;
        if (row >= tile.rows) continue;
        for (int c = 0; c < C; c++) {
            u32 column = tx + 16 * c;
            if (column >= d) continue;
            parts[row * d + column] = k_sums[i][c];
            parts[T * d + row * d + column] = v_sums[i][c];
        }
    }
}

// dk, dv [rows, kv_heads, d] from the parts: chunk by chunk, in each the query heads of the group in order. Grid: tiles
// of keys, key/value heads.
template <typename T>
__device__ inline void add_kv(const KeyParts* tiles, u32 tile_rows, u32 heads, u32 kv_heads, u32 d, const float* parts,
                              T* dk, T* dv) {
    KeyParts tile = tiles[blockIdx.x];
    u32 kv_head = blockIdx.y, group = heads / kv_heads;
    for (u32 i = threadIdx.x; i < tile.rows * d; i += THREADS) {
        float k_sum = 0, v_sum = 0;
        for (u32 part = tile.first_part; part < tile.end_part; part++) {
            for (u32 head = kv_head * group; head < (kv_head + 1) * group; head++) {
                const float* from = parts + part_of(part, heads, head, tile_rows, d);
                k_sum += from[i];
                v_sum += from[tile_rows * d + i];
            }
        }
        usize at = ((usize)(tile.row + i / d) * kv_heads + kv_head) * d + i % d;
        store(dk[at], k_sum);
        store(dv[at], v_sum);
    }
}

extern "C" __global__ void attention_add_kv(const KeyParts* tiles, u32 tile_rows, u32 heads, u32 kv_heads, u32 d,
                                            const float* parts, float* dk, float* dv) {
    add_kv(tiles, tile_rows, heads, kv_heads, d, parts, dk, dv);
}

extern "C" __global__ void attention_add_kv_bf16(const KeyParts* tiles, u32 tile_rows, u32 heads, u32 kv_heads, u32 d,
                                                 const float* parts, u16* dk, u16* dv) {
    add_kv(tiles, tile_rows, heads, kv_heads, d, parts, dk, dv);
}

// One kernel per width of a head; the tiles are those of `plan.rs`.
#define ATTENTION(D, FORWARD, BACKWARD)                                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
        attention_##D(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d, float scale,   \
                      const float* q, const float* k, const float* v, float* out, u32 out_stride,                     \
                      float* log_sums) {                                                                              \
        forward<D, FORWARD>(segments, tiles, heads, kv_heads, d, scale, q, k, v, out, out_stride, log_sums);          \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
        attention_grad_q_##D(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d,         \
                             float scale, const float* q, const float* k, const float* v, const float* log_sums,      \
                             const float* deltas, const float* dout, float* dq) {                                     \
        grad_q<D, BACKWARD>(segments, tiles, heads, kv_heads, d, scale, q, k, v, log_sums, deltas, dout, dq);         \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
        attention_grad_kv_##D(const Segment* segments, const KeyChunk* chunks, u32 heads, u32 kv_heads, u32 d,        \
                              float scale, const float* q, const float* k, const float* v, const float* log_sums,     \
                              const float* deltas, const float* dout, float* parts) {                                 \
        grad_kv<D, BACKWARD>(segments, chunks, heads, kv_heads, d, scale, q, k, v, log_sums, deltas, dout, parts);    \
    }

ATTENTION(32, 64, 32)
ATTENTION(64, 64, 32)
ATTENTION(128, 64, 32)
ATTENTION(256, 32, 16)
