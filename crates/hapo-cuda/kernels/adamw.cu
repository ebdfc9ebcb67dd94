// The optimiser, and the squared norm that clipping needs.

struct Factors {
    float gradient, decay, beta1, one_less_beta1, beta2, one_less_beta2, rate, root_correction, epsilon;
};

// A parameter after its step; m and v become the new moments.
__device__ inline float updated(Factors f, float gradient, float p, float& m, float& v) {
    float g = gradient * f.gradient;
    m = f.beta1 * m + f.one_less_beta1 * g;
    v = f.beta2 * v + f.one_less_beta2 * g * g;
    return p * f.decay - f.rate * m / (sqrtf(v) * f.root_correction + f.epsilon);
}

// Parameters in f32.
struct Whole {
    float* numbers;
    __device__ inline float at(usize i) const { return numbers[i]; }
    __device__ inline void set(usize i, float x) const { numbers[i] = x; }
};

// The same in two halves: the nearest bf16 number, ties away from zero, and what the f32 has beyond it, with a sign.
struct Split {
    u16* packed;
    u16* tails;
    __device__ inline float at(usize i) const {
        return __int_as_float((int)(((u32)packed[i] << 16) + (u32)(int)(short)tails[i]));
    }
    __device__ inline void set(usize i, float x) const {
        // A GPU's NaN would carry into the sign.
        u32 bits = x == x ? __float_as_uint(x) : 0x7fc00000u;
        packed[i] = (u16)((bits + 0x8000u) >> 16);
        tails[i] = (u16)bits;
    }
};

template <typename P>
__device__ inline void update(usize n, Factors f, const float* gradient, P parameter, float* first, float* second) {
    FOR_EACH(i, n) {
        float m = first[i], v = second[i];
        parameter.set(i, updated(f, gradient[i], parameter.at(i), m, v));
        first[i] = m;
        second[i] = v;
    }
}

extern "C" __global__ void adamw(usize n, float gradient_scale, float decay, float beta1, float one_less_beta1,
                                 float beta2, float one_less_beta2, float rate, float root_correction, float epsilon,
                                 const float* gradient, float* parameter, float* first, float* second) {
    Factors f = {gradient_scale, decay, beta1, one_less_beta1, beta2, one_less_beta2, rate, root_correction, epsilon};
    update(n, f, gradient, Whole{parameter}, first, second);
}

extern "C" __global__ void adamw_split(usize n, float gradient_scale, float decay, float beta1, float one_less_beta1,
                                       float beta2, float one_less_beta2, float rate, float root_correction,
                                       float epsilon, const float* gradient, u16* packed, u16* tails, float* first,
                                       float* second) {
    Factors f = {gradient_scale, decay, beta1, one_less_beta1, beta2, one_less_beta2, rate, root_correction, epsilon};
    update(n, f, gradient, Split{packed, tails}, first, second);
}

// The generator of hapo_core::rng: Philox4x64 with ten rounds.
__device__ inline void philox4x64(u64 counter[4], u64 key0, u64 key1) {
    for (int round = 0; round < 10; round++) {
        u64 a = 0xD2E7470EE14C6C93ull, b = 0xCA5A826395121157ull;
        u64 high_a = __umul64hi(a, counter[0]), high_b = __umul64hi(b, counter[2]);
        u64 low_a = a * counter[0], low_b = b * counter[2];
        counter[0] = high_b ^ counter[1] ^ key0;
        counter[1] = low_b;
        counter[2] = high_a ^ counter[3] ^ key1;
        counter[3] = low_a;
        key0 += 0x9E3779B97F4A7C15ull;
        key1 += 0xBB67AE8584CAA73Bull;
    }
}

// Moments in bf16: elements from..from + count of the buffers of both; gradient and parameter begin with the first.
// A counter has the draws of eight elements, so a thread has them all: the n counters of the elements.
template <typename P>
__device__ inline void update_rounded(usize n, Factors f, const float* gradient, P parameter, u16* first, u16* second,
                                      usize from, usize count, u64 seed, u64 stream, u64 update) {
    FOR_EACH(i, n) {
        u64 counter = from / 8 + i, words[4] = {update, counter, 0, 0};
        philox4x64(words, seed, stream);
        for (int j = 0; j < 8; j++) {
            usize element = counter * 8 + j;
            if (element < from || element >= from + count) continue;
            u32 draw = (u32)(words[j / 2] >> (32 * (j % 2)));
            usize at = element - from;
            float m = from_bf16(first[element]), v = from_bf16(second[element]);
            parameter.set(at, updated(f, gradient[at], parameter.at(at), m, v));
            first[element] = to_bf16_randomly(m, draw & 0xffff);
            second[element] = to_bf16_randomly(v, draw >> 16);
        }
    }
}

extern "C" __global__ void adamw_bf16(usize n, float gradient_scale, float decay, float beta1, float one_less_beta1,
                                      float beta2, float one_less_beta2, float rate, float root_correction,
                                      float epsilon, const float* gradient, float* parameter, u16* first, u16* second,
                                      usize from, usize count, u64 seed, u64 stream, u64 update) {
    Factors f = {gradient_scale, decay, beta1, one_less_beta1, beta2, one_less_beta2, rate, root_correction, epsilon};
    update_rounded(n, f, gradient, Whole{parameter}, first, second, from, count, seed, stream, update);
}

extern "C" __global__ void adamw_split_bf16(usize n, float gradient_scale, float decay, float beta1,
                                            float one_less_beta1, float beta2, float one_less_beta2, float rate,
                                            float root_correction, float epsilon, const float* gradient, u16* packed,
                                            u16* tails, u16* first, u16* second, usize from, usize count, u64 seed,
                                            u64 stream, u64 update) {
    Factors f = {gradient_scale, decay, beta1, one_less_beta1, beta2, one_less_beta2, rate, root_correction, epsilon};
    update_rounded(n, f, gradient, Split{packed, tails}, first, second, from, count, seed, stream, update);
}

// Elements first..first + count of x.
struct Range {
    usize first, count;
};

// parts [ranges] = the sum of squares of each range, in f64; the host adds the parts of a tensor.
template <typename P>
__device__ inline void sums_of_squares(const Range* ranges, P x, double* parts) {
    HAPO_SHARED(double, scratch);
    Range range = ranges[blockIdx.x];
    usize end = range.first + range.count;
    double total = 0;
    for (usize base = range.first; base < end; base += 64 * THREADS) {
        float sum = 0;
        usize stop = min(end, base + 64 * THREADS);
        for (usize i = base + threadIdx.x; i < stop; i += THREADS) {
            float value = x.at(i);
            sum += value * value;
        }
        total += sum;
    }
    total = block_sum(total, scratch);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

extern "C" __global__ void squared_norms(const Range* ranges, float* x, double* parts) {
    sums_of_squares(ranges, Whole{x}, parts);
}

extern "C" __global__ void squared_norms_split(const Range* ranges, u16* packed, u16* tails, double* parts) {
    sums_of_squares(ranges, Split{packed, tails}, parts);
}
