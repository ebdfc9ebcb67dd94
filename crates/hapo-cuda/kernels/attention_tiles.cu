// Causal attention on the tensor cores: queries, keys, values, probabilities and their gradients in bf16, sums in f32.
//
// A block has 128 queries of a head, a warp 16 of them, whose scores with 64 keys, and whose sums over values, stay in
// registers. The next keys and values are copied to shared memory while these are worked on. The gradient of queries is
// made the same way, from scores that are computed again. For the gradients of keys and values a block has 64 keys, and
// 32 of the queries that see them pass by at a time; a warp has 16 keys and half of these queries.
//
// Decoding has a block for the query heads of a row and a key/value head. Operation for operation it computes of each
// what the forward pass computes of that query, so a sampled token's log-probability has the bits of the trainer's.
//
// A warp's operations are functions that the emulator has too: tiles from shared memory, products of tiles, and
// asynchronous copies with their waits.

#ifndef HAPO_WARP_TILES
// Four tiles of 8 by 8 numbers, whose rows begin at the addresses of lanes 0..8, 8..16, ...: a lane gets two neighbours
// of row lane / 4 of each.
__device__ inline void load_tiles(u32 (&to)[4], const u16* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}

// The same, each tile transposed.
__device__ inline void load_tiles_transposed(u32 (&to)[4], const u16* row) {
    u32 at = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
}

// sums [16][8] += a [16][16] times b [16][8].
__device__ inline void multiply_tiles(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes to shared memory, or as many zeros; done when it was waited for.
__device__ inline void begin_copy(u16* to, const u16* from, bool there) {
    u32 at = (u32)__cvta_generic_to_shared(to), bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}

// Groups all copies begun since the last group.
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for a thread's own copies, but for those of the last N groups.
template <int N>
__device__ inline void wait_for_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Two numbers in bf16, the first in the lower half.
__device__ inline u32 pack(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
#endif

// Rows of shared tiles are 8 numbers longer than a head, so that eight rows lie in different banks.
#define TILE_PAD 8
#define TILE_QUERIES 128
#define TILE_KEYS 64

// Begins to copy the rows base.. that a segment's queries see, or of a segment alone its own: ROWS, n in all, zeros
// beyond them and beyond the d-th column.
template <int D, int ROWS>
__device__ inline void begin_tile(u16* to, const u16* x, Segment s, u32 base, u32 n, u32 stride, u32 d) {
    for (u32 i = threadIdx.x; i < ROWS * D / 8; i += THREADS) {
        u32 row = i / (D / 8), column = i % (D / 8) * 8;
        bool there = base + row < n && column < d;
        const u16* from = there ? x + key_row(s, base + row) * stride + column : x;
        begin_copy(to + row * (D + TILE_PAD) + column, from, there);
    }
}

// Rows start..start + len without a prefix.
__device__ inline Segment alone(u32 start, u32 len) { return {start, len, 0, 0, 0}; }

// Where the tiles begin that a lane names when 16 rows of `tile`, from `row` on, and 16 columns from `column` on are
// loaded together: the rows of the left factor of a product, or, transposed, the steps of the right one.
__device__ inline const u16* left_at(const u16* tile, u32 line, u32 row, u32 column) {
    u32 lane = threadIdx.x % 32;
    return tile + (row + lane % 16) * line + column + lane / 16 * 8;
}

// The same where the rows are the columns of a product's right factor.
__device__ inline const u16* right_at(const u16* tile, u32 line, u32 row, u32 column) {
    u32 lane = threadIdx.x % 32;
    return tile + (row + lane / 16 * 8 + lane % 8) * line + column + lane / 8 % 2 * 8;
}

// Two products of tiles side by side: sums [16][16] += a [16][16] times b [16][16].
__device__ inline void multiply_pair(float (&left)[4], float (&right)[4], const u32 (&a)[4], const u32 (&b)[4]) {
    multiply_tiles(left, a, b[0], b[1]);
    multiply_tiles(right, a, b[2], b[3]);
}

// Sums [16][16] as the left factor of the next product.
__device__ inline void pack_pair(u32 (&to)[4], const float (&left)[4], const float (&right)[4]) {
    to[0] = pack(left[0], left[1]);
    to[1] = pack(left[2], left[3]);
    to[2] = pack(right[0], right[1]);
    to[3] = pack(right[2], right[3]);
}

// The largest over the four lanes that share a row, and the sum.
__device__ inline float quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 1));
    return fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 2));
}

