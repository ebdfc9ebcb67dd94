//! hapo-kernels.
