//! Pad and end tokens, and the template: by the files beside the weights.

use serde_json::Value;

use super::Diagnosis;
use super::record::{Framework, Record};

pub(super) fn examine(record: &Record, found: &mut Diagnosis) {
    let Some(folder) = &record.model else {
        let what = "tokens and template: no tokenizer beside the run (--model names its folder)";
        return found.skip(what);
    };
    let mut read = |name: &str| {
        let read = hapo_run::read_json::<Value>(&folder.join(name));
        found.take(read).flatten().unwrap_or_default()
    };
    let (config, tokenizer) = (read("tokenizer_config.json"), read("tokenizer.json"));
    let ends = &read("generation_config.json")["eos_token_id"];
    let file = folder.join("chat_template.jinja");
    let file = found.take(hapo_core::if_there(&file, std::fs::read_to_string(&file))).flatten();
    let text = |name: &str| {
        let token = &config[name];
        token.as_str().or(token["content"].as_str()).unwrap_or_default().to_owned()
    };
    let added = tokenizer["added_tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_special =
        |token: &str| added.iter().any(|it| it["content"] == token && it["special"] == true);
    let (pad, end, before) = (text("pad_token"), text("eos_token"), found.findings.len());
    if record.framework == Framework::Hapo || pad.is_empty() {
        // We pad nothing.
    } else if pad == end {
        found.add("wrong-pad", format!("The pad token is the end token, `{end}`."));
    } else if !added.is_empty() && !is_special(&pad) {
        let what = format!("The pad token `{pad}` is no special token: texts hold it.");
        found.add("wrong-pad", what);
    }
    let template = file.unwrap_or_else(|| text("chat_template"));
    if record.plain_prompts && !template.is_empty() {
        found.add("no-template", "The prompts are plain texts, and the model has a chat template.");
    }
    let start = text("bos_token");
    let writes_one = template.contains("bos_token") || template.contains(&start);
    let mut prompts = record.answers.iter().map(|it| &it.prompt).chain(&record.first_problem);
    if !start.is_empty() && is_put_in_front(&tokenizer["post_processor"], &start) {
        if prompts.any(|it| it.trim_start().starts_with(&start)) {
            let what = format!(
                "Prompts begin with `{start}`, and the tokenizer or the template puts another in front."
            );
            found.add("start-token", what);
        } else if !(record.plain_prompts || template.is_empty() || writes_one) {
            let what = format!(
                "The tokenizer puts `{start}` in front of a text, and the chat template writes none."
            );
            found.add("start-token", what);
        }
    }
    let is_listed = |id: &Value| ends == id || ends.as_array().is_some_and(|it| it.contains(id));
    let is_written = |it: &&Value| it["content"].as_str().is_some_and(|it| template.contains(it));
    let written = added.iter().filter(|it| it["special"] == true).filter(is_written);
    let written: Vec<&Value> = written.collect();
    // A template may name its tokens by variables.
    if !template.is_empty() && !added.is_empty() && !template.contains("_token") {
        if written.is_empty() {
            let what = "The chat template holds no special token: nothing ends a turn.";
            found.add("no-template", what);
        } else if !written.iter().any(|it| it["content"] == *end || is_listed(&it["id"])) {
            let what = format!("The chat template never writes the end token `{end}`.");
            found.add("end-token", what);
        }
    }
    if found.findings.len() == before {
        let template = if template.is_empty() { "no template" } else { "the template closes" };
        found.held.push(format!("tokens: pad `{pad}`, end `{end}`, {template}"));
    }
}

/// True if every encoded text begins with the token.
fn is_put_in_front(processor: &Value, token: &str) -> bool {
    let parts = processor["processors"].as_array().map(Vec::as_slice).unwrap_or_default();
    processor["single"][0]["SpecialToken"]["id"] == *token
        || parts.iter().any(|it| is_put_in_front(it, token))
}
