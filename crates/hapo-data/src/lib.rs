//! hapo-data.
