// Rows of the embedding are looked up by gather_rows.

// Adds dx to the gradient [vocabulary, width], in token order: a block owns one token id and goes through its rows.
// Group g has id ids[g] and the rows rows[starts[g]..starts[g + 1]].
extern "C" __global__ void embed_grad(u32 width, const u32* ids, const u32* starts, const u32* rows, const float* dx,
                                      float* gradient) {
    float* to = gradient + (usize)ids[blockIdx.x] * width;
    u32 first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    for (u32 d = threadIdx.x; d < width; d += THREADS) {
        float sum = to[d];
        for (u32 i = first; i < end; i++) sum += dx[(usize)rows[i] * width + d];
        to[d] = sum;
    }
}
