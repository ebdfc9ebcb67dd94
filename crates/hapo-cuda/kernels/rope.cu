// Rotary position embedding: a thread turns one pair of a head.

// The pair d of a head at `from`, to the same place at `to`. turn [2 * half]: cosines, then sines, whose direction -1 turns
// back.
template <typename F, typename T>
__device__ inline void turn_pair(const float* turn, float direction, u32 half, u32 d, const F* from, T* to) {
    float cosine = turn[d], sine = turn[half + d] * direction;
    float u = number(from[d]), v = number(from[half + d]);
    store(to[d], u * cosine - v * sine);
    store(to[half + d], v * cosine + u * sine);
}

// x [rows, heads, 2 * half], in place; angles [positions, 2 * half].
template <typename T>
__device__ inline void turn_pairs(u32 pairs, u32 heads, u32 half, float direction, const float* angles,
                                  const u32* positions, T* x) {
    FOR_EACH_32(i, pairs) {
        u32 head = i / half;
        T* at = x + (usize)head * 2 * half;
        turn_pair(angles + (usize)positions[head / heads] * 2 * half, direction, half, i - head * half, at, at);
    }
}

extern "C" __global__ void rope(u32 pairs, u32 heads, u32 half, float direction, const float* angles,
                                const u32* positions, float* x) {
    turn_pairs(pairs, heads, half, direction, angles, positions, x);
}

extern "C" __global__ void rope_bf16(u32 pairs, u32 heads, u32 half, float direction, const float* angles,
                                     const u32* positions, u16* x) {
    turn_pairs(pairs, heads, half, direction, angles, positions, x);
}

// Queries [rows, heads, 2 * half] and keys [rows, kv_heads, 2 * half], turned, and values, to bf16; rows are so many
// numbers apart.
extern "C" __global__ void store_heads(u32 pairs, u32 heads, u32 kv_heads, u32 half, const float* angles,
                                       const u32* positions, const float* q, u32 q_stride, const float* k,
                                       u32 k_stride, const float* v, u32 v_stride, u16* q_to, u16* k_to, u16* v_to) {
    u32 all = heads + 2 * kv_heads;
    FOR_EACH_32(i, pairs) {
        u32 head = i / half, d = i - head * half;
        u32 row = head / all;
        head -= row * all;
        const float* turn = angles + (usize)positions[row] * 2 * half;
        if (head < heads) {
            u32 at = head * 2 * half;
            turn_pair(turn, 1.0f, half, d, q + (usize)row * q_stride + at, q_to + (usize)row * heads * 2 * half + at);
            continue;
        }
        bool is_key = head < heads + kv_heads;
        u32 at = (head - heads - (is_key ? 0 : kv_heads)) * 2 * half;
        usize to = (usize)row * kv_heads * 2 * half + at;
        if (is_key) {
            turn_pair(turn, 1.0f, half, d, k + (usize)row * k_stride + at, k_to + to);
        } else {
            const float* from = v + (usize)row * v_stride + at;
            store(v_to[to + d], from[d]);
            store(v_to[to + half + d], from[half + d]);
        }
    }
}
