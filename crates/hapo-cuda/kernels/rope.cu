// Rotary position embedding, in place: a thread turns one pair of a head.

// x [rows, heads, 2 * half]; angles [positions, 2 * half]: cosines, then sines. direction -1 turns back.
extern "C" __global__ void rope(u32 pairs, u32 heads, u32 half, float direction, const float* angles,
                                const u32* positions, float* x) {
    FOR_EACH_32(i, pairs) {
        u32 head = i / half, d = i - head * half;
        const float* turn = angles + (usize)positions[head / heads] * 2 * half;
        float* at = x + (usize)head * 2 * half + d;
        float cosine = turn[d], sine = turn[half + d] * direction;
        float u = at[0], v = at[half];
        at[0] = u * cosine - v * sine;
        at[half] = v * cosine + u * sine;
    }
}
