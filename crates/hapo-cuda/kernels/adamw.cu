// The optimiser, and the squared norm that clipping needs.

// The parameters' bf16 copy, where there is one, stays that of the new numbers.
extern "C" __global__ void adamw(usize n, float gradient_scale, float decay, float beta1, float one_less_beta1,
                                 float beta2, float one_less_beta2, float rate, float root_correction, float epsilon,
                                 const float* gradient, float* parameter, float* first, float* second, u16* copy) {
    FOR_EACH(i, n) {
        float g = gradient[i] * gradient_scale;
        float m = beta1 * first[i] + one_less_beta1 * g;
        float v = beta2 * second[i] + one_less_beta2 * g * g;
        first[i] = m;
        second[i] = v;
        float p = parameter[i] * decay - rate * m / (sqrtf(v) * root_correction + epsilon);
        parameter[i] = p;
        if (copy) copy[i] = to_bf16(p);
    }
}

// Elements first..first + count of x.
struct Range {
    usize first, count;
};

// parts [ranges] = the sum of squares of each range, in f64; the host adds the parts of a tensor.
extern "C" __global__ void squared_norms(const Range* ranges, const float* x, double* parts) {
    HAPO_SHARED(double, scratch);
    Range range = ranges[blockIdx.x];
    usize end = range.first + range.count;
    double total = 0;
    for (usize base = range.first; base < end; base += 64 * THREADS) {
        float sum = 0;
        usize stop = min(end, base + 64 * THREADS);
        for (usize i = base + threadIdx.x; i < stop; i += THREADS) sum += x[i] * x[i];
        total += sum;
    }
    total = block_sum(total, scratch);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}
