//! hapo-sampler.