__device__ inline float quad_sum(float value) {
    value += __shfl_xor_sync(ALL_LANES, value, 1);
    return value + __shfl_xor_sync(ALL_LANES, value, 2);
}

// Two neighbours, whose place is a multiple of their size.
__device__ inline void store_pair(float* to, float low, float high) {
    to[0] = low;
    to[1] = high;
}
__device__ inline void store_pair(u16* to, float low, float high) { *(u32*)to = pack(low, high); }

// Both neighbours of a lane in every eighth column, times `scale`, to the row at `to`.
template <int D, typename T>
__device__ inline void store_row(T* to, const float (&sums)[D / 8][4], int half, u32 d, float scale) {
#pragma unroll
    for (int c = 0; c < D / 8; c++) {
        u32 column = c * 8 + threadIdx.x % 4 * 2;
        if (column < d) store_pair(to + column, sums[c][2 * half] * scale, sums[c][2 * half + 1] * scale);
    }
}

// The largest score so far as what exponentials are taken from: where nothing is seen, these are to be 0 and not NaN.
__device__ inline float finite(float most) { return most == MINUS_INFINITY ? 0.0f : most; }

template <int D>
__device__ inline void forward_tiles(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d,
                                     float scale, const u16* q, const u16* k, const u16* v, u16* out,
                                     u32 out_stride, float* log_sums) {
    HAPO_SHARED(u16, shared);
    const int LINE = D + TILE_PAD, STAGE = 2 * TILE_KEYS * LINE;
    QueryTile tile = tiles[blockIdx.x];
    Segment s = segments[tile.segment];
    u32 head = blockIdx.y, kv_head = head / (heads / kv_heads), q_stride = heads * d, kv_stride = kv_heads * d;
    u32 n = min((u32)TILE_QUERIES, s.len - tile.first), keys = s.prefix_len + tile.first + n;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    k += kv_head * d;
    v += kv_head * d;

    // Queries lie where the second stage comes to lie.
    u16* q_tile = shared + STAGE;
    begin_tile<D, TILE_QUERIES>(q_tile, q + head * d, alone(s.start + tile.first, n), 0, n, q_stride, d);
    end_group();
    wait_for_groups<0>();
    __syncthreads();
    u32 queries[D / 16][4];
#pragma unroll
    for (int c = 0; c < D / 16; c++)
        load_tiles(queries[c], left_at(q_tile, LINE, warp * 16, c * 16));
    __syncthreads();

    float o[D / 8][4] = {}, most[2] = {MINUS_INFINITY, MINUS_INFINITY}, sum[2] = {0, 0};
    u32 row = warp * 16 + lane / 4;
    begin_tile<D, TILE_KEYS>(shared, k, s, 0, keys, kv_stride, d);
    begin_tile<D, TILE_KEYS>(shared + TILE_KEYS * LINE, v, s, 0, keys, kv_stride, d);
    end_group();
    int stage = 0;
    for (u32 base = 0; base < keys; base += TILE_KEYS, stage ^= 1) {
        u16* next = shared + (stage ^ 1) * STAGE;
        if (base + TILE_KEYS < keys) {
            begin_tile<D, TILE_KEYS>(next, k, s, base + TILE_KEYS, keys, kv_stride, d);
            begin_tile<D, TILE_KEYS>(next + TILE_KEYS * LINE, v, s, base + TILE_KEYS, keys, kv_stride, d);
        }
        end_group();
        wait_for_groups<1>();
        __syncthreads();
        const u16* k_tile = shared + stage * STAGE;
        const u16* v_tile = k_tile + TILE_KEYS * LINE;

        float score[TILE_KEYS / 8][4] = {};
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
#pragma unroll
            for (int j = 0; j < TILE_KEYS / 16; j++) {
                u32 b[4];
                load_tiles(b, right_at(k_tile, LINE, j * 16, c * 16));
                multiply_pair(score[2 * j], score[2 * j + 1], queries[c], b);
            }
        }
        // Of a lane: rows `row` and `row + 8`, two neighbouring keys of every eight.
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 at = row + 8 * half, seen = at < n ? s.prefix_len + tile.first + at + 1 : 0;
            float here = MINUS_INFINITY;
#pragma unroll
            for (int j = 0; j < TILE_KEYS / 8; j++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float& x = score[j][2 * half + i];
                    x = base + j * 8 + lane % 4 * 2 + i < seen ? x * scale : MINUS_INFINITY;
                    here = fmaxf(here, x);
                }
            here = fmaxf(most[half], quad_max(here));
            float shrink = most[half] == MINUS_INFINITY ? 0.0f : expf(most[half] - here), total = 0;
            float from = finite(here);
            most[half] = here;
#pragma unroll
            for (int j = 0; j < TILE_KEYS / 8; j++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float& x = score[j][2 * half + i];
                    x = expf(x - from);
                    total += x;
                }
            sum[half] = sum[half] * shrink + quad_sum(total);
#pragma unroll
            for (int c = 0; c < D / 8; c++) {
                o[c][2 * half] *= shrink;
                o[c][2 * half + 1] *= shrink;
            }
        }
