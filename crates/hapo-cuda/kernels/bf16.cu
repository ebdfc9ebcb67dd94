// Numbers of 16 bits.

extern "C" __global__ void round_to_bf16(usize n, const float* x, u16* y) {
    FOR_EACH(i, n) y[i] = to_bf16(x[i]);
}

extern "C" __global__ void widen(usize n, const u16* x, float* y) {
    FOR_EACH(i, n) y[i] = from_bf16(x[i]);
}

// Columns first.. of y [rows, all] = x [rows, width].
extern "C" __global__ void round_columns(usize n, u32 width, u32 all, u32 first, const float* x, u16* y) {
    FOR_EACH(i, n) {
        usize row = i / width;
        y[row * all + first + (i - row * width)] = to_bf16(x[i]);
    }
}

extern "C" __global__ void round_in_place(usize n, float* x) {
    FOR_EACH(i, n) x[i] = from_bf16(to_bf16(x[i]));
}

// found [blocks] = whether a block's part has an element that is no bf16 number.
extern "C" __global__ void find_wider(usize n, u32 per_block, const float* x, u32* found) {
    HAPO_SHARED(float, scratch);
    usize first = (usize)blockIdx.x * per_block;
    usize end = min(n, first + per_block);
    u32 bits = 0;
    for (usize i = first + threadIdx.x; i < end; i += THREADS) bits |= __float_as_uint(x[i]);
    float any = block_max((bits & 0xffffu) ? 1.0f : 0.0f, scratch);
    if (threadIdx.x == 0) found[blockIdx.x] = any > 0.0f;
}
