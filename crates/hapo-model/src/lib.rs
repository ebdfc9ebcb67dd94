//! hapo-model.
