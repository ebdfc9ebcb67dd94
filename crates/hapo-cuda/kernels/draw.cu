// Draws from rows of logits: one uniform number picks the token whose interval of the cumulative distribution holds it,
// tokens in id order, as the CPU does it.
//
// A block has a row. Truncation is a threshold. The order of f32 is an order of integers, so the kernel finds, three
// bits at a time, the least integer above which few enough tokens, or little enough weight, lie. The log-probabilities
// are those of the whole row.

struct DrawRow {
    double uniform;
    u32 row;
    // 0: the most likely token.
    float inverse_temperature;
    // 0: all.
    u32 top_k;
    float top_p, min_p;
    u32 unused;
};

struct DrawnToken {
    u32 token;
    float log_prob, log_prob_t1, entropy;
};

#define BLOCK 256
#define SHORT 4096
#define DOUBT 1e-5

// Integers in the order of the numbers.
__device__ inline u32 order_of(float x) {
    u32 bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The tokens that may be drawn: those above `threshold`, those at it up to an id, all of at least a weight.
struct Kept {
    u32 threshold, last_id;
    float least;
};

struct Row {
    const float* z;
    u32 usable;
    float most, inverse;
};

__device__ inline float weight_of(Row row, u32 i) { return expf((row.z[i] - row.most) * row.inverse); }

__device__ inline double kept_weight(Row row, Kept kept, u32 i) {
    u32 order = order_of(row.z[i]);
    if (order < kept.threshold || (order == kept.threshold && i > kept.last_id)) return 0;
    float weight = weight_of(row, i);
    return weight >= kept.least ? weight : 0.0;
}

// Sums over the tokens beyond each of seven bounds: how many there are, or their weight.
template <bool COUNTS>
__device__ inline void sums_beyond(Row row, const u32 (&bounds)[7], double (&sums)[7], double* scratch) {
    for (int j = 0; j < 7; j++) sums[j] = 0;
    for (u32 i = threadIdx.x; i < row.usable; i += THREADS) {
        u32 order = order_of(row.z[i]);
        double weight = COUNTS ? 1.0 : (double)weight_of(row, i);
#pragma unroll
        for (int j = 0; j < 7; j++) {
            if (order > bounds[j]) sums[j] += weight;
        }
    }
    for (int j = 0; j < 7; j++) sums[j] = block_sum(sums[j], scratch);
}

// The least bound beyond which the sum is below `limit`.
template <bool COUNTS>
__device__ inline u32 least_bound(Row row, double limit, double* scratch) {
    u32 prefix = 0;
    for (int shift = 30; shift >= 0; shift -= 3) {
        // Of 32 bits the first step has two.
        u32 steps = shift == 30 ? 3 : 7, bounds[7];
        for (u32 j = 0; j < 7; j++) bounds[j] = j < steps ? prefix + ((j + 1) << shift) - 1 : 0xffffffffu;
        double sums[7];
        sums_beyond<COUNTS>(row, bounds, sums, scratch);
        u32 step = 0;
        while (step < steps && !(sums[step] < limit)) step++;
        prefix += step << shift;
    }
    return prefix;
}

// The weight of tokens at a place in the order.
__device__ inline double weight_at(Row row, u32 order) {
    float z = __int_as_float((int)(order & 0x80000000u ? order & 0x7fffffffu : ~order));
    return expf((z - row.most) * row.inverse);
}

// The sum of the weights above a bound.
__device__ inline double weight_beyond(Row row, u32 bound, double* scratch) {
    double sum = 0;
    for (u32 i = threadIdx.x; i < row.usable; i += THREADS) {
        if (order_of(row.z[i]) > bound) sum += weight_of(row, i);
    }
    return block_sum(sum, scratch);
}

// How many tokens of ids up to one lie at a bound.
__device__ inline double count_at(Row row, u32 bound, u32 last_id, double* scratch) {
    double count = 0;
    for (u32 i = threadIdx.x; i < row.usable; i += THREADS) count += i <= last_id && order_of(row.z[i]) == bound;
    return block_sum(count, scratch);
}

__device__ inline double count_beyond(Row row, u32 bound, double* scratch) {
    double count = 0;
    for (u32 i = threadIdx.x; i < row.usable; i += THREADS) count += order_of(row.z[i]) > bound;
    return block_sum(count, scratch);
}

// Of equal logits the lower ids are kept first.
__device__ inline Kept truncate(Row row, DrawRow it, double* scratch) {
    Kept kept = {0, 0xffffffffu, it.min_p};
    // How many at the threshold are kept; all of them where it is negative.
    double at = -1;
    if (it.top_k > 0 && it.top_k < row.usable) {
        kept.threshold = least_bound<true>(row, it.top_k, scratch);
        at = it.top_k - count_beyond(row, kept.threshold, scratch);
    }
    if (it.top_p < 1.0f) {
        double total = weight_beyond(row, kept.threshold, scratch);
        if (at >= 0) total += at * weight_at(row, kept.threshold);
        double limit = it.top_p * total;
        u32 bound = least_bound<false>(row, limit, scratch);
        if (bound >= kept.threshold) {
            double before = weight_beyond(row, bound, scratch), weight = weight_at(row, bound), wanted = 0;
            double most = bound == kept.threshold && at >= 0 ? at : (double)row.usable;
            while (wanted < most && before < limit) {
                wanted += 1;
                before += weight;
            }
            kept.threshold = bound;
            at = wanted;
        }
    }
    if (at >= 0 && at < count_at(row, kept.threshold, 0xffffffffu, scratch)) {
        // The least id with this many tokens up to it.
        u32 low = 0, high = row.usable - 1;
        while (low < high) {
            u32 middle = low + (high - low) / 2;
            if (count_at(row, kept.threshold, middle, scratch) < at) low = middle + 1;
            else high = middle;
        }
        kept.last_id = low;
    }
    return kept;
}

// One token after the other.
__device__ inline u32 invert_slowly(Row row, Kept kept, double uniform) {
    double total = 0;
    for (u32 i = 0; i < row.usable; i++) total += kept_weight(row, kept, i);
    double target = uniform * total, before = 0;
    u32 last = 0;
    for (u32 i = 0; i < row.usable; i++) {
        double weight = kept_weight(row, kept, i);
        if (weight > 0) {
            last = i;
            before += weight;
            if (before > target) return i;
        }
    }
    // Rounding can leave the last interval a hair short of 1.
    return last;
}

// By the sums of blocks of tokens; one thread has the last word.
__device__ inline u32 invert(Row row, Kept kept, double uniform, double* sums) {
    u32 blocks = (row.usable + BLOCK - 1) / BLOCK, lane = threadIdx.x % 32;
    for (u32 block = threadIdx.x / 32; block < blocks; block += WARPS) {
        double sum = 0;
        u32 end = min(row.usable, (block + 1) * BLOCK);
        for (u32 i = block * BLOCK + lane; i < end; i += 32) sum += kept_weight(row, kept, i);
        sum = warp_sum(sum);
        if (lane == 0) sums[block] = sum;
    }
    __syncthreads();
    if (threadIdx.x != 0) return 0;
    double total = 0, before = 0;
    for (u32 block = 0; block < blocks; block++) total += sums[block];
    double target = uniform * total;
    u32 block = 0;
    while (block + 1 < blocks && before + sums[block] <= target) before += sums[block++];
    bool found = false, sure = false;
    u32 token = 0, end = min(row.usable, (block + 1) * BLOCK);
    for (u32 i = block * BLOCK; i < end; i++) {
        double weight = kept_weight(row, kept, i);
        if (weight > 0) {
            sure = fmin(target - before, before + weight - target) > DOUBT * total;
            found = true;
            token = i;
            before += weight;
            if (before > target) break;
        }
    }
    return found && (sure || row.usable > SHORT) ? token : invert_slowly(row, kept, uniform);
}

// The lowest id of the largest logit.
__device__ inline u32 most_likely(const float* z, u32 usable, float most, u32* scratch) {
    u32 least = usable;
    for (u32 i = threadIdx.x; i < usable; i += THREADS) {
        if (z[i] == most) least = min(least, i);
    }
    for (int step = 16; step > 0; step /= 2) least = min(least, __shfl_xor_sync(ALL_LANES, least, step));
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = least;
    __syncthreads();
    for (int warp = 0; warp < WARPS; warp++) least = min(least, scratch[warp]);
    __syncthreads();
    // A row of nothing but NaN has none.
    return least < usable ? least : 0;
}

// A block per row to draw from.
extern "C" __global__ void draw(u32 vocabulary, u32 usable, const DrawRow* rows, const float* logits,
                                DrawnToken* drawn) {
    HAPO_SHARED(double, scratch);
    double* sums = scratch + WARPS;
    DrawRow it = rows[blockIdx.x];
    const float* z = logits + (usize)it.row * vocabulary;
    float most = MINUS_INFINITY, most_usable = MINUS_INFINITY;
    for (u32 i = threadIdx.x; i < vocabulary; i += THREADS) {
        most = fmaxf(most, z[i]);
        if (i < usable) most_usable = fmaxf(most_usable, z[i]);
    }
    most = block_max(most, (float*)scratch);
    most_usable = block_max(most_usable, (float*)scratch);
    float inverse = it.inverse_temperature == 0 ? 1.0f : it.inverse_temperature;
    SoftmaxSums all = softmax_sums(z, vocabulary, most, inverse, scratch);
    u32 token;
    if (it.inverse_temperature == 0) {
        token = most_likely(z, usable, most_usable, (u32*)scratch);
    } else {
        Row row = {z, usable, most_usable, inverse};
        token = invert(row, truncate(row, it, scratch), it.uniform, sums);
    }
    if (threadIdx.x == 0) {
        TokenStats of = token_stats(all, z[token], most, inverse);
        drawn[blockIdx.x] = {token, of.log_prob, of.log_prob_t1, of.entropy};
    }
}
