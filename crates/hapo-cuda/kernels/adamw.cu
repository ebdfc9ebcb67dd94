// The optimiser, and the squared norm that clipping needs.

extern "C" __global__ void adamw(usize n, float gradient_scale, float decay, float beta1, float one_less_beta1,
                                 float beta2, float one_less_beta2, float rate, float root_correction, float epsilon,
                                 const float* gradient, float* parameter, float* first, float* second) {
    FOR_EACH(i, n) {
        float g = gradient[i] * gradient_scale;
        float m = beta1 * first[i] + one_less_beta1 * g;
        float v = beta2 * second[i] + one_less_beta2 * g * g;
        first[i] = m;
        second[i] = v;
        parameter[i] = parameter[i] * decay - rate * m / (sqrtf(v) * root_correction + epsilon);
    }
}

// parts [blocks] = the sum of squares of `per_block` elements each, in f64; the host adds the parts.
extern "C" __global__ void squared_norm(usize n, u32 per_block, const float* x, double* parts) {
    HAPO_SHARED(double, scratch);
    usize first = (usize)blockIdx.x * per_block;
    usize end = min(n, first + per_block);
    double total = 0;
    for (usize base = first; base < end; base += 64 * THREADS) {
        float sum = 0;
        usize stop = min(end, base + 64 * THREADS);
        for (usize i = base + threadIdx.x; i < stop; i += THREADS) sum += x[i] * x[i];
        total += sum;
    }
    total = block_sum(total, scratch);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}
