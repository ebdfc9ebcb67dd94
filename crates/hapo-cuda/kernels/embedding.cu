// The embedding, as rows [vocabulary, width] or as columns [width, vocabulary].

template <typename T>
__device__ inline void columns_of(u32 n, u32 width, u32 vocabulary, const u32* tokens, const T* embedding, float* x) {
    FOR_EACH_32(i, n) {
        u32 row = i / width;
        x[i] = number(embedding[(usize)(i - row * width) * vocabulary + tokens[row]]);
    }
}

extern "C" __global__ void embed_columns(u32 n, u32 width, u32 vocabulary, const u32* tokens, const float* embedding,
                                         float* x) {
    columns_of(n, width, vocabulary, tokens, embedding, x);
}

extern "C" __global__ void embed_columns_bf16(u32 n, u32 width, u32 vocabulary, const u32* tokens, const u16* embedding,
                                              float* x) {
    columns_of(n, width, vocabulary, tokens, embedding, x);
}

// Adds dx to the gradient, in token order: a block owns one token id and goes through its rows.
// Group g has id ids[g] and the rows rows[starts[g]..starts[g + 1]]. Element d of token id is at
// id * token_stride + d * width_stride.
extern "C" __global__ void embed_grad(u32 width, usize token_stride, usize width_stride, const u32* ids,
                                      const u32* starts, const u32* rows, const float* dx, float* gradient) {
    float* to = gradient + ids[blockIdx.x] * token_stride;
    u32 first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    for (u32 d = threadIdx.x; d < width; d += THREADS) {
        float sum = to[d * width_stride];
        for (u32 i = first; i < end; i++) sum += dx[(usize)rows[i] * width + d];
        to[d * width_stride] = sum;
    }
}
