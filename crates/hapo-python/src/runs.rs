//! Run folders, by the reader that everything else uses.

use std::path::PathBuf;

use hapo_core::Refusal;
use hapo_run::{Columns, RolloutLine, RolloutWriter, RunFolder, create_folder, read_rollouts};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::arguments::value_error;

type Column<'py> = (String, Bound<'py, PyArray1<f64>>);

/// The columns of `metrics.jsonl`, and what is wrong with the file.
#[pyfunction]
pub(crate) fn columns(py: Python<'_>, run: PathBuf) -> PyResult<(Vec<Column<'_>>, Vec<String>)> {
    let mut notes = Vec::new();
    let columns = py.detach(|| Columns::read(&RunFolder(&run).metrics(), &mut notes));
    let columns = columns.map_err(|it| PyOSError::new_err(it.to_string()))?;
    let arrays = columns.names().iter().map(|name| {
        (name.clone(), columns.get(name).unwrap_or_default().to_vec().into_pyarray(py))
    });
    Ok((arrays.collect(), notes))
}

/// The rollouts of a step, each as JSON.
#[pyfunction]
pub(crate) fn rollouts(py: Python<'_>, run: PathBuf, step: u64) -> PyResult<Vec<String>> {
    py.detach(|| {
        let lines = read_rollouts(&RunFolder(&run).rollouts_of(step))
            .map_err(|it| PyValueError::new_err(it.to_string()))?;
        let json = lines.iter().map(serde_json::to_string);
        json.collect::<Result<_, _>>().map_err(|it| PyValueError::new_err(it.to_string()))
    })
}

/// Stores the rollouts of a step, each given as JSON.
#[pyfunction]
pub(crate) fn write_rollouts(
    py: Python<'_>,
    run: PathBuf,
    step: u64,
    lines: Vec<String>,
) -> PyResult<()> {
    py.detach(|| {
        let read = |(row, it): (usize, &String)| {
            serde_json::from_str::<RolloutLine>(it)
                .map_err(|problem| value_error("lines", format_args!("row {row}: {problem}")))
        };
        let lines = lines.iter().enumerate().map(read).collect::<PyResult<Vec<_>>>()?;
        let folder = RunFolder(&run);
        let mut writer = RolloutWriter::default();
        create_folder(&folder.rollouts())
            .and_then(|()| writer.write(folder.rollouts_of(step), lines))
            .and_then(|()| writer.wait())
            .map_err(|it| PyOSError::new_err(it.to_string()))
    })
}

/// Steps with rollouts, checkpoints by their steps, the recipe, the gate's table, whether there is a run at all.
type Parts = (Vec<u64>, Vec<(u64, PathBuf)>, PathBuf, PathBuf, bool);

/// Where things are in a run folder.
#[pyfunction]
pub(crate) fn folder(run: PathBuf) -> PyResult<Parts> {
    let it = RunFolder(&run);
    let parts = || -> Result<Parts, Refusal> {
        let mut checkpoints = it.list_checkpoints()?;
        checkpoints.reverse();
        Ok((it.rollout_steps()?, checkpoints, it.recipe(), it.gate(), it.holds_run()?))
    };
    parts().map_err(|refusal| PyOSError::new_err(refusal.to_string()))
}
