// Rotary position embedding, in place: a thread turns one pair of a head.

// x [rows, heads, 2 * half]; angles [positions, 2 * half]: cosines, then sines. direction -1 turns back.
template <typename T>
__device__ inline void turn_pairs(u32 pairs, u32 heads, u32 half, float direction, const float* angles,
                                  const u32* positions, T* x) {
    FOR_EACH_32(i, pairs) {
        u32 head = i / half, d = i - head * half;
        const float* turn = angles + (usize)positions[head / heads] * 2 * half;
        T* at = x + (usize)head * 2 * half + d;
        float cosine = turn[d], sine = turn[half + d] * direction;
        float u = number(at[0]), v = number(at[half]);
        store(at[0], u * cosine - v * sine);
        store(at[half], v * cosine + u * sine);
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
