//! Messages about words and values: what was expected, what came, and the word that was probably meant.

use super::sections::{path_of, sections_and_keys};

/// Words of TRL, verl, transformers and axolotl, and the keys that mean the same here.
const SYNONYMS: &[(&str, &str)] = &[
    ("adam_beta1", "optim.betas"),
    ("adam_beta2", "optim.betas"),
    ("adam_epsilon", "optim.eps"),
    ("base_model", "model.path"),
    ("beta", "loss.kl_coef"),
    ("bf16", "compute"),
    ("clip_ratio_high", "loss.clip_high"),
    ("clip_ratio_low", "loss.clip_low"),
    ("dataset", "data.train"),
    ("dataset_name", "data.train"),
    ("datasets", "data.train"),
    ("epochs", "steps"),
    ("epsilon", "loss.clip_low"),
    ("epsilon_high", "loss.clip_high"),
    ("eval_steps", "eval.every"),
    ("gradient_checkpointing", "optim.activation_checkpointing"),
    ("grad_clip", "optim.max_grad_norm"),
    ("kl_loss_coef", "loss.kl_coef"),
    ("learning_rate", "optim.lr"),
    ("lora_alpha", "lora.alpha"),
    ("lora_r", "lora.rank"),
    ("lora_target_modules", "lora.targets"),
    ("loss_type", "loss.normaliser"),
    ("lr_scheduler_type", "optim.lr_schedule"),
    ("max_completion_length", "sampling.max_new_tokens"),
    ("max_prompt_length", "data.max_prompt_tokens"),
    ("max_response_length", "sampling.max_new_tokens"),
    ("max_steps", "steps"),
    ("model_name_or_path", "model.path"),
    ("num_epochs", "steps"),
    ("num_generations", "sampling.group_size"),
    ("num_iterations", "optim.passes"),
    ("num_train_epochs", "steps"),
    ("per_device_train_batch_size", "sampling.prompts_per_step"),
    ("ppo_epochs", "optim.passes"),
    ("ppo_mini_batch_size", "optim.mini_batch_prompts"),
    ("pretrained_model_name_or_path", "model.path"),
    ("report_to", "track"),
    ("reward_funcs", "data.grader"),
    ("reward_model", "data.grader"),
    ("rollout_n", "sampling.group_size"),
    ("run_name", "name"),
    ("save_steps", "checkpoint.every"),
    ("save_total_limit", "checkpoint.keep"),
    ("scale_rewards", "advantage.std"),
    ("train_batch_size", "sampling.prompts_per_step"),
    ("train_files", "data.train"),
    ("total_epochs", "steps"),
    ("val_files", "eval.data"),
    ("warmup_ratio", "optim.warmup"),
];

/// The key that means a word of another trainer, or that ends in it.
pub fn key_of_word(word: &str) -> Option<String> {
    let word = word.trim_start_matches('-').replace('-', "_").to_lowercase();
    let last = word.rsplit('.').next().unwrap_or_default();
    if let Some((_, key)) = SYNONYMS.iter().find(|(name, _)| *name == last) {
        return Some((*key).to_owned());
    }
    let (section, key) = sections_and_keys().find(|(_, key)| key.name == last)?;
    Some(path_of(section, key.name))
}

/// Serde's message in the words of this project, and what to do.
pub(super) fn explain(message: &str) -> (String, String) {
    let message = message.lines().next().unwrap_or_default();
    let see = "`hapo recipe` lists every key".to_owned();
    let known = |rest: &str| -> Vec<String> {
        let quoted = rest.split('`').skip(1).step_by(2);
        quoted.map(str::to_owned).collect()
    };
    let near = |word: &str, known: &[String]| {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        nearest(word, &known).map(str::to_owned)
    };
    let ask = |it: String| format!("did you mean `{it}`?");
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let names = known(rest);
        let (key, names) = names.split_first().expect("serde names the field");
        let what = format!("unknown key `{key}`, expected one of {}", names.join(", "));
        let meant = key_of_word(key).or_else(|| near(key, names));
        return (what, meant.map_or(see, ask));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let names = known(rest);
        let (word, names) = names.split_first().expect("serde names the variant");
        let what = format!("expected one of {}, got `{word}`", names.join(", "));
        let write = format!("write one of: {}", names.join(", "));
        return (what, near(word, names).map_or(write, ask));
    }
    let invalid =
        message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((got, expected)) = invalid.and_then(|it| it.rsplit_once(", expected ")) {
        let expected = match expected {
            // TOML's integers end there.
            "u64" | "u32" | "usize" => "a whole number from 0 to 9223372036854775807",
            "f64" => "a number",
            "a boolean" => "true or false",
            other => other,
        };
        return (format!("expected {expected}, got {got}"), see);
    }
    (message.to_owned(), see)
}

/// A hint at the known word closest to `word`, written behind `before`; `otherwise` where none is close.
pub fn did_you_mean(word: &str, known: &[&str], before: &str, otherwise: &str) -> String {
    match nearest(word, known) {
        Some(it) => format!("did you mean `{before}{it}`?"),
        None => otherwise.to_owned(),
    }
}

/// The known word closest to `word`, if it is close enough to be what was meant.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = &word.to_lowercase();
    known
        .iter()
        .map(|it| (strsim::levenshtein(word, it), *it))
        .min()
        .filter(|(d, it)| *d <= 1 + it.len() / 3)
        .map(|it| it.1)
}

#[cfg(test)]
mod tests {
    use super::super::sections::SECTIONS;
    use super::*;

    #[test]
    fn every_synonym_is_no_key_and_stands_for_one() {
        for (word, key) in SYNONYMS {
            let known = sections_and_keys().any(|(section, it)| path_of(section, it.name) == *key);
            assert!(known, "{word} stands for no key: {key}");
            let own = SECTIONS.iter().any(|(_, keys)| keys.iter().any(|it| it.name == *word));
            assert!(!own, "{word} is a key itself");
        }
    }

    #[test]
    fn words_of_other_trainers_and_last_parts_find_their_key() {
        assert_eq!(key_of_word("learning_rate").as_deref(), Some("optim.lr"));
        assert_eq!(key_of_word("--num-generations").as_deref(), Some("sampling.group_size"));
        assert_eq!(key_of_word("lr").as_deref(), Some("optim.lr"));
        assert_eq!(key_of_word("nonsense"), None);
        let (_, hint) = explain("unknown field `learning_rate`, expected one of `lr`, `betas`");
        assert_eq!(hint, "did you mean `optim.lr`?");
        let (_, hint) = explain("unknown variant `GRPO`, expected one of `sft`, `grpo`, `trapo`");
        assert_eq!(hint, "did you mean `grpo`?");
    }
}
