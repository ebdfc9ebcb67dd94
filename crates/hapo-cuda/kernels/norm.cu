// RMS norm, and sums over rows.
//
// A row belongs to a warp where it is narrow (the heads of Qwen3) and to a block otherwise. Rows of the output are
// `stride` apart: there may be room behind them. Sums over rows run within parts of consecutive rows, eight interleaved
// chains each, and then over the parts in order: no atomics.

// A thread takes four neighbours of a row at a time, and the remainder one at a time: an order that the width fixes,
// wherever the row lies.
#define FOURS_OF_ROW(i, lane, lanes, width) for (u32 i = 4 * (lane); i + 3 < (width); i += 4 * (lanes))
#define REST_OF_ROW(i, lane, lanes, width) for (u32 i = (width) / 4 * 4 + (lane); i < (width); i += (lanes))

__device__ inline float row_squares(u32 lane, u32 lanes, u32 width, const float* x, bool whole) {
    float sum = 0;
    FOURS_OF_ROW(i, lane, lanes, width) {
        Four<float> v = four_of(x + i, whole);
#pragma unroll
        for (int k = 0; k < 4; k++) sum += v.x[k] * v.x[k];
    }
    REST_OF_ROW(i, lane, lanes, width) sum += x[i] * x[i];
    return sum;
}

// y = x * r * w with r = 1 / sqrt(mean(x^2) + eps); x is copied to `residual` where there is one.
template <typename T>
__device__ inline void norm_row(u32 lane, u32 lanes, u32 width, float r, const float* x, const float* w, T* y,
                                float* residual, bool whole) {
    FOURS_OF_ROW(i, lane, lanes, width) {
        Four<float> v = four_of(x + i, whole), of = four_of(w + i, whole);
        Four<T> to;
#pragma unroll
        for (int k = 0; k < 4; k++) store(to.x[k], v.x[k] * r * of.x[k]);
        store_four(y + i, whole, to);
        if (residual) store_four(residual + i, whole, v);
    }
    REST_OF_ROW(i, lane, lanes, width) {
        float value = x[i];
        store(y[i], value * r * w[i]);
        if (residual) residual[i] = value;
    }
}

template <typename T>
__device__ inline void norm_narrow(u32 rows, u32 width, float eps, const float* x, const float* w, T* y, u32 stride,
                                   float* inverse, float* residual) {
    u32 row = blockIdx.x * WARPS + threadIdx.x / 32;
    u32 lane = threadIdx.x % 32;
    if (row >= rows) return;
    usize at = (usize)row * width;
    bool whole = rows_are_whole(width, x, w, y, residual) && stride % 4 == 0;
    float r = 1.0f / sqrtf(warp_sum(row_squares(lane, 32, width, x + at, whole)) / width + eps);
    if (lane == 0) inverse[row] = r;
    norm_row(lane, 32, width, r, x + at, w, y + (usize)row * stride, residual ? residual + at : residual, whole);
}

template <typename T>
__device__ inline void norm_wide(u32 width, float eps, const float* x, const float* w, T* y, u32 stride,
                                 float* inverse, float* residual) {
    HAPO_SHARED(float, scratch);
    u32 row = blockIdx.x;
    usize at = (usize)row * width;
    bool whole = rows_are_whole(width, x, w, y, residual) && stride % 4 == 0;
    float sum = row_squares(threadIdx.x, THREADS, width, x + at, whole);
    float r = 1.0f / sqrtf(block_sum(sum, scratch) / width + eps);
    if (threadIdx.x == 0) inverse[row] = r;
    norm_row(threadIdx.x, THREADS, width, r, x + at, w, y + (usize)row * stride, residual ? residual + at : residual, whole);
}

template <typename T>
__device__ inline float row_products(u32 lane, u32 lanes, u32 width, const float* x, const float* w, const T* dy,
                                     bool whole) {
    float sum = 0;
    FOURS_OF_ROW(i, lane, lanes, width) {
        Four<float> v = four_of(x + i, whole), of = four_of(w + i, whole);
        Four<T> d = four_of(dy + i, whole);
#pragma unroll
        for (int k = 0; k < 4; k++) sum += v.x[k] * (number(d.x[k]) * of.x[k]);
    }
    REST_OF_ROW(i, lane, lanes, width) sum += x[i] * (number(dy[i]) * w[i]);
    return sum;
}

// dx = r * (w . dy) - x * r^3 * mean(x . w . dy), added to dx where `add`.
template <typename T>
__device__ inline void norm_row_grad(u32 lane, u32 lanes, u32 width, float r, float mean, u32 add, const float* x,
                                     const float* w, const T* dy, T* dx, bool whole) {
    float c = r * r * r * mean;
    FOURS_OF_ROW(i, lane, lanes, width) {
        Four<float> v = four_of(x + i, whole), of = four_of(w + i, whole);
        Four<T> d = four_of(dy + i, whole), to;
        if (add) to = four_of(dx + i, whole);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float here = r * (number(d.x[k]) * of.x[k]) - v.x[k] * c;
            store(to.x[k], add ? number(to.x[k]) + here : here);
        }
        store_four(dx + i, whole, to);
    }
    REST_OF_ROW(i, lane, lanes, width) {
        float here = r * (number(dy[i]) * w[i]) - x[i] * c;
        store(dx[i], add ? number(dx[i]) + here : here);
    }
}