#pragma unroll
        for (int j = 0; j < TILE_KEYS / 16; j++) {
            u32 p[4];
            pack_pair(p, score[2 * j], score[2 * j + 1]);
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                u32 b[4];
                load_tiles_transposed(b, left_at(v_tile, LINE, j * 16, c * 16));
                multiply_pair(o[2 * c], o[2 * c + 1], p, b);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 at = row + 8 * half;
        if (at >= n) continue;
        usize token = s.start + tile.first + at;
        store_row<D>(out + token * out_stride + head * d, o, half, d, 1.0f / sum[half]);
        if (lane % 4 == 0) log_sums[token * heads + head] = most[half] + logf(sum[half]);
    }
}

template <int D>
__device__ inline void grad_q_tiles(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d,
                                    float scale, const u16* q, const u16* k, const u16* v, const float* log_sums,
                                    const float* deltas, const u16* dout, u16* dq) {
    HAPO_SHARED(u16, shared);
    const int LINE = D + TILE_PAD, STAGE = 2 * TILE_KEYS * LINE;
    QueryTile tile = tiles[blockIdx.x];
    Segment s = segments[tile.segment];
    u32 head = blockIdx.y, kv_head = head / (heads / kv_heads), q_stride = heads * d, kv_stride = kv_heads * d;
    u32 n = min((u32)TILE_QUERIES, s.len - tile.first), keys = s.prefix_len + tile.first + n;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    k += kv_head * d;
    v += kv_head * d;

    // Queries, then their outputs' gradients, lie where the second stage comes to lie.
    u32 queries[D / 16][4], douts[D / 16][4];
    u16* rows = shared + STAGE;
    Segment own = alone(s.start + tile.first, n);
    begin_tile<D, TILE_QUERIES>(rows, q + head * d, own, 0, n, q_stride, d);
    end_group();
    wait_for_groups<0>();
    __syncthreads();
#pragma unroll
    for (int c = 0; c < D / 16; c++) load_tiles(queries[c], left_at(rows, LINE, warp * 16, c * 16));
    __syncthreads();
    begin_tile<D, TILE_QUERIES>(rows, dout + head * d, own, 0, n, q_stride, d);
    end_group();
    wait_for_groups<0>();
    __syncthreads();
#pragma unroll
    for (int c = 0; c < D / 16; c++) load_tiles(douts[c], left_at(rows, LINE, warp * 16, c * 16));
    __syncthreads();

    // Of a lane: rows `row` and `row + 8`.
    u32 row = warp * 16 + lane / 4, seen[2];
    float log_sum[2], delta[2], sums[D / 8][4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 at = row + 8 * half;
        usize token = (usize)(own.start + at) * heads + head;
        seen[half] = at < n ? s.prefix_len + tile.first + at + 1 : 0;
        log_sum[half] = at < n ? log_sums[token] : 0.0f;
        delta[half] = at < n ? deltas[token] : 0.0f;
    }
    begin_tile<D, TILE_KEYS>(shared, k, s, 0, keys, kv_stride, d);
    begin_tile<D, TILE_KEYS>(shared + TILE_KEYS * LINE, v, s, 0, keys, kv_stride, d);
    end_group();
    int stage = 0;
    for (u32 base = 0; base < keys; base += TILE_KEYS, stage ^= 1) {
        u16* next = shared + (stage ^ 1) * STAGE;
        if (base + TILE_KEYS < keys) {
            begin_tile<D, TILE_KEYS>(next, k, s, base + TILE_KEYS, keys, kv_stride, d);
            begin_tile<D, TILE_KEYS>(next + TILE_KEYS * LINE, v, s, base + TILE_KEYS, keys, kv_stride, d);
        }
        end_group();
        wait_for_groups<1>();
        __syncthreads();
        const u16* k_tile = shared + stage * STAGE;
        const u16* v_tile = k_tile + TILE_KEYS * LINE;
#pragma unroll 1
        for (u32 first = 0; first < TILE_KEYS; first += 16) {
            float score[2][4] = {}, dp[2][4] = {};
            u32 b[4], ds[4];
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                load_tiles(b, right_at(k_tile, LINE, first, c * 16));
                multiply_pair(score[0], score[1], queries[c], b);
                load_tiles(b, right_at(v_tile, LINE, first, c * 16));
                multiply_pair(dp[0], dp[1], douts[c], b);
            }
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    u32 key = base + first + j * 8 + lane % 4 * 2 + i % 2;
                    float p = key < seen[i / 2] ? expf(score[j][i] * scale - log_sum[i / 2]) : 0.0f;
                    dp[j][i] = p * (dp[j][i] - delta[i / 2]);
                }
            pack_pair(ds, dp[0], dp[1]);
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                load_tiles_transposed(b, left_at(k_tile, LINE, first, c * 16));
                multiply_pair(sums[2 * c], sums[2 * c + 1], ds, b);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 at = row + 8 * half;
        if (at < n) store_row<D>(dq + (usize)(own.start + at) * q_stride + head * d, sums, half, d, scale);
    }
}

