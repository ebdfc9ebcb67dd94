//! hapo-cli.