template <typename T>
__device__ inline void norm_grad_narrow(u32 rows, u32 width, u32 add, const float* x, const float* w,
                                        const float* inverse, const T* dy, T* dx) {
    u32 row = blockIdx.x * WARPS + threadIdx.x / 32;
    u32 lane = threadIdx.x % 32;
    if (row >= rows) return;
    usize at = (usize)row * width;
    bool whole = rows_are_whole(width, x, w, dy, dx);
    float mean = warp_sum(row_products(lane, 32, width, x + at, w, dy + at, whole)) / width;
    norm_row_grad(lane, 32, width, inverse[row], mean, add, x + at, w, dy + at, dx + at, whole);
}

template <typename T>
__device__ inline void norm_grad_wide(u32 width, u32 add, const float* x, const float* w, const float* inverse,
                                      const T* dy, T* dx) {
    HAPO_SHARED(float, scratch);
    u32 row = blockIdx.x;
    usize at = (usize)row * width;
    bool whole = rows_are_whole(width, x, w, dy, dx);
    float sum = row_products(threadIdx.x, THREADS, width, x + at, w, dy + at, whole);
    float mean = block_sum(sum, scratch) / width;
    norm_row_grad(threadIdx.x, THREADS, width, inverse[row], mean, add, x + at, w, dy + at, dx + at, whole);
}

// part [parts, width] = the sums over `rows_per_part` rows of dy, or of dy * x * inverse where x is given.
// A block has 32 columns and 8 chains of rows.
template <typename T>
__device__ inline void sums_of_columns(u32 rows, u32 width, u32 rows_per_part, const T* dy, const float* x,
                                       const float* inverse, float* parts) {
    HAPO_SHARED(float, chains);
    u32 column = blockIdx.x * 32 + threadIdx.x % 32;
    u32 chain = threadIdx.x / 32;
    u32 first = blockIdx.y * rows_per_part;
    u32 end = min(rows, first + rows_per_part);
    float sum = 0;
    if (column < width) {
        for (u32 row = first + chain; row < end; row += WARPS) {
            usize at = (usize)row * width + column;
            float here = number(dy[at]);
            sum += x ? here * (x[at] * inverse[row]) : here;
        }
    }
    chains[threadIdx.x] = sum;
    __syncthreads();
    if (chain == 0 && column < width) {
        float total = 0;
        for (u32 i = 0; i < WARPS; i++) total += chains[i * 32 + threadIdx.x];
        parts[(usize)blockIdx.y * width + column] = total;
    }
}

// A norm's output, and the gradients into and out of it, are f32 or bf16; its input and its weights are f32.
#define NORM(SUFFIX, T)                                                                                               \
    extern "C" __global__ void rms_norm_narrow##SUFFIX(u32 rows, u32 width, float eps, const float* x, const float* w, \
                                                       T* y, u32 stride, float* inverse, float* residual) {          \
        norm_narrow(rows, width, eps, x, w, y, stride, inverse, residual);                                            \
    }                                                                                                                 \
    extern "C" __global__ void rms_norm_wide##SUFFIX(u32 rows, u32 width, float eps, const float* x, const float* w,  \
                                                     T* y, u32 stride, float* inverse, float* residual) {            \
        norm_wide(width, eps, x, w, y, stride, inverse, residual);                                                    \
    }                                                                                                                 \
    extern "C" __global__ void rms_norm_grad_narrow##SUFFIX(u32 rows, u32 width, u32 add, const float* x,             \
                                                            const float* w, const float* inverse, const T* dy,       \
                                                            T* dx) {                                                  \
        norm_grad_narrow(rows, width, add, x, w, inverse, dy, dx);                                                    \
    }                                                                                                                 \
    extern "C" __global__ void rms_norm_grad_wide##SUFFIX(u32 rows, u32 width, u32 add, const float* x,               \
                                                          const float* w, const float* inverse, const T* dy, T* dx) { \
        norm_grad_wide(width, add, x, w, inverse, dy, dx);                                                            \
    }                                                                                                                 \
    extern "C" __global__ void column_parts##SUFFIX(u32 rows, u32 width, u32 rows_per_part, const T* dy,              \
                                                    const float* x, const float* inverse, float* parts) {            \
        sums_of_columns(rows, width, rows_per_part, dy, x, inverse, parts);                                           \
    }

NORM(, float)
NORM(_bf16, u16)

// out [width] += the parts, in order.
extern "C" __global__ void add_parts(usize width, u32 parts, const float* part, float* out) {
    FOR_EACH(i, width) {
        float sum = 0;
        for (u32 p = 0; p < parts; p++) sum += part[p * width + i];
        out[i] += sum;
    }
}
