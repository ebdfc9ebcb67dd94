//! hapo-train.
