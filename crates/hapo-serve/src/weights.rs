//! New weights for a server that runs: from a folder that it was told to trust, and no other.

use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use hapo_kernels::Device;
use hapo_model::Model;

use crate::api_error::ApiError;
use crate::request::{object, take, unexpected};
use crate::{Served, Settings};

/// Opens a model folder, or an adapter's, as the server's first model was opened.
pub type OpenWeights<D> = dyn Fn(&Path) -> Result<Model<D>, String> + Send + Sync;

/// Where new weights may lie, and how they are opened.
pub struct NewWeights<D: Device> {
    /// They are read from folders inside this one.
    pub inside: PathBuf,
    /// Opens them.
    pub open: Box<OpenWeights<D>>,
}

/// A model to serve.
pub struct ServedModel<D: Device> {
    /// Its first weights.
    pub model: Model<D>,
    /// Where new ones come from; absent = they stay.
    pub new_weights: Option<NewWeights<D>>,
}

impl<D: Device> From<Model<D>> for ServedModel<D> {
    fn from(model: Model<D>) -> Self {
        Self { model, new_weights: None }
    }
}

/// Weights to load.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) folder: PathBuf,
    pub(crate) version: String,
}

/// The folder of new weights, if the server takes any.
pub(crate) fn inside(served: &Served) -> Result<&Path, ApiError> {
    served.weights_inside.as_deref().ok_or_else(|| {
        let how = "start it with --weights-from FOLDER to let it";
        forbidden(format!("this server takes no new weights: {how}"))
    })
}

fn forbidden(message: String) -> ApiError {
    ApiError::of_status(StatusCode::FORBIDDEN, message)
}

/// Reads a request for new weights.
pub(crate) fn read(body: &[u8], inside: &Path, settings: &Settings) -> Result<Wanted, ApiError> {
    let fields = object(body, settings)?;
    let known = ["model", "model_path", "weight_version", "flush_cache"];
    if let Some((name, value)) = fields.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        return Err(unexpected(&hapo_core::excerpt(name, 80), "no such field", value));
    }
    if take::<bool>(&fields, "flush_cache", "true")? == Some(false) {
        return Err(unexpected("flush_cache", "true", &fields["flush_cache"]));
    }
    let text = |name: &str| {
        let found = take::<String>(&fields, name, "a string")?.filter(|it| !it.is_empty());
        let got = fields.get(name).cloned().unwrap_or_default();
        found.ok_or_else(|| unexpected(name, "a string", &got))
    };
    let (path, version) = (text("model_path")?, text("weight_version")?);
    // A link may lead out of the folder.
    let folder = Path::new(&path).canonicalize().ok();
    let folder =
        folder.filter(|it| inside.canonicalize().is_ok_and(|inside| it.starts_with(inside)));
    let folder = folder
        .ok_or_else(|| forbidden("model_path: expected a folder of --weights-from".into()))?;
    Ok(Wanted { folder, version })
}
