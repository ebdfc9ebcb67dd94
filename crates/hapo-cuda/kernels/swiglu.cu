// silu(gate) * up, and its gradient in place: of a row four neighbours at a time, of which there are `fours`, then the
// others. Rows of gate and up are `stride` apart, those of the product `to_stride`. Grid: columns, rows.

struct SwigluGrad {
    float gate, up, h;
};

__device__ inline float swiglu_of(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

__device__ inline SwigluGrad swiglu_grad_of(float gate, float up, float dh) {
    float sigmoid = 1.0f / (1.0f + expf(-gate)), silu = gate * sigmoid;
    return {dh * up * (sigmoid * (1.0f + gate * (1.0f - sigmoid))), dh * silu, silu * up};
}

#define FOR_EACH_ROW(row, rows) for (usize row = blockIdx.y; row < (rows); row += gridDim.y)

template <typename T>
__device__ inline void forward(usize rows, usize width, usize stride, usize to_stride, usize fours, const T* gate,
                               const T* up, T* h) {
    FOR_EACH_ROW(row, rows) {
        const T *g_row = gate + row * stride, *u_row = up + row * stride;
        T* h_row = h + row * to_stride;
        FOR_EACH(i, fours) {
            Four<T> g = ((const Four<T>*)g_row)[i], u = ((const Four<T>*)u_row)[i], y;
#pragma unroll
            for (int k = 0; k < 4; k++) store(y.x[k], swiglu_of(number(g.x[k]), number(u.x[k])));
            ((Four<T>*)h_row)[i] = y;
        }
        FOR_EACH(j, width - 4 * fours) {
            usize i = 4 * fours + j;
            store(h_row[i], swiglu_of(number(g_row[i]), number(u_row[i])));
        }
    }
}

// gate and up become their gradients, dh becomes h again.
template <typename T>
__device__ inline void backward(usize rows, usize width, usize stride, usize to_stride, usize fours, T* gate, T* up,
                                T* dh) {
    FOR_EACH_ROW(row, rows) {
        T *g_row = gate + row * stride, *u_row = up + row * stride, *h_row = dh + row * to_stride;
        FOR_EACH(i, fours) {
            Four<T> g = ((Four<T>*)g_row)[i], u = ((Four<T>*)u_row)[i], d = ((Four<T>*)h_row)[i];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                SwigluGrad it = swiglu_grad_of(number(g.x[k]), number(u.x[k]), number(d.x[k]));
                store(g.x[k], it.gate);
                store(u.x[k], it.up);
                store(d.x[k], it.h);
            }
            ((Four<T>*)g_row)[i] = g;
            ((Four<T>*)u_row)[i] = u;
            ((Four<T>*)h_row)[i] = d;
        }
        FOR_EACH(j, width - 4 * fours) {
            usize i = 4 * fours + j;
            SwigluGrad it = swiglu_grad_of(number(g_row[i]), number(u_row[i]), number(h_row[i]));
            store(g_row[i], it.gate);
            store(u_row[i], it.up);
            store(h_row[i], it.h);
        }
    }
}

#define SWIGLU(SUFFIX, T)                                                                                             \
    extern "C" __global__ void swiglu##SUFFIX(usize rows, usize width, usize stride, usize to_stride, usize fours,    \
                                              const T* gate, const T* up, T* h) {                                     \
        forward(rows, width, stride, to_stride, fours, gate, up, h);                                                  \
    }                                                                                                                 \
    extern "C" __global__ void swiglu_grad##SUFFIX(usize rows, usize width, usize stride, usize to_stride,            \
                                                   usize fours, T* gate, T* up, T* dh) {                              \
        backward(rows, width, stride, to_stride, fours, gate, up, dh);                                                \
    }

SWIGLU(, float)
SWIGLU(_bf16, u16)
