//! `hapo serve`: a model behind an `OpenAI`-compatible interface.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use hapo_sampler::{ChatFormat, choose_template};
use hapo_serve::{LEAST_CACHE_TOKENS, NewWeights, ServedModel, Settings};
use hapo_train::ChosenTemplate;
use hapo_train::recipe::AUTO;

use crate::support::arguments::{KvArgs, TEMPLATES, count, number};
use crate::support::device::{DeviceArg, tell_start};
use crate::support::model;

/// Serve a model over HTTP: chat completions and completions, as `openai` clients ask for them.
#[derive(clap::Args)]
#[command(before_help = "Example: hapo serve --model runs/try/checkpoints/step-000100 --port 8000")]
pub(crate) struct Args {
    #[command(flatten)]
    model: model::ModelArgs,
    /// Address to listen on; there is no authentication
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port; 0 takes a free one
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Sequences decoded at once
    #[arg(long, default_value_t = 16, value_parser = count(u64::MAX))]
    max_sequences: usize,
    /// Tokens of the key/value cache at most, over all sequences
    #[arg(long, default_value_t = 32_768, value_parser = number(LEAST_CACHE_TOKENS..=usize::MAX, "at least 128"))]
    max_tokens_total: usize,
    /// Requests running and waiting; more are rejected with status 429
    #[arg(long, default_value_t = 256, value_parser = count(u64::MAX))]
    max_requests: usize,
    /// Longest completion of a chat request that does not say
    #[arg(long, default_value_t = 1024, value_parser = count(u64::MAX))]
    max_tokens: usize,
    /// The model's name in requests and answers [default: as given by --model]
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Prompt template of chats; `chat` is the model's own [default: the one it was trained with by hapo train, else its own]
    #[arg(long, hide_possible_values = true, value_parser = TEMPLATES)]
    template: Option<String>,
    /// Seed of the requests that bring none [default: the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Another name under which requests may ask: of a proxy, or of this machine
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Folder from which a trainer may have new weights loaded [default: none]
    #[arg(long, value_name = "DIR")]
    weights_from: Option<PathBuf>,
    #[command(flatten)]
    kv: KvArgs,
    #[command(flatten)]
    device: DeviceArg,
}

pub(crate) fn run(args: &Args, threads: usize) -> Result<()> {
    let asked = hapo_data::TemplateChoice::named(args.template.as_deref().unwrap_or(AUTO));
    let template = model::template(asked, args.model.named())?;
    on_device!(args.device, args.device.compute.or_f32(), threads, |device| serve(
        args, &template, device
    ))
}

impl Args {
    fn settings(&self) -> Settings {
        let name = self.served_model_name.as_ref();
        Settings {
            name: name.unwrap_or(&self.model.model).clone(),
            max_sequences: self.max_sequences,
            cache_tokens: self.max_tokens_total,
            kv_memory: self.kv.kv_memory,
            prefill_tokens: 512,
            max_requests: self.max_requests,
            default_max_tokens: self.max_tokens,
            body_bytes: 8 << 20,
            body_time: Duration::from_mins(1),
            head_time: Duration::from_secs(30),
            // Some beyond the requests, for those that are told that there are too many.
            write_time: Duration::from_secs(30),
            max_connections: self.max_requests.saturating_add(256),
            names: [std::slice::from_ref(&self.host), &self.allowed_host].concat(),
            seed: self.seed.unwrap_or_else(|| unix_time() as u64),
            clock: unix_time,
        }
    }
}

fn serve<D: hapo_kernels::Device>(args: &Args, template: &ChosenTemplate, device: D) -> Result<()> {
    let (settings, model, kv_dtype) = (args.settings(), args.model.named(), args.kv.kv_dtype);
    let context = settings.cache_tokens;
    let mut loaded = model::open_loaded(model, context, device.clone())?;
    tell_start(args.device.verbose, &loaded.seconds);
    loaded.model.round_keys_and_values_to(kv_dtype);
    let base = model.model.to_owned();
    let new_weights = args.weights_from.as_ref().map(|inside| NewWeights {
        inside: inside.clone(),
        open: Box::new(move |folder: &Path| {
            let whole = folder.display().to_string();
            let config = folder.join("adapter_config.json");
            let found = hapo_core::found_at(&config).map_err(|it| it.to_string())?;
            let is_adapter = found.is_some();
            let adapter = is_adapter.then_some(folder);
            let named = model::Named { model: if is_adapter { &base } else { &whole }, adapter };
            let opened = model::open_loaded(named, context, device.clone());
            let mut model = opened.map_err(|it| format!("{it:#}"))?.model;
            model.round_keys_and_values_to(kv_dtype);
            Ok(model)
        }),
    });
    let template = choose_template(template.choice(), model.model, &loaded.tokenizer_files)?;
    let chat_format = ChatFormat::new(loaded.tokenizer, template, &loaded.model.config().eos)?;
    // The engine has threads of its own.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (host, port) = (&*args.host, args.port);
        let listener = tokio::net::TcpListener::bind((host, port))
            .await
            .with_context(|| format!("cannot listen on {host}:{port}"))?;
        let address = listener.local_addr()?;
        if !address.ip().to_canonical().is_loopback() {
            errln!(
                "warning: whoever reaches {address} can use the model; there is no authentication"
            );
        }
        errln!("serving {} at http://{address}/v1", settings.name);
        errln!("try it: {}", hapo_serve::example_call(&address.to_string()));
        let served = ServedModel { model: loaded.model, new_weights };
        hapo_serve::serve(served, chat_format, settings, listener, stopped()).await?;
        Ok(())
    })
}

fn unix_time() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs() as i64)
}

/// Done at the first Ctrl-C or SIGTERM; the second ends the program.
async fn stopped() {
    signal().await;
    errln!("\nfinishing the requests in flight; once more to stop at once");
    tokio::spawn(async {
        signal().await;
        std::process::exit(130);
    });
}

async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without a handler the system's own way of ending the program stays.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
