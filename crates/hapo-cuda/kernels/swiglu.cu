// silu(gate) * up, and its gradient in place.

extern "C" __global__ void swiglu(usize n, const float* gate, const float* up, float* h) {
    FOR_EACH(i, n) h[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

// gate and up become their gradients, dh becomes h again.
extern "C" __global__ void swiglu_grad(usize n, float* gate, float* up, float* dh) {
    FOR_EACH(i, n) {
        float g = gate[i], u = up[i], d = dh[i];
        float sigmoid = 1.0f / (1.0f + expf(-g));
        float silu = g * sigmoid;
        gate[i] = d * u * (sigmoid * (1.0f + g * (1.0f - sigmoid)));
        up[i] = d * silu;
        dh[i] = silu * u;
    }
}
