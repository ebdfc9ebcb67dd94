//! hapo-verify.
