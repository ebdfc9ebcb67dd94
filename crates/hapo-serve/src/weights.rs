//! New weights for a server that runs: from a folder that it was told to trust, and no other.

use std::path::{Path, PathBuf};

use hapo_kernels::Device;
use hapo_model::Model;

use crate::{Served, Settings};
use crate::{api_error::ApiError, fields::Fields};

/// Opens a model folder, or an adapter's, as the server's first model was opened.
pub type OpenWeights<D> = dyn Fn(&Path) -> Result<Model<D>, String> + Send + Sync;

/// Where new weights may lie, and how they are opened.
pub struct NewWeights<D: Device> {
    /// They are read from folders inside this one.
    pub inside: PathBuf,
    pub open: Box<OpenWeights<D>>,
}

pub struct ServedModel<D: Device> {
    pub model: Model<D>,
    /// Where new ones come from; absent = they stay.
    pub new_weights: Option<NewWeights<D>>,
}

#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) folder: PathBuf,
    pub(crate) version: String,
}

pub(crate) fn inside(served: &Served) -> Result<&Path, ApiError> {
    let refusal = "this server takes no new weights: start it with --weights-from FOLDER to let it";
    served.weights_inside.as_deref().ok_or_else(|| forbidden(refusal))
}

fn forbidden(message: &str) -> ApiError {
    ApiError::of_status(axum::http::StatusCode::FORBIDDEN, message)
}

pub(crate) fn read(body: &[u8], inside: &Path, settings: &Settings) -> Result<Wanted, ApiError> {
    let fields = Fields::of_body(body, settings, &["model_path weight_version flush_cache"])?;
    fields.take_if("flush_cache", "true", |flushes: &bool| *flushes)?;
    let text = |name: &str| {
        // The version comes back with every answer.
        let fits = |text: &String| (1..=4096).contains(&text.len());
        let found = fields.take_if(name, "a string of at most 4096 bytes", fits)?;
        found.ok_or_else(|| fields.refuse(name, "a string"))
    };
    let (path, version) = (text("model_path")?, text("weight_version")?);
    // A link may lead out of the folder.
    let real = |path: &Path| {
        let found = hapo_core::if_there(path, path.canonicalize());
        found.map_err(|refusal| ApiError::bad("model_path", refusal.to_string()))
    };
    let (folder, inside) = (real(Path::new(&path))?, real(inside)?);
    let folder = folder.filter(|it| inside.is_some_and(|inside| it.starts_with(inside)));
    let refused = || forbidden("model_path: expected a folder of --weights-from");
    Ok(Wanted { folder: folder.ok_or_else(refused)?, version })
}
