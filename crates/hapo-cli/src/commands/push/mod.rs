//! `hapo push`: a run or a model folder to the Hugging Face hub.

mod readme;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hapo_core::{Refusal, found_at};
use hapo_net::hub::{Hub, PushSettings, RepoId, Upload, parse_name};
use hapo_run::{RunFolder, recipe_entries, recipe_value};
use serde_json::{Value, json};

use crate::{commands::train_summary::Summary, failure::bad_input, support::hub::DownloadProgress};
use readme::{ModelReadme, OfRun};

/// Push a run's checkpoint, or any model folder, to the Hugging Face hub, with a model card.
///
/// The token is `HF_TOKEN`'s or that of `hf auth login`. A README.md in the folder stays the model card.
#[derive(clap::Args)]
#[command(
    before_help = "Example: hapo push runs/mine org/name --private\n         hapo push runs/mine org/name --dry-run"
)]
pub(crate) struct Args {
    /// A run folder, a checkpoint, or a model folder
    source: PathBuf,
    /// org/name[@revision] on the hub; made if it is missing
    repo: String,
    /// Of a run: the checkpoint of this step, `best` or `last`
    #[arg(long, default_value = "last", value_name = "WHICH")]
    checkpoint: String,
    /// Make a new repository private
    #[arg(long)]
    private: bool,
    /// Title of the commit
    #[arg(long, default_value = "Upload by hapo")]
    message: String,
    /// Print the files and the model card, and push nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(repo) = hapo_net::hub::repo(&args.repo) else {
        let problem = format!("{}: no name of the hub", args.repo);
        return Err(bad_input(problem, "repositories are named org/name or org/name@revision"));
    };
    let source = Source::find(&args.source, &args.checkpoint)?;
    // What is made for the push.
    let made = tempfile::tempdir()?;
    let (files, readme) = source.files(&repo, made.path())?;
    if args.dry_run {
        return show(args, &repo, &files, &readme);
    }
    let settings = PushSettings { private: args.private, message: args.message.clone() };
    let pushed =
        Hub::from_env().push(&repo, &files, &settings, &mut DownloadProgress::new("sending"))?;
    if args.json {
        let json = json!({ "url": pushed.url, "commit": pushed.commit, "files": paths(&files), "sent_bytes": pushed.sent });
        outln!("{json}");
    } else {
        outln!("{}", if pushed.url.is_empty() { repo.to_string() } else { pushed.url });
    }
    Ok(())
}

fn paths(files: &[Upload]) -> Vec<&str> {
    files.iter().map(|it| it.path.as_str()).collect()
}

fn show(args: &Args, repo: &RepoId, files: &[Upload], readme: &str) -> Result<()> {
    if args.json {
        let json = json!({ "repo": repo.to_string(), "files": paths(files), "readme": readme });
        outln!("{json}");
        return Ok(());
    }
    outln!("{repo}:");
    for it in files {
        outln!("  {}", it.path);
    }
    outln!("\n{readme}");
    Ok(())
}

struct Source {
    model: PathBuf,
    /// The run that made them, and its step.
    run: Option<(PathBuf, u64)>,
}

impl Source {
    fn find(folder: &Path, checkpoint: &str) -> Result<Self> {
        let config = |name: &str| {
            let file = folder.join(name);
            Ok::<_, Refusal>(found_at(&file)?.is_some_and(|it| it.is_file()))
        };
        if config("config.json")? || config("adapter_config.json")? {
            // A checkpoint lies in the `checkpoints` of its run.
            let whole = folder
                .canonicalize()
                .with_context(|| format!("cannot read {}", folder.display()))?;
            let mut of = None;
            if let Some(run) = whole.parent().and_then(Path::parent) {
                let all = RunFolder(run).list_checkpoints()?;
                let step = all.into_iter().find(|it| it.1 == whole).map(|it| it.0);
                of = step.map(|step| (run.to_owned(), step));
            }
            return Ok(Self { model: folder.to_owned(), run: of });
        }
        let all = RunFolder(folder).list_checkpoints()?;
        let found = match checkpoint {
            "best" => hapo_train::checkpoint::best(folder)?,
            "last" => all.into_iter().max_by_key(|it| it.0),
            step => {
                let step = step.parse::<u64>().ok();
                all.into_iter().find(|it| Some(it.0) == step)
            }
        };
        let Some((step, model)) = found else {
            let folder = folder.display();
            return Err(bad_input(
                format!("{folder} holds no model, and no checkpoint `{checkpoint}` of a run"),
                "give a model folder, or a run folder with --checkpoint last, best or a step that was kept",
            ));
        };
        Ok(Self { model, run: Some((folder.to_owned(), step)) })
    }

