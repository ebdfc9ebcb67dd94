// Rows in and out: constants, gather and scatter.

extern "C" __global__ void fill(usize n, float value, float* x) {
    FOR_EACH(i, n) x[i] = value;
}

extern "C" __global__ void scale(usize n, float factor, float* x) {
    FOR_EACH(i, n) x[i] *= factor;
}

template <typename T>
__device__ inline void gathered(u32 n, u32 width, const u32* rows, const T* x, float* y) {
    FOR_EACH_32(i, n) {
        u32 row = i / width;
        y[i] = number(x[(usize)rows[row] * width + (i - row * width)]);
    }
}

extern "C" __global__ void gather_rows(u32 n, u32 width, const u32* rows, const float* x, float* y) {
    gathered(n, width, rows, x, y);
}

extern "C" __global__ void gather_rows_bf16(u32 n, u32 width, const u32* rows, const u16* x, float* y) {
    gathered(n, width, rows, x, y);
}

// Elements first..first + n of rows of a width, which begin so many apart.
template <typename T>
__device__ inline void copied(usize n, usize first, usize width, usize from_stride, usize to_stride, const T* from,
                              T* to) {
    FOR_EACH(i, n) {
        usize row = (first + i) / width, column = first + i - row * width;
        to[row * to_stride + column] = from[row * from_stride + column];
    }
}

extern "C" __global__ void copy_rows(usize n, usize first, usize width, usize from_stride, usize to_stride,
                                     const float* from, float* to) {
    copied(n, first, width, from_stride, to_stride, from, to);
}

extern "C" __global__ void copy_rows_bf16(usize n, usize first, usize width, usize from_stride, usize to_stride,
                                          const u16* from, u16* to) {
    copied(n, first, width, from_stride, to_stride, from, to);
}

extern "C" __global__ void scatter_rows(u32 n, u32 width, const u32* rows, const float* y, float* x) {
    FOR_EACH_32(i, n) {
        u32 row = i / width;
        x[(usize)rows[row] * width + (i - row * width)] = y[i];
    }
}
