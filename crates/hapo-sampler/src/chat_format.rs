//! How a problem becomes a prompt's tokens, and a completion's tokens text: the same for training
//! and evaluation. Token in, token out: a sampled sequence is never tokenised again.

use std::path::Path;

use hapo_core::Refusal;
use hapo_data::{
    CHAT, ChatPrompt, ChatTemplate, EndOfTurn, Example, Message, PromptTemplate, Rendering,
    TemplateChoice,
};
use hapo_model::{Tokenizer, folder::Companions};

use crate::text::first_stop;

#[derive(Debug)]
pub struct ChatFormat {
    pub tokenizer: Tokenizer,
    pub template: PromptTemplate,
    /// The token that ends an assistant's turn, and every teacher trajectory (D10).
    pub end_token: u32,
    /// Tokens at which sampling stops: the end token and the model's own.
    pub stop: Vec<u32>,
}

/// The chosen template for a model: one of the table, or the one in its tokenizer files (name and bytes). `model` names
/// it in messages.
pub fn choose_template(
    choice: TemplateChoice<'_>,
    model: &str,
    tokenizer_files: &[(&'static str, Vec<u8>)],
) -> Result<PromptTemplate, Refusal> {
    if let Some(named) = choice.check()? {
        return Ok(named.into());
    }
    let files = hapo_model::chat_files(tokenizer_files, Path::new(model))?;
    let none = "no chat_template.jinja, and no chat_template in tokenizer_config.json";
    let source = files.template.ok_or_else(|| unfit(CHAT, &format!("{model} has {none}")))?;
    Ok(PromptTemplate::Chat(Box::new(ChatPrompt {
        template: ChatTemplate::new(model, &source, files.special_tokens)?,
        system: choice.system.map(str::to_owned),
        suffix: choice.suffix.map(str::to_owned),
    })))
}

fn unfit(template: &str, missing: &str) -> Refusal {
    Refusal::input(format!("template `{template}` does not fit the model: {missing}"))
}

impl ChatFormat {
    /// `eos` are the ids in the model's folder, `generation_config.json` first.
    pub fn new(
        tokenizer: Tokenizer,
        template: impl Into<PromptTemplate>,
        eos: &[u32],
    ) -> Result<Self, Refusal> {
        let template = template.into();
        let missing = |what: &str| unfit(template.name(), what);
        let first_eos =
            || eos.first().copied().ok_or_else(|| missing("the model names no eos_token_id"));
        let end_token = match &template {
            PromptTemplate::Named(named) => match named.end_of_turn {
                EndOfTurn::Token(token) => tokenizer
                    .id(token)
                    .ok_or_else(|| missing(&format!("the tokenizer has no token `{token}`")))?,
                EndOfTurn::TokenizerEos => first_eos()?,
            },
            PromptTemplate::Chat(chat) => {
                end_of_turn(&chat.template, &tokenizer)?.map_or_else(first_eos, Ok)?
            }
        };
        let mut stop = vec![end_token];
        stop.extend(eos.iter().filter(|it| **it != end_token));
        Ok(Self { tokenizer, template, end_token, stop })
    }

    /// That the files of the model `named` name the token that ends answers: engines stop by them. `eos_token` is the
    /// tokenizer's, `eos` are the ids of [`ChatFormat::new`].
    pub fn check_one_end(
        &self,
        named: &str,
        eos_token: Option<&str>,
        eos: &[u32],
    ) -> Result<(), Refusal> {
        let end = self.end_token;
        if eos.contains(&end) {
            return Ok(());
        }
        let text = self.tokenizer.token(end).unwrap_or_default();
        let found = format!(
            "template `{}` ends answers with {text} ({end}), tokenizer_config.json has the eos_token {}, generation_config.json or config.json the eos_token_id {eos:?}",
            self.template.name(),
            eos_token.unwrap_or("none"),
        );
        Err(Refusal::input(format!("{named}: expected one end token, got three answers: {found}"))
            .hint(format!("`python -m hapo.ends {named} OUT` writes a folder that names {text}, or put {end} first into eos_token_id of both files")))
    }

    /// The files of a model that is trained in this format: where they have no chat template, they get this one and the
    /// token that ends its turns. `model` names it in messages.
    pub fn trained_files(&self, files: Companions, model: &str) -> Result<Companions, Refusal> {
        let jinja = match &self.template {
            PromptTemplate::Named(named) => hapo_data::jinja(named),
            PromptTemplate::Chat(_) => None,
        };
        match jinja.zip(self.tokenizer.token(self.end_token)) {
            Some((jinja, end)) => {
                hapo_model::with_chat_template(files, Path::new(model), &jinja, &end)
            }
            None => Ok(files),
        }
    }

    pub fn prompt(&self, problem: &str) -> Result<Vec<u32>, Refusal> {
        self.encoded(&self.template.render(problem)?)
    }

    fn encoded(&self, text: &str) -> Result<Vec<u32>, Refusal> {
        match &self.template {
            PromptTemplate::Named(_) => self.tokenizer.encode_prompt(text),
            // The model's own writes all special tokens.
            PromptTemplate::Chat(_) => self.tokenizer.encode(text),
        }
    }

    /// The text of a completion before the stop string that ended it.
    pub fn text_before(
        &self,
        completion: &[u32],
        stop_strings: &[String],
    ) -> Result<String, Refusal> {
        let mut text = self.text(completion)?;
        if let Some((at, _)) = first_stop(&text, stop_strings) {
            text.truncate(at);
        }
        Ok(text)
    }

    /// The tokens of an example's prompt, which its file may hold with a template already around it.
    pub fn prompt_of(&self, example: &Example) -> Result<Vec<u32>, Refusal> {
        self.encoded(&hapo_data::prompt_of(example, &self.template)?)
    }

    pub fn special(&self, text: &str) -> Option<u32> {
        let is_special = |id: &u32| {
            self.tokenizer.decode_without_special(&[*id]).is_ok_and(|text| text.is_empty())
        };
        self.tokenizer.id(text).filter(is_special)
    }

    /// The text of a completion, without the token that ends it.
    pub fn text(&self, completion: &[u32]) -> Result<String, Refusal> {
        let text = match completion.split_last() {
            Some((last, rest)) if self.stop.contains(last) => rest,
            _ => completion,
        };
        self.tokenizer.decode(text)
    }
}

/// The special token that a chat template writes behind the assistant's text: `<|im_end|>`,
/// `<|eot_id|>`. Is `None` where it writes no special token there.
fn end_of_turn(template: &ChatTemplate, tokenizer: &Tokenizer) -> Result<Option<u32>, Refusal> {
    const ANSWER: &str = "the answer";
    let messages = [Message::new("user", "a question"), Message::new("assistant", ANSWER)];
    let rendering = Rendering { add_generation_prompt: false, ..Rendering::prompt() };
    let text = template.render(&messages, &rendering)?;
    let Some(at) = text.rfind(ANSWER) else { return Ok(None) };
    let rest = tokenizer.encode(text[at + ANSWER.len()..].trim_start())?;
    let Some(first) = rest.first() else { return Ok(None) };
    Ok(tokenizer.decode_without_special(&[*first])?.is_empty().then_some(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        let folder = hapo_testing::model_dir("tiny-qwen3");
        Tokenizer::open(&folder).unwrap()
    }

    fn own(source: &str) -> PromptTemplate {
        let tokenizer_files = [("chat_template.jinja", source.as_bytes().to_vec())];
        choose_template(TemplateChoice::named("chat"), "tiny", &tokenizer_files).unwrap()
    }

    #[test]
    fn sampling_stops_at_what_the_models_own_template_writes_and_at_its_eos() {
        let check = |source: &str, eos: &[u32], end: &str, stops: usize| {
            let chat_format = ChatFormat::new(tokenizer(), own(source), eos).unwrap();
            let id = tokenizer().id(end).unwrap();
            assert_eq!(chat_format.end_token, id, "{source}");
            assert_eq!(chat_format.stop[0], id);
            assert_eq!(chat_format.stop.len(), stops, "{source}");
        };
        let im_end = tokenizer().id("<|im_end|>").unwrap();
        let end_of_text = tokenizer().id("<|endoftext|>").unwrap();
        let turns = |end: &str| {
            format!("{{% for m in messages %}}<|im_start|>{{{{ m.content }}}}{end}{{% endfor %}}")
        };
        check(&turns("<|im_end|>\n"), &[end_of_text], "<|im_end|>", 2);
        check(&turns("\n <|im_end|>"), &[im_end], "<|im_end|>", 1);
        check(&turns("\nUser:"), &[end_of_text, im_end], "<|endoftext|>", 2);
        check(&turns(""), &[end_of_text], "<|endoftext|>", 1);
        let error = ChatFormat::new(tokenizer(), own(&turns("")), &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "template `chat` does not fit the model: the model names no eos_token_id"
        );
    }

    #[test]
    fn a_model_without_a_template_of_its_own_has_no_chat() {
        let error = choose_template(TemplateChoice::named("chat"), "models/m", &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "template `chat` does not fit the model: models/m has no chat_template.jinja, and no chat_template in tokenizer_config.json"
        );
    }

    #[test]
    fn the_models_own_chatml_gives_the_tokens_of_the_named_one() {
        let source = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
        let own = ChatFormat::new(tokenizer(), own(source), &[]).unwrap();
        let named = hapo_data::find_template("chatml").unwrap();
        let named = ChatFormat::new(tokenizer(), named, &[]).unwrap();
        assert_eq!(own.prompt("2 + 2 = ?").unwrap(), named.prompt("2 + 2 = ?").unwrap());
        assert_eq!(own.end_token, named.end_token);
    }
}