    /// The files in order of their names, and the model card among them.
    fn files(&self, repo: &RepoId, made: &Path) -> Result<(Vec<Upload>, String)> {
        let mut files = Vec::new();
        let real = |path: &Path| path.canonicalize().map_err(Refusal::io("read", path));
        // The hub's cache has links into the folder of the whole repository.
        let whole = real(&self.model)?;
        let is_cached = |it: &&Path| {
            it.file_name().is_some_and(|it| it.to_string_lossy().starts_with("models--"))
        };
        let home = whole.ancestors().find(is_cached).unwrap_or(&whole);
        for path in hapo_run::entries(&self.model)? {
            let file = path.file_name().and_then(|it| it.to_str()).unwrap_or_default().to_owned();
            let is_file = found_at(&path)?.is_some_and(|it| it.is_file());
            // The trainer's own files are of no use to others.
            if !is_file || file.starts_with('.') || file == "checksums.json" {
                continue;
            }
            if !real(&path)?.starts_with(home) {
                let problem = format!("{} leads out of the folder", path.display());
                return Err(bad_input(problem, "remove the link, or put a copy of the file there"));
            }
            files.push(Upload { path: file, file: path });
        }
        let own = files.iter().any(|it| it.path == "README.md");
        let mut run = None;
        if let Some((folder, step)) = &self.run {
            run = Some(of_run(folder, *step, made, &mut files)?);
        }
        let adapter: Option<Value> = hapo_run::read_json(&self.model.join("adapter_config.json"))?;
        let base = match &adapter {
            Some(it) => it["base_model_name_or_path"].as_str().map(str::to_owned),
            None => run.as_ref().and_then(|it| text_of(&it.recipe, "model.path")),
        };
        let readme = ModelReadme {
            repo: &repo.id,
            base: base.and_then(|it| name_on_the_hub(&it)),
            is_adapter: adapter.is_some(),
            run,
        };
        let readme = if own {
            std::fs::read_to_string(self.model.join("README.md"))?
        } else {
            let readme = readme.markdown();
            files.push(upload("README.md", made, &readme)?);
            readme
        };
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((files, readme))
    }
}

/// The run's part of the model card, with the recipe and a figure as further files.
fn of_run(folder: &Path, step: u64, made: &Path, files: &mut Vec<Upload>) -> Result<OfRun> {
    const FIGURE: &str = "reward.svg";
    let run = RunFolder(folder);
    let recipe = std::fs::read_to_string(run.recipe())
        .with_context(|| format!("cannot read {}", run.recipe().display()))?;
    files.push(upload("recipe.toml", made, &recipe)?);
    let mut figure = None;
    if let Some(svg) = hapo_report::figure(folder, "reward")? {
        files.push(upload(FIGURE, made, &svg)?);
        figure = Some(FIGURE);
    }
    let method = text_of(&recipe, "method");
    Ok(OfRun { recipe, method, step, summary: Summary::of(folder, step)?, figure })
}

/// A file of this text, to push.
fn upload(name: &str, made: &Path, text: &str) -> Result<Upload> {
    let file = made.join(name);
    std::fs::write(&file, text)?;
    Ok(Upload { path: name.to_owned(), file })
}

fn text_of(recipe: &str, key: &str) -> Option<String> {
    let value = recipe_value(recipe_entries(recipe).ok()?.get(key)?);
    value.as_str().map(str::to_owned)
}

/// The name on the hub of a model that was named so, or whose folder is one of the hub's cache.
fn name_on_the_hub(model: &str) -> Option<String> {
    if let Some(part) = model.split('/').find_map(|it| it.strip_prefix("models--")) {
        return part.split_once("--").map(|(org, name)| format!("{org}/{name}"));
    }
    match parse_name(model) {
        Ok(hapo_net::hub::ParsedName::Model(it)) => Some(it.id),
        _ => None,
    }
}
