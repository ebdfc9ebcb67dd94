//! What goes over the network or through a pipe: the HTTP client that all share, models and data sets of the hub, and
//! programs and servers that judge completions, and the client of chat completions.

pub mod chat;
pub mod http;
pub mod hub;
pub mod reward;
