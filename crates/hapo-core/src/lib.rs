//! hapo-core.
