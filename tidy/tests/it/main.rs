//! Tests of `tidy` as its users see it, in one program.

mod absence;
mod arrows;
mod house;
mod links;
mod modules;
mod paper_map;
mod parameters;
