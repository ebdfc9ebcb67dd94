// silu(gate) * up, and its gradient in place: four neighbours at a time, of which there are `fours`, then the others.

struct SwigluGrad {
    float gate, up, h;
};

__device__ inline float swiglu_of(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

__device__ inline SwigluGrad swiglu_grad_of(float gate, float up, float dh) {
    float sigmoid = 1.0f / (1.0f + expf(-gate)), silu = gate * sigmoid;
    return {dh * up * (sigmoid * (1.0f + gate * (1.0f - sigmoid))), dh * silu, silu * up};
}

template <typename T>
__device__ inline void forward(usize n, usize fours, const T* gate, const T* up, T* h) {
    FOR_EACH(i, fours) {
        Four<T> g = ((const Four<T>*)gate)[i], u = ((const Four<T>*)up)[i], y;
#pragma unroll
        for (int k = 0; k < 4; k++) store(y.x[k], swiglu_of(number(g.x[k]), number(u.x[k])));
        ((Four<T>*)h)[i] = y;
    }
    FOR_EACH(j, n - 4 * fours) {
        usize i = 4 * fours + j;
        store(h[i], swiglu_of(number(gate[i]), number(up[i])));
    }
}

// gate and up become their gradients, dh becomes h again.
template <typename T>
__device__ inline void backward(usize n, usize fours, T* gate, T* up, T* dh) {
    FOR_EACH(i, fours) {
        Four<T> g = ((Four<T>*)gate)[i], u = ((Four<T>*)up)[i], d = ((Four<T>*)dh)[i];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            SwigluGrad it = swiglu_grad_of(number(g.x[k]), number(u.x[k]), number(d.x[k]));
            store(g.x[k], it.gate);
            store(u.x[k], it.up);
            store(d.x[k], it.h);
        }
        ((Four<T>*)gate)[i] = g;
        ((Four<T>*)up)[i] = u;
        ((Four<T>*)dh)[i] = d;
    }
    FOR_EACH(j, n - 4 * fours) {
        usize i = 4 * fours + j;
        SwigluGrad it = swiglu_grad_of(number(gate[i]), number(up[i]), number(dh[i]));
        store(gate[i], it.gate);
        store(up[i], it.up);
        store(dh[i], it.h);
    }
}

extern "C" __global__ void swiglu(usize n, usize fours, const float* gate, const float* up, float* h) {
    forward(n, fours, gate, up, h);
}

extern "C" __global__ void swiglu_bf16(usize n, usize fours, const u16* gate, const u16* up, u16* h) {
    forward(n, fours, gate, up, h);
}

extern "C" __global__ void swiglu_grad(usize n, usize fours, float* gate, float* up, float* dh) {
    backward(n, fours, gate, up, dh);
}

extern "C" __global__ void swiglu_grad_bf16(usize n, usize fours, u16* gate, u16* up, u16* dh) {
    backward(n, fours, gate, up, dh);
}
