// Numbers of 16 bits.

extern "C" __global__ void round_to_bf16(usize n, const float* x, u16* y) {
    FOR_EACH(i, n) y[i] = to_bf16(x[i]);
}

extern "C" __global__ void round_in_place(usize n, float* x) {
    FOR_EACH(i, n) x[i] = from_bf16(to_bf16(x[i]));
}