// Queries of a stage, of which a warp takes half.
#define STAGE_QUERIES 32

// The first query of a segment whose tile sees some of a tile of keys; the segment's length where none does.
__device__ inline u32 first_seen(Segment s, KeyChunk tile) {
    u32 end = tile.row + tile.rows;
    if (tile.row < s.prefix_start + s.prefix_len && end > s.prefix_start) return 0;
    if (tile.row >= s.start + s.len || end <= s.start) return s.len;
    // Own keys are seen from their own row on.
    return tile.row < s.start ? 0 : (tile.row - s.start) / STAGE_QUERIES * STAGE_QUERIES;
}

// A tile of queries that sees a tile of keys.
struct SeenFrom {
    u32 segment, first;
    Segment s;
};

// The first query of a stage, from its first one on, that sees a key of a tile; none of a stage where it is large.
__device__ inline u32 sees_from(SeenFrom stage, KeyChunk tile, u32 key) {
    u32 at = tile.row + key, own = at - stage.s.start;
    if (key >= tile.rows) return ~0u;
    // Numbers of a key that lies before a range wrap around and are large.
    if (at - stage.s.prefix_start < stage.s.prefix_len) return 0;
    return own > stage.first ? own - stage.first : 0;
}

// The `skipped`-th tile of queries from this one on.
__device__ inline SeenFrom seen_after(SeenFrom at, u32 skipped, const Segment* segments, KeyChunk tile) {
    for (;;) {
        u32 here = (at.s.len - at.first + STAGE_QUERIES - 1) / STAGE_QUERIES;
        if (skipped < here || at.segment + 1 >= tile.end_segment) {
            at.first += skipped * STAGE_QUERIES;
            return at;
        }
        skipped -= here;
        at.segment++;
        at.s = segments[at.segment];
        at.first = first_seen(at.s, tile);
    }
}

