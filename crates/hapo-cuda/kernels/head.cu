// Log-probabilities and entropies of targets from logits, and the gradient of them on the logits.

struct HeadTarget {
    u32 row;
    u32 token;
    float inverse_temperature;
};

#define STATS 6

// A block per target: the largest logit, then the sums at the target's temperature and at 1.
extern "C" __global__ void head(u32 vocabulary, u32 first_row, u32 first_target, const HeadTarget* targets,
                                const float* logits, float* stats) {
    HAPO_SHARED(double, scratch);
    u32 t = first_target + blockIdx.x;
    HeadTarget target = targets[t];
    const float* z = logits + (usize)(target.row - first_row) * vocabulary;
    float most = MINUS_INFINITY;
    for (u32 i = threadIdx.x; i < vocabulary; i += THREADS) most = fmaxf(most, z[i]);
    most = block_max(most, (float*)scratch);
    float inverse = target.inverse_temperature;
    SoftmaxSums sums = softmax_sums(z, vocabulary, most, inverse, scratch);
    if (threadIdx.x == 0) {
        float* to = stats + (usize)t * STATS;
        TokenStats it = token_stats(sums, z[target.token], most, inverse);
        to[0] = it.log_prob;
        to[1] = it.log_prob_t1;
        to[2] = it.entropy;
        to[3] = most;
        to[4] = it.log_tempered;
        to[5] = it.log_plain;
    }
}

// The first target at or after `first` whose row is at least `row`; targets are sorted by row.
__device__ inline u32 first_of_row(const HeadTarget* targets, u32 first, u32 end, u32 row) {
    while (first < end) {
        u32 middle = first + (end - first) / 2;
        if (targets[middle].row < row) first = middle + 1;
        else end = middle;
    }
    return first;
}

// A block per row of the chunk: logits become their gradient. Neighbours at one temperature share a softmax.
extern "C" __global__ void head_grad(u32 vocabulary, u32 first_row, u32 first_target, u32 n_targets,
                                     const HeadTarget* targets, const float* stats, const float* gradients,
                                     float* logits) {
    u32 row = first_row + blockIdx.x;
    u32 first = first_of_row(targets, first_target, first_target + n_targets, row);
    u32 end = first_of_row(targets, first, first_target + n_targets, row + 1);
    if (first == end) return;
    float* z = logits + (usize)blockIdx.x * vocabulary;
    const float* plain = stats + (usize)first * STATS;
    float most = plain[3], log_sum = plain[5], entropy = plain[2];
    float d_entropy = 0;
    for (u32 t = first; t < end; t++) d_entropy += gradients[2 * (usize)t + 1];
    for (u32 i = threadIdx.x; i < vocabulary; i += THREADS) {
        float d = z[i] - most;
        float sum = 0;
        if (d_entropy != 0) {
            // dH/dz = -p * (ln p + H)
            float log_p = fmaxf(d, -1e4f) - log_sum;
            sum = -d_entropy * expf(log_p) * (log_p + entropy);
        }
        for (u32 t = first; t < end;) {
            float inverse = targets[t].inverse_temperature;
            float log_tempered = stats[(usize)t * STATS + 4];
            float weight = 0;
            for (; t < end && targets[t].inverse_temperature == inverse; t++) weight -= gradients[2 * (usize)t] * inverse;
            sum += weight * expf(d * inverse - log_tempered);
        }
        z[i] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 t = first; t < end; t++) z[targets[t].token] += gradients[2 * (usize)t] * targets[t].inverse_temperature;
    }
}
