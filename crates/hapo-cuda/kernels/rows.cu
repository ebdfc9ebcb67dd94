// Rows in and out: constants, gather and scatter.

extern "C" __global__ void fill(usize n, float value, float* x) {
    FOR_EACH(i, n) x[i] = value;
}

extern "C" __global__ void scale(usize n, float factor, float* x) {
    FOR_EACH(i, n) x[i] *= factor;
}

extern "C" __global__ void gather_rows(u32 n, u32 width, const u32* rows, const float* x, float* y) {
    FOR_EACH_32(i, n) {
        u32 row = i / width;
        y[i] = x[(usize)rows[row] * width + (i - row * width)];
    }
}

extern "C" __global__ void scatter_rows(u32 n, u32 width, const u32* rows, const float* y, float* x) {
    FOR_EACH_32(i, n) {
        u32 row = i / width;
        x[(usize)rows[row] * width + (i - row * width)] = y[i];
    }
}
