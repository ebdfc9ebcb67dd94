//! Generation: the cache of keys and values in pages, prompts into it, and tokens after them.

mod kv_cache;
mod pages;
mod prefill;
mod step;
mod workspace;

pub use kv_cache::{CacheFull, KvCache, PromptSlot, SeqSlot, kv_bytes_per_token};
pub use prefill::{PREFILL_TOKENS, PartialPrompt, Prefill};
pub use step::{NextToken, REREAD_TOKENS};
pub use workspace::{GenerationRows, generation_bytes, workspace_bytes};
