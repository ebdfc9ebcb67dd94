//! An OpenAI-compatible server over the local sampler.