template <int D>
__device__ inline void grad_kv_tiles(const Segment* segments, const KeyChunk* chunks, u32 heads, u32 kv_heads, u32 d,
                                     float scale, const u16* q, const u16* k, const u16* v, const float* log_sums,
                                     const float* deltas, const u16* dout, float* parts) {
    HAPO_SHARED(u16, shared);
    const int LINE = D + TILE_PAD, ROWS = STAGE_QUERIES * LINE, STAGE = 2 * ROWS;
    u16* k_tile = shared;
    u16* v_tile = k_tile + TILE_KEYS * LINE;
    u16* stages = v_tile + TILE_KEYS * LINE;
    // Log-sums and deltas of both stages.
    float* numbers = (float*)(stages + 2 * STAGE);
    KeyChunk tile = chunks[blockIdx.x];
    u32 head = blockIdx.y, kv_head = head / (heads / kv_heads), q_stride = heads * d, kv_stride = kv_heads * d;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, strip = warp % 4 * 16, half = warp / 4 * 16;
    q += head * d;
    dout += head * d;

    Segment keys = alone(tile.row, tile.rows);
    begin_tile<D, TILE_KEYS>(k_tile, k + kv_head * d, keys, 0, tile.rows, kv_stride, d);
    begin_tile<D, TILE_KEYS>(v_tile, v + kv_head * d, keys, 0, tile.rows, kv_stride, d);
    // Of a stage a thread copies eight columns of every BELOW-th row, from one on; of stages only the first row differs.
    const u32 BELOW = THREADS / (D / 8);
    u32 first_row = threadIdx.x / (D / 8), column = threadIdx.x % (D / 8) * 8;
    u16* first_to = stages + first_row * LINE + column;
    q += first_row * q_stride + column;
    dout += first_row * q_stride + column;
    const float* row_numbers = (threadIdx.x < STAGE_QUERIES ? log_sums : deltas) + head;
    auto begin_queries = [&](SeenFrom at, int stage) {
        u32 row = at.s.start + at.first, rows = at.s.len - at.first;
        usize from = (usize)row * q_stride;
        u16* to = first_to + stage * STAGE;
#pragma unroll
        for (u32 i = 0; i < STAGE_QUERIES; i += BELOW) {
            if (BELOW > STAGE_QUERIES && first_row >= STAGE_QUERIES) continue;
            bool there = first_row + i < rows && column < d;
            begin_copy(to + i * LINE, there ? q + from + i * q_stride : k, there);
            begin_copy(to + ROWS + i * LINE, there ? dout + from + i * q_stride : k, there);
        }
        if (threadIdx.x < 2 * STAGE_QUERIES) {
            u32 query = threadIdx.x % STAGE_QUERIES;
            numbers[stage * 2 * STAGE_QUERIES + threadIdx.x] =
                query < rows ? row_numbers[(usize)(row + query) * heads] : 0.0f;
        }
    };
    SeenFrom next = {tile.first_segment, 0, segments[tile.first_segment]};
    next.first = first_seen(next.s, tile);
    next = seen_after(next, tile.from, segments, tile);
    begin_queries(next, 0);
    end_group();

    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    int stage = 0;
    for (u32 number = tile.from; number < tile.to; number++, stage ^= 1) {
        SeenFrom here = next;
        if (number + 1 < tile.to) {
            next = seen_after(here, 1, segments, tile);
            begin_queries(next, stage ^ 1);
        }
        end_group();
        wait_for_groups<1>();
        __syncthreads();
        const u16* q_tile = stages + stage * STAGE;
        const u16* dout_tile = q_tile + ROWS;
        const float* row_log_sums = numbers + stage * 2 * STAGE_QUERIES;
        const float* row_deltas = row_log_sums + STAGE_QUERIES;

        // Keys by queries.
        float score[2][4] = {}, dp[2][4] = {};
        u32 a[4], b[4], p[4], ds[4];
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            load_tiles(a, left_at(k_tile, LINE, strip, c * 16));
            load_tiles(b, right_at(q_tile, LINE, half, c * 16));
            multiply_pair(score[0], score[1], a, b);
            load_tiles(a, left_at(v_tile, LINE, strip, c * 16));
            load_tiles(b, right_at(dout_tile, LINE, half, c * 16));
            multiply_pair(dp[0], dp[1], a, b);
        }
        // Of a lane: keys lane / 4 and eight below, and the queries first..end of the stage that see them.
        u32 end = here.s.len - here.first;
        u32 first[2] = {sees_from(here, tile, strip + lane / 4), sees_from(here, tile, strip + lane / 4 + 8)};
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 query = half + j * 8 + lane % 4 * 2 + i % 2;
                bool seen = query >= first[i / 2] && query < end;
                float weight = expf(seen ? score[j][i] * scale - row_log_sums[query] : MINUS_INFINITY);
                score[j][i] = weight;
                dp[j][i] = weight * (dp[j][i] - row_deltas[query]);
            }
        pack_pair(p, score[0], score[1]);
        pack_pair(ds, dp[0], dp[1]);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            load_tiles_transposed(b, left_at(dout_tile, LINE, half, c * 16));
            multiply_pair(dv[2 * c], dv[2 * c + 1], p, b);
            load_tiles_transposed(b, left_at(q_tile, LINE, half, c * 16));
            multiply_pair(dk[2 * c], dk[2 * c + 1], ds, b);
        }
        __syncthreads();
    }

    // The two halves of the queries: the second lends its sums where the stages were.
    float* lent = (float*)stages;
    parts += part_of(tile.part, heads, head, TILE_KEYS, d);
    auto store = [&](float (&sums)[D / 8][4], float* to, float factor) {
#pragma unroll
        for (int below = 0; below < 2; below++) {
            float* row = lent + (strip + lane / 4 + 8 * below) * D;
            if (half) store_row<D>(row, sums, below, D, 1.0f);
        }
        __syncthreads();
#pragma unroll
        for (int below = 0; below < 2; below++) {
            u32 key = strip + lane / 4 + 8 * below;
            if (half || key >= tile.rows) continue;
#pragma unroll
            for (int c = 0; c < D / 8; c++)
#pragma unroll
                for (int i = 0; i < 2; i++) sums[c][2 * below + i] += lent[key * D + c * 8 + lane % 4 * 2 + i];
            store_row<D>(to + key * d, sums, below, d, factor);
        }
        __syncthreads();
    };
    store(dk, parts, scale);
    store(dv, parts + TILE_KEYS * d, 1.0f);
}

