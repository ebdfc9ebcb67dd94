//! Tests of reading and writing, layout by layout and container by container.

mod corruption;
mod layouts;
mod own;
mod samples;
mod write;
