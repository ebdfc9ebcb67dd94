//! The extension module `hapo._hapo`: the engine, with its command, runs, the grader, the gate, the decisions and the
//! losses, for Python.
//!
//! Arrays come and go as `NumPy`'s, the interpreter's lock is released while anything is computed, and what is wrong
//! with an argument names it. The arithmetic is the other crates'; `python/hapo` gives it its Python face. The price
//! of knowing no tensor library is that glue for each is written in Python.

#![allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::needless_pass_by_value,
    reason = "PyO3 gives methods `&self` and takes arguments by value"
)]

mod arguments;
mod decisions;
mod engine;
mod groups;
mod losses;
mod method;
mod python_method;
mod runs;
mod schedule;
mod train;

use pyo3::prelude::*;

/// The contents of the package `hapo`.
#[pymodule]
mod _hapo {
    #[pymodule_export]
    use crate::decisions::{advantages, decide, deviation, mean, teacher_weight};
    #[pymodule_export]
    use crate::engine::{Engine, Prompt, Rollout, group, order, task_rows};
    #[pymodule_export]
    use crate::groups::{Group, Rng, Sampled};
    #[pymodule_export]
    use crate::losses::{divisor, policy_terms, teacher_terms};
    #[pymodule_export]
    use crate::method::{
        Method, check_gold, graders, method_has_teacher, method_refusal, methods, operators,
    };
    #[pymodule_export]
    use crate::python_method::{register_method, span_loss, trial_groups};
    #[pymodule_export]
    use crate::runs::{columns, folder, rollouts, write_rollouts};
    #[pymodule_export]
    use crate::schedule::Schedule;
    #[pymodule_export]
    use crate::train::{command, train};
    #[pymodule_export]
    use verify_python::{judge_all, parse_one, read_answer, same_answer};

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "a name of Python's")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