#define DECODE_HEADS 16
#define SCORE_LINE (TILE_KEYS + 8)

// Grid: rows, blocks of query heads. Keys and values of a tile are copied while those of the one before are worked on.
template <int D>
__device__ inline void decode_rows(const CacheRow* rows, const u32* pages, u32 layer, u32 layers, u32 heads,
                                   u32 kv_heads, u32 d, float scale, const u16* cache, const u16* q, const u16* k,
                                   const u16* v, u16* out, u32 out_stride) {
    HAPO_SHARED(u16, shared);
    const int LINE = D + TILE_PAD, STAGE = 2 * TILE_KEYS * LINE, PAIRS = (D / 16 + WARPS - 1) / WARPS;
    // Of each query head: exponentials in f32 and in bf16, and the largest score of every warp's keys.
    float* e_tile = (float*)(shared + 2 * STAGE);                   // [DECODE_HEADS][SCORE_LINE]
    u16* p_tile = (u16*)(e_tile + DECODE_HEADS * SCORE_LINE);       // [DECODE_HEADS][SCORE_LINE]
    float* most_of = (float*)(p_tile + DECODE_HEADS * SCORE_LINE);  // [DECODE_HEADS][WARPS]
    const u16** keys_at = (const u16**)(most_of + DECODE_HEADS * WARPS);  // [2][TILE_KEYS], 0 beyond the context
    const u16** values_at = keys_at + 2 * TILE_KEYS;
    u32 row = blockIdx.x, group = heads / kv_heads, blocks = (group + DECODE_HEADS - 1) / DECODE_HEADS;
    u32 kv_head = blockIdx.y / blocks, first_head = kv_head * group + blockIdx.y % blocks * DECODE_HEADS;
    u32 n_heads = min((u32)DECODE_HEADS, (kv_head + 1) * group - first_head);
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    CacheRow it = rows[row];
    u32 written = it.prompt_len + it.own_len, keys = written + 1;
    usize new_at = ((usize)row * kv_heads + kv_head) * d;

    // The heads of a row are the rows of a tile, which lies where the second stage comes to lie.
    u16* q_tile = shared + STAGE;
    begin_tile<D, DECODE_HEADS>(q_tile, q + ((usize)row * heads + first_head) * d, alone(0, n_heads), 0, n_heads, d, d);
    end_group();
    wait_for_groups<0>();
    __syncthreads();
    u32 queries[D / 16][4];
#pragma unroll
    for (int c = 0; c < D / 16; c++) load_tiles(queries[c], left_at(q_tile, LINE, 0, c * 16));
    __syncthreads();

    // As many threads find where the keys and values of a tile are; others read it after a barrier.
    auto find_keys = [&](int stage, u32 base) {
        if (threadIdx.x >= TILE_KEYS) return;
        u32 position = base + threadIdx.x;
        const u16 *key = 0, *value = 0;
        if (position < written) {
            Cached at = cached(it, pages, position, layer, layers, kv_heads, kv_head, d);
            key = cache + at.keys + at.at * d;
            value = key + d * PAGE;
        } else if (position < keys) {
            key = k + new_at;
            value = v + new_at;
        }
        keys_at[stage * TILE_KEYS + threadIdx.x] = key;
        values_at[stage * TILE_KEYS + threadIdx.x] = value;
    };
    auto begin_keys = [&](int stage) {
        u16* to = shared + stage * STAGE;
#pragma unroll
        for (u32 first = 0; first < TILE_KEYS * D / 8; first += THREADS) {
            u32 i = first + threadIdx.x, r = i / (D / 8), column = i % (D / 8) * 8;
            const u16 *key = keys_at[stage * TILE_KEYS + r], *value = values_at[stage * TILE_KEYS + r];
            bool there = key && column < d;
            begin_copy(to + r * LINE + column, there ? key + column : k, there);
            begin_copy(to + (TILE_KEYS + r) * LINE + column, there ? value + column : k, there);
        }
    };
    float o[PAIRS][2][4] = {}, most[2] = {MINUS_INFINITY, MINUS_INFINITY}, sum[2] = {0, 0};
    find_keys(0, 0);
    __syncthreads();
    begin_keys(0);
    end_group();
    find_keys(1, TILE_KEYS);
    __syncthreads();
    int stage = 0;
    for (u32 base = 0; base < keys; base += TILE_KEYS, stage ^= 1) {
        if (base + TILE_KEYS < keys) begin_keys(stage ^ 1);
        end_group();
        wait_for_groups<1>();
        __syncthreads();
        find_keys(stage, base + 2 * TILE_KEYS);
        const u16* k_tile = shared + stage * STAGE;
        const u16* v_tile = k_tile + TILE_KEYS * LINE;

        // A warp has eight keys, a lane two of them for two heads.
        float mine[4] = {};
#pragma unroll
        for (int c = 0; c < D / 32; c++) {
            u32 b[4];
            load_tiles(b, k_tile + (warp * 8 + lane % 8) * LINE + c * 32 + lane / 8 * 8);
            multiply_tiles(mine, queries[2 * c], b[0], b[1]);
            multiply_tiles(mine, queries[2 * c + 1], b[2], b[3]);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 head = lane / 4 + 8 * half, seen = head < n_heads ? keys : 0;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float& x = mine[2 * half + i];
                x = base + warp * 8 + lane % 4 * 2 + i < seen ? x * scale : MINUS_INFINITY;
            }
            float here = quad_max(fmaxf(mine[2 * half], mine[2 * half + 1]));
            if (lane % 4 == 0) most_of[head * WARPS + warp] = here;
        }
        __syncthreads();
        float shrink[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 head = lane / 4 + 8 * half, at = head * SCORE_LINE + warp * 8 + lane % 4 * 2;
            float here = most[half];
#pragma unroll
            for (int w = 0; w < WARPS; w++) here = fmaxf(here, most_of[head * WARPS + w]);
            shrink[half] = most[half] == MINUS_INFINITY ? 0.0f : expf(most[half] - here);
            most[half] = here;
            float from = finite(here), low = expf(mine[2 * half] - from), high = expf(mine[2 * half + 1] - from);
            store_pair(e_tile + at, low, high);
            store_pair(p_tile + at, low, high);
#pragma unroll
            for (int c = 0; c < PAIRS; c++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    o[c][i][2 * half] *= shrink[half];
                    o[c][i][2 * half + 1] *= shrink[half];
                }
        }
        __syncthreads();
        // One warp adds a head's exponentials up, in the order of the forward pass.
        if (warp == 0) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float* from = e_tile + (lane / 4 + 8 * half) * SCORE_LINE + lane % 4 * 2;
                float total = 0;
#pragma unroll
                for (int j = 0; j < TILE_KEYS / 8; j++)
#pragma unroll
                    for (int i = 0; i < 2; i++) total += from[j * 8 + i];
                sum[half] = sum[half] * shrink[half] + quad_sum(total);
            }
        }
        // A warp has sixteen columns of the values, or none.
