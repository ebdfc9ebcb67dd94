//! hapo-methods.
