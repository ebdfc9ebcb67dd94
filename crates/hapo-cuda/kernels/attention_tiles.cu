// Causal attention on the tensor cores: queries, keys, values and probabilities in bf16, sums in f32.
//
// A block has 128 queries of a head, a warp 16 of them, whose scores with 64 keys, and whose sums over values, stay in
// registers. The next keys and values are copied to shared memory while these are worked on. What a warp does together
// is behind functions, which the emulator has as well: tiles from shared memory, products of tiles, copies that are
// waited for.

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

// What was begun since the last one is a group.
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

// Begins to copy the keys or values base.. of a segment, n in all, zeros beyond them and beyond the d-th column.
template <int D>
__device__ inline void begin_tile(u16* to, const u16* x, Segment s, u32 base, u32 n, u32 stride, u32 d) {
    for (u32 i = threadIdx.x; i < TILE_KEYS * D / 8; i += THREADS) {
        u32 row = i / (D / 8), column = i % (D / 8) * 8;
        bool there = base + row < n && column < d;
        const u16* from = there ? x + key_row(s, base + row) * stride + column : x;
        begin_copy(to + row * (D + TILE_PAD) + column, from, there);
    }
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

template <int D>
__device__ inline void forward_tiles(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d,
                                     float scale, const float* q, const u16* k, const u16* v, float* out,
                                     float* log_sums) {
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
    for (u32 i = threadIdx.x; i < TILE_QUERIES * D / 2; i += THREADS) {
        u32 row = i / (D / 2), column = i % (D / 2) * 2;
        const float* from = q + (usize)(s.start + tile.first + row) * q_stride + head * d + column;
        u32 both = row < n && column < d ? pack(from[0], from[1]) : 0;
        *(u32*)(q_tile + row * LINE + column) = both;
    }
    __syncthreads();
    u32 queries[D / 16][4];
#pragma unroll
    for (int c = 0; c < D / 16; c++)
        load_tiles(queries[c], q_tile + (warp * 16 + lane % 16) * LINE + c * 16 + lane / 16 * 8);
    __syncthreads();

    float o[D / 8][4] = {}, most[2] = {MINUS_INFINITY, MINUS_INFINITY}, sum[2] = {0, 0};
    u32 row = warp * 16 + lane / 4;
    begin_tile<D>(shared, k, s, 0, keys, kv_stride, d);
    begin_tile<D>(shared + TILE_KEYS * LINE, v, s, 0, keys, kv_stride, d);
    end_group();
    int stage = 0;
    for (u32 base = 0; base < keys; base += TILE_KEYS, stage ^= 1) {
        u16* next = shared + (stage ^ 1) * STAGE;
        if (base + TILE_KEYS < keys) {
            begin_tile<D>(next, k, s, base + TILE_KEYS, keys, kv_stride, d);
            begin_tile<D>(next + TILE_KEYS * LINE, v, s, base + TILE_KEYS, keys, kv_stride, d);
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
                load_tiles(b, k_tile + (j * 16 + lane / 16 * 8 + lane % 8) * LINE + c * 16 + lane / 8 % 2 * 8);
                multiply_tiles(score[2 * j], queries[c], b[0], b[1]);
                multiply_tiles(score[2 * j + 1], queries[c], b[2], b[3]);
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
            most[half] = here;
#pragma unroll
            for (int j = 0; j < TILE_KEYS / 8; j++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float& x = score[j][2 * half + i];
                    x = x == MINUS_INFINITY ? 0.0f : expf(x - here);
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
            u32 p[4] = {pack(score[2 * j][0], score[2 * j][1]), pack(score[2 * j][2], score[2 * j][3]),
                        pack(score[2 * j + 1][0], score[2 * j + 1][1]), pack(score[2 * j + 1][2], score[2 * j + 1][3])};
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                u32 b[4];
                load_tiles_transposed(b, v_tile + (j * 16 + lane % 16) * LINE + c * 16 + lane / 16 * 8);
                multiply_tiles(o[2 * c], p, b[0], b[1]);
                multiply_tiles(o[2 * c + 1], p, b[2], b[3]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 at = row + 8 * half;
        if (at >= n) continue;
        usize token = s.start + tile.first + at;
#pragma unroll
        for (int c = 0; c < D / 8; c++) {
            u32 column = c * 8 + lane % 4 * 2;
            if (column >= d) continue;
            float* to = out + token * q_stride + head * d + column;
            to[0] = o[c][2 * half] / sum[half];
            to[1] = o[c][2 * half + 1] / sum[half];
        }
        if (lane % 4 == 0) log_sums[token * heads + head] = most[half] + logf(sum[half]);
    }
}

#define ATTENTION_TILES(D)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                             \
        attention_tiles_##D(const Segment* segments, const QueryTile* tiles, u32 heads, u32 kv_heads, u32 d,          \
                            float scale, const float* q, const u16* k, const u16* v, float* out, float* log_sums) {   \
        forward_tiles<D>(segments, tiles, heads, kv_heads, d, scale, q, k, v, out, log_sums);                         \
    }

ATTENTION_TILES(32)
ATTENTION_TILES(64)
ATTENTION_TILES(128)