#pragma unroll
        for (int j = 0; j < TILE_KEYS / 16; j++) {
            u32 p[4], b[4];
            load_tiles(p, left_at(p_tile, SCORE_LINE, 0, j * 16));
#pragma unroll
            for (int c = 0; c < PAIRS; c++) {
                if ((c * WARPS + warp) * 16 >= D) continue;
                load_tiles_transposed(b, left_at(v_tile, LINE, j * 16, (c * WARPS + warp) * 16));
                multiply_pair(o[c][0], o[c][1], p, b);
            }
        }
        __syncthreads();
    }
    if (warp == 0 && lane % 4 == 0) {
        most_of[lane / 4] = sum[0];
        most_of[lane / 4 + 8] = sum[1];
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 head = lane / 4 + 8 * half;
        if (head >= n_heads) continue;
        u16* to = out + (usize)row * out_stride + (first_head + head) * d;
        float factor = 1.0f / most_of[head];
#pragma unroll
        for (int c = 0; c < PAIRS; c++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                u32 column = (c * WARPS + warp) * 16 + i * 8 + lane % 4 * 2;
                if (column < d) store_pair(to + column, o[c][i][2 * half] * factor, o[c][i][2 * half + 1] * factor);
            }
    }
}

// One kernel per width of a head. Of the first and the third as many blocks as said are to fit a multiprocessor.
#define ATTENTION_TILES(D, BLOCKS)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                     \
        attention_tiles_##D(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d,          \
                            float scale, const u16* q, const u16* k, const u16* v, u16* out, u32 out_stride,          \
                            float* log_sums) {                                                                        \
        forward_tiles<D>(segments, tiles, heads, kv_heads, d, scale, q, k, v, out, out_stride, log_sums);             \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
        attention_tiles_grad_q_##D(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d,   \
                                   float scale, const u16* q, const u16* k, const u16* v, const float* log_sums,      \
                                   const float* deltas, const u16* dout, u16* dq) {                                   \
        grad_q_tiles<D>(segments, tiles, heads, kv_heads, d, scale, q, k, v, log_sums, deltas, dout, dq);             \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                     \
        attention_tiles_grad_kv_##D(const Segment* segments, const KeyChunk* chunks, u32 heads, u32 kv_heads, u32 d,  \
                                    float scale, const u16* q, const u16* k, const u16* v, const float* log_sums,     \
                                    const float* deltas, const u16* dout, float* parts) {                             \
        grad_kv_tiles<D>(segments, chunks, heads, kv_heads, d, scale, q, k, v, log_sums, deltas, dout, parts);        \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
        attention_tiles_decode_##D(const CacheRow* rows, const u32* pages, u32 layer, u32 layers, u32 heads,          \
                                   u32 kv_heads, u32 d, float scale, const u16* cache, const u16* q, const u16* k,    \
                                   const u16* v, u16* out, u32 out_stride) {                                          \
        decode_rows<D>(rows, pages, layer, layers, heads, kv_heads, d, scale, cache, q, k, v, out, out_stride);       \
    }

ATTENTION_TILES(32, 2)
ATTENTION_TILES(64, 2)
ATTENTION_TILES(128, 1)
