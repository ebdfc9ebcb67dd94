//! The model card of what is pushed.

use std::fmt::Write;

#[derive(Default)]
pub(super) struct ModelReadme<'a> {
    /// `org/name`.
    pub(super) repo: &'a str,
    pub(super) base: Option<String>,
    pub(super) is_adapter: bool,
    pub(super) run: Option<OfRun>,
}

pub(super) struct OfRun {
    pub(super) recipe: String,
    pub(super) method: Option<String>,
    pub(super) step: u64,
    pub(super) summary: Option<crate::commands::train_summary::Summary>,
    pub(super) figure: Option<&'static str>,
}

/// Metrics of its table, and what they are.
const ROWS: &[(&str, &str)] = &[
    ("eval/avg@k", "success on the evaluation set, mean over samples"),
    ("eval/pass@k", "problems of it with a correct sample"),
    ("reward/policy_only", "mean reward of the policy's own rollouts"),
    ("loss", "loss"),
    ("response_length/mean", "mean length of a response in tokens"),
    ("response_length/truncated", "share of responses that reached the limit"),
    ("kl/initial", "KL to the initial weights"),
];

impl ModelReadme<'_> {
    pub(super) fn markdown(&self) -> String {
        let mut text = self.front_matter();
        let name = self.repo.split('/').next_back().unwrap_or(self.repo);
        let _ = writeln!(text, "\n# {name}\n");
        let what = if self.is_adapter { "A LoRA adapter" } else { "A model" };
        let of_base = self.base.as_ref().map_or_else(String::new, |it| {
            let link = format!("[{it}](https://huggingface.co/{it})");
            if self.is_adapter { format!(" of {link}") } else { format!(", trained from {link}") }
        });
        let method = self.run.as_ref().and_then(|it| it.method.as_ref());
        let method = method.map_or_else(String::new, |it| format!(" by the method `{it}`"));
        let _ = writeln!(text, "{what}{of_base}, post-trained with `hapo`{method}.\n");
        if let Some(run) = &self.run {
            run.write(&mut text);
        }
        self.write_loading(&mut text);
        if let Some(run) = &self.run {
            let recipe = run.recipe.trim_end();
            // A fence longer than any in the recipe.
            let fence = "`".repeat(longest_run_of_backticks(recipe).max(2) + 1);
            let _ = writeln!(
                text,
                "\n## Recipe\n\nThe resolved recipe, also in `recipe.toml`; `hapo train recipe.toml` runs it again.\n\n{fence}toml\n{recipe}\n{fence}"
            );
        }
        text
    }

    fn front_matter(&self) -> String {
        let library = if self.is_adapter { "peft" } else { "transformers" };
        let mut text = format!("---\nlibrary_name: {library}\npipeline_tag: text-generation\n");
        if let Some(base) = &self.base {
            let _ = writeln!(text, "base_model: {base}");
            let relation = if self.is_adapter { "adapter" } else { "finetune" };
            let _ = writeln!(text, "base_model_relation: {relation}");
        }
        text += "tags:\n- hapo\n- reinforcement-learning\n";
        if self.is_adapter {
            text += "- lora\n";
        }
        if let Some(method) = self.run.as_ref().and_then(|it| it.method.as_ref()) {
            let _ = writeln!(text, "- {method}");
        }
        text + "---\n"
    }

    fn write_loading(&self, text: &mut String) {
        let repo = self.repo;
        let _ = writeln!(text, "## How to load\n\n```python");
        if self.is_adapter {
            let base = self.base.as_deref().unwrap_or("PATH OF THE BASE MODEL");
            let _ = writeln!(
                text,
                "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\nmodel = AutoModelForCausalLM.from_pretrained(\"{base}\")\nmodel = PeftModel.from_pretrained(model, \"{repo}\")\ntokenizer = AutoTokenizer.from_pretrained(\"{repo}\")\n```\n\nor `hapo merge --model {base} --adapter DIR -o merged`, with DIR a copy of this repository."
            );
        } else {
            let _ = writeln!(
                text,
                "from transformers import AutoModelForCausalLM, AutoTokenizer\n\nmodel = AutoModelForCausalLM.from_pretrained(\"{repo}\")\ntokenizer = AutoTokenizer.from_pretrained(\"{repo}\")\n```\n\nor `hapo generate --model {repo} TEXT`, `hapo serve --model {repo}`."
            );
        }
    }
}

impl OfRun {
    fn write(&self, text: &mut String) {
        let _ = writeln!(text, "## Training\n\nThe weights are those after step {}.", self.step);
        let mut rows = Vec::new();
        if let Some(it) = &self.summary {
            let _ = writeln!(text, "Over the run: {}.", it.text());
            let row = |(name, what)| Some((name, *it.columns.get(name)?.last()?, what));
            rows.extend(ROWS.iter().copied().filter_map(row).filter(|it| it.1.is_finite()));
        }
        if !rows.is_empty() {
            let _ = writeln!(text, "\n| metric of step {} | | |\n|---|---|---|", self.step);
            for (name, value, what) in rows {
                let _ = writeln!(text, "| `{name}` | {value:.4} | {what} |");
            }
        }
        text.push('\n');
        if let Some(figure) = self.figure {
            let _ = writeln!(text, "![Reward over the steps]({figure})\n");
        }
    }
}

fn longest_run_of_backticks(text: &str) -> usize {
    text.split(|it| it != '`').map(str::len).max().unwrap_or(0)
}
