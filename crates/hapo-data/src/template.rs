//! Prompt templates: the text around a problem.
//!
//! Purpose: a base model answers differently to every layout of its prompt, so the layouts are data with a name and a
//! hash that a run records. Each text equals the named published code's, byte for byte.

use crate::chat_template::{ChatTemplate, Rendering};
use crate::example::{Example, Message};
use crate::refuse::unknown;
use hapo_core::Refusal;
use sha2::{Digest, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    pub name: &'static str,
    pub origin: &'static str,
    /// The prompt, with `{input}` once where the problem goes.
    pub text: &'static str,
    /// What opens the user's turn in the text, and the assistant's; empty for a text that is no conversation.
    pub turns: [&'static str; 2],
    /// The end of the assistant's turn, in sampling and in the teacher's solution (D10).
    pub end_of_turn: EndOfTurn,
}

/// Name of the template that is the model's own ([`ChatTemplate`]).
pub const CHAT: &str = "chat";

/// Where [`CHAT`] comes from, in one line.
pub const CHAT_ORIGIN: &str =
    "the model's own chat template (Jinja), with an optional system text and suffix";

/// A template as a command or a recipe asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateChoice<'a> {
    /// A name of [`TEMPLATES`], or [`CHAT`].
    pub name: &'a str,
    /// Text of the system turn; for [`CHAT`] only.
    pub system: Option<&'a str>,
    /// The text after the problem in the user's turn, its spaces included; for [`CHAT`] only.
    pub suffix: Option<&'a str>,
}

impl<'a> TemplateChoice<'a> {
    pub fn named(name: &'a str) -> Self {
        Self { name, system: None, suffix: None }
    }

    /// The template, where it is one of the table; none where it is the model's own.
    pub fn check(&self) -> Result<Option<&'static Template>, Refusal> {
        if self.name == CHAT {
            return Ok(None);
        }
        let template = find_template(self.name)?;
        let what = match (self.system, self.suffix) {
            (None, None) => return Ok(Some(template)),
            (Some(_), _) => "system text",
            (None, Some(_)) => "suffix",
        };
        let name = template.name;
        let problem = format!("template `{name}` takes no {what}, only template `{CHAT}` does");
        Err(Refusal::input(problem))
    }
}

#[derive(Debug, Clone)]
pub enum PromptTemplate {
    /// One of [`TEMPLATES`].
    Named(&'static Template),
    Chat(Box<ChatPrompt>),
}

/// A chat template with the texts that a run adds to a problem.
#[derive(Debug, Clone)]
pub struct ChatPrompt {
    pub template: ChatTemplate,
    /// Text of the system turn; without it the template's own default holds.
    pub system: Option<String>,
    /// The text after the problem in the user's turn.
    pub suffix: Option<String>,
}

impl From<&'static Template> for PromptTemplate {
    fn from(template: &'static Template) -> Self {
        Self::Named(template)
    }
}

impl ChatPrompt {
    /// The turns with the run's words: its system text in place of the example's, its suffix on the user's last turn.
    pub(crate) fn render(&self, example: &Example) -> Result<String, Refusal> {
        let mut turns = example.turns(self.system.as_deref());
        let last = turns.iter_mut().rev().find(|it| it.role == "user");
        if let (Some(last), Some(suffix)) = (last, &self.suffix) {
            last.content.push_str(suffix);
        }
        self.template.render(&turns, &Rendering::prompt())
    }
}

impl PromptTemplate {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Named(it) => it.name,
            Self::Chat(_) => CHAT,
        }
    }

    pub fn render(&self, problem: &str) -> Result<String, Refusal> {
        match self {
            Self::Named(it) => Ok(render(it, problem)),
            Self::Chat(it) => {
                it.render(&Example { problem: problem.to_owned(), ..Example::default() })
            }
        }
    }

    /// A whole dialogue. A template of the table takes a single user turn, which is its problem.
    pub fn render_dialogue(
        &self,
        messages: &[Message],
        rendering: &Rendering,
    ) -> Result<String, Refusal> {
        match (self, messages) {
            (Self::Chat(it), _) => it.template.render(&messages, rendering),
            (Self::Named(template), [only]) if only.role == "user" => {
                Ok(render(template, &only.content))
            }
            (Self::Named(template), _) => {
                let roles: Vec<_> = messages.iter().map(|it| it.role.as_str()).collect();
                let (name, got) = (template.name, roles.join(", "));
                Err(Refusal::input(format!("template `{name}` takes one user turn, got: {got}")))
            }
        }
    }

    /// SHA-256, in hexadecimal, of everything around a problem: two runs with the same hash used the same words. For a
    /// template of the table it is [`template_hash`].
    pub fn hash(&self) -> String {
        match self {
            Self::Named(it) => template_hash(it),
            Self::Chat(it) => {
                let mut digest = it.template.digest();
                for text in [&it.system, &it.suffix] {
                    digest.update([0, u8::from(text.is_some())]);
                    digest.update(text.as_deref().unwrap_or_default());
                }
                hapo_core::hex(digest.finalize())
            }
        }
    }
}

/// The prompt of an example. One that its file holds with a template already around it is taken whole under the template
/// `none`; any other template must produce exactly that prompt from the problem, except for white space at its end.
///
/// The model's own template renders messages whole: a system text of the file, unless the run has one, and all turns; the
/// run's suffix goes behind the last one of the user. A template of the table brings its own system text.
/// A prompt with another template around it, a dialogue without a place in the template, and a missing one are errors.
pub fn prompt_of(example: &Example, template: &PromptTemplate) -> Result<String, Refusal> {
    let refuse = |problem: String| {
        let refusal = Refusal::input(format!("row {}, id {}: {problem}", example.row, example.id));
        Err(refusal.hint(
            "use the template that the file is rendered with, `none` for its prompts as they are, or \
             `hapo data convert --to own` for the problems alone",
        ))
    };
    let name = template.name();
    if let Some(whole) = &example.rendered {
        if name == "none" {
            return Ok(whole.clone());
        }
        if template.render(&example.problem)?.trim_end() != whole.trim_end() {
            return refuse(format!(
                "the prompt is already rendered, and not with template `{name}`"
            ));
        }
    } else if let (PromptTemplate::Named(_), [_, ..]) = (template, &example.messages[..]) {
        return refuse(format!(
            "the prompt is a dialogue of {} turns, for which template `{name}` has no place",
            example.messages.len()
        ));
    } else if example.problem.is_empty() {
        return refuse("a document without a problem".to_owned());
    }
    match template {
        PromptTemplate::Named(_) => template.render(&example.problem),
        PromptTemplate::Chat(chat) => chat.render(example),
    }
}

/// A problem followed by a hint or a part of a solution: the text of a privileged prompt.
pub fn with_hint(problem: &str, hint: &str) -> String {
    format!("{problem}\n\nHint: {hint}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfTurn {
    Token(&'static str),
    /// Whatever the tokenizer names as its end of text: `<|endoftext|>` for Qwen2.5 base models.
    TokenizerEos,
}

const IM_END: EndOfTurn = EndOfTurn::Token("<|im_end|>");
const IM_TURNS: [&str; 2] = ["<|im_start|>user\n", "<|im_start|>assistant\n"];

/// All templates; the first is the default of the presets.
pub const TEMPLATES: &[Template] = &[
    Template {
        name: "qwen-boxed",
        origin: "SimpleRL, which the paper cites; the default of the presets",
        text: "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{input}\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>assistant\n",
        turns: IM_TURNS,
        end_of_turn: IM_END,
    },
    Template {
        name: "paper-literal",
        origin: "the training prompt as the paper's appendix prints it, line breaks and blank lines included",
        text: "<|im_start|>system\nYou are a helpful assistant.\n<|im_end|>\n\n<|im_start|>user\n{input}\n\nPlease reason step by step, and put your final answer within \\boxed{}.\n<|im_end|>\n\n<|im_start|>assistant\n",
        turns: IM_TURNS,
        end_of_turn: IM_END,
    },
    Template {
        name: "qwen25-math-cot",
        origin: "Qwen2.5-Math's evaluation",
        text: "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>user\n{input}<|im_end|>\n<|im_start|>assistant\n",
        turns: IM_TURNS,
        end_of_turn: IM_END,
    },
    Template {
        name: "chatml",
        origin: "ChatML without a system turn: the built-in task's own",
        text: "<|im_start|>user\n{input}<|im_end|>\n<|im_start|>assistant\n",
        turns: IM_TURNS,
        end_of_turn: IM_END,
    },
    Template {
        name: "none",
        origin: "the problem alone",
        text: "{input}",
        turns: ["", ""],
        end_of_turn: EndOfTurn::TokenizerEos,
    },
    Template {
        name: "abel",
        origin: "Abel",
        text: "Question:\n{input}\nAnswer:\nLet's think step by step.\n",
        turns: ["Question:\n", "Answer:\nLet's think step by step.\n"],
        end_of_turn: EndOfTurn::TokenizerEos,
    },
    Template {
        name: "r1",
        origin: "OAT, after DeepSeek-R1-Zero",
        text: "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>.\nUser: {input}\nAssistant: <think>",
        turns: ["User: ", "Assistant: <think>"],
        end_of_turn: EndOfTurn::TokenizerEos,
    },
];

pub fn find_template(name: &str) -> Result<&'static Template, Refusal> {
    let known = || TEMPLATES.iter().map(|template| template.name).chain([CHAT]);
    let found = TEMPLATES.iter().find(|template| template.name == name);
    found.ok_or_else(|| unknown("template", name, known()))
}

/// The prompt of a problem. The problem goes in as it is, once, even where it contains `{input}`.
pub fn render(template: &Template, problem: &str) -> String {
    let (before, after) =
        template.text.split_once("{input}").expect("every template has a place for the problem");
    [before, problem, after].concat()
}

/// The template as a chat template (Jinja) that renders one user turn as [`render`] does a problem; a system turn takes the
/// place of the template's own. Is `None` for a text that is no conversation.
pub fn jinja(template: &Template) -> Option<String> {
    let [user, assistant] = template.turns;
    let (before, after) = template.text.split_once("{input}")?;
    let (system, user) = before.split_at(before.rfind(user).filter(|_| !user.is_empty())?);
    let (suffix, assistant) = after.split_at(after.rfind(assistant)?);
    let (head, tail, end) = match template.end_of_turn {
        EndOfTurn::Token(token) => {
            let end = &suffix[suffix.rfind(token)?..];
            (user.replace("user", "system"), end, literal(end))
        }
        EndOfTurn::TokenizerEos => (String::new(), "\n", "eos_token".to_owned()),
    };
    let [system, user, suffix, assistant, head, tail] =
        [system, user, suffix, assistant, &head, tail].map(literal);
    Some(format!(
        "{{%- for m in messages -%}}\
         {{%- if loop.first and m['role'] != 'system' -%}}{{{{ {system} }}}}{{%- endif -%}}\
         {{%- if m['role'] == 'user' -%}}{{{{ {user} + m['content'] + {suffix} }}}}\
         {{%- elif m['role'] == 'assistant' -%}}{{{{ {assistant} + m['content'] + {end} }}}}\
         {{%- else -%}}{{{{ {head} + m['content'] + {tail} }}}}{{%- endif -%}}\
         {{%- endfor -%}}\
         {{%- if add_generation_prompt -%}}{{{{ {assistant} }}}}{{%- endif -%}}"
    ))
}

fn literal(text: &str) -> String {
    let text = text.replace('\\', r"\\").replace('\n', r"\n").replace('\'', r"\'");
    format!("'{text}'")
}

/// SHA-256, in hexadecimal, of the template's text and of the end of its turns: the same hash, the same words.
pub fn template_hash(template: &Template) -> String {
    let end = match template.end_of_turn {
        EndOfTurn::Token(token) => token,
        EndOfTurn::TokenizerEos => "",
    };
    let digest =
        Sha256::new().chain_update(template.text).chain_update([0]).chain_update(end).finalize();
    hapo_core::hex(digest)
}

/// The prompt that asks a teacher for a solution and tells it the answer (the paper, appendix C; D24).
pub fn teacher_prompt(problem: &str, answer: &str) -> String {
    format!(
        "You will be given a problem and its answer. Generate step-by-step reasoning that leads to this answer.\n\n\
         Put your final answer within \\boxed{{}}. The answer in \\boxed{{}} must be exactly: {answer}\n\n\
         Problem: {problem}\n\n\
         Provide your step-by-step solution:"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(name: &str, expected: &str) {
        assert_eq!(render(find_template(name).unwrap(), "1+1={input}?"), expected, "{name}");
    }

    #[test]
    fn prompts_are_byte_for_byte() {
        check(
            "qwen-boxed",
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n1+1={input}?\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>assistant\n",
        );
        check(
            "paper-literal",
            r"<|im_start|>system
You are a helpful assistant.
<|im_end|>

<|im_start|>user
1+1={input}?

Please reason step by step, and put your final answer within \boxed{}.
<|im_end|>

<|im_start|>assistant
",
        );
        check(
            "qwen25-math-cot",
            "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>user\n1+1={input}?<|im_end|>\n<|im_start|>assistant\n",
        );
        check("chatml", "<|im_start|>user\n1+1={input}?<|im_end|>\n<|im_start|>assistant\n");
        check("none", "1+1={input}?");
        check("abel", "Question:\n1+1={input}?\nAnswer:\nLet's think step by step.\n");
        check(
            "r1",
            "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>.\nUser: 1+1={input}?\nAssistant: <think>",
        );
        assert_eq!(TEMPLATES.len(), 7, "a new template needs its bytes here");
    }

    #[test]
    fn every_template_has_one_place_and_its_own_name_and_hash() {
        for (place, template) in TEMPLATES.iter().enumerate() {
            assert_eq!(template.text.matches("{input}").count(), 1, "{}", template.name);
            for other in &TEMPLATES[..place] {
                assert_ne!(template.name, other.name);
                assert_ne!(template_hash(template), template_hash(other));
            }
        }
    }

    fn check_hash(name: &str, expected: &Expect) {
        expected.assert_eq(&template_hash(find_template(name).unwrap()));
    }

    /// From `printf 'TEXT\0END' | sha256sum`.
    #[test]
    fn hash_is_that_of_text_and_end_token() {
        check_hash(
            "none",
            &expect!["58e68aee923d186ec2337d35b0f9369161f33c02d59bc817057de137f98b851d"],
        );
        check_hash(
            "chatml",
            &expect!["4995d221dbd5432ba28b0f9c789fb579a9d6370ad7c2ba3cc3121cf944d6f83a"],
        );
    }

    fn chat_prompt(source: &str, system: Option<&str>, suffix: Option<&str>) -> PromptTemplate {
        let tokens = [("eos_token".to_owned(), "</s>".to_owned())].into();
        PromptTemplate::Chat(Box::new(ChatPrompt {
            template: ChatTemplate::new("tiny", source, tokens).unwrap(),
            system: system.map(str::to_owned),
            suffix: suffix.map(str::to_owned),
        }))
    }

    const ROLES: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

    #[test]
    fn the_models_own_template_takes_a_system_text_and_a_suffix() {
        let plain = chat_prompt(ROLES, None, None);
        assert_eq!(plain.render("1+1=?").unwrap(), "<user>1+1=?</s><assistant>");
        let dressed = chat_prompt(ROLES, Some("Be exact."), Some("\nThink."));
        assert_eq!(
            dressed.render("1+1=?").unwrap(),
            "<system>Be exact.</s><user>1+1=?\nThink.</s><assistant>"
        );
        assert_eq!(dressed.name(), "chat");
        let hashes: std::collections::BTreeSet<String> = [
            plain,
            dressed,
            chat_prompt(ROLES, None, Some("Be exact.")),
            chat_prompt(ROLES, Some("Be exact."), None),
            chat_prompt(ROLES, Some(""), None),
            chat_prompt("{{ messages }}", None, None),
        ]
        .iter()
        .map(PromptTemplate::hash)
        .collect();
        assert_eq!(hashes.len(), 6);
    }

    #[test]
    fn a_template_of_the_table_takes_one_user_turn_and_no_further_text() {
        let template = PromptTemplate::Named(find_template("chatml").unwrap());
        let turn = |role| Message::new(role, "a");
        let rendering = Rendering::prompt();
        assert_eq!(
            template.render_dialogue(&[turn("user")], &rendering).unwrap(),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
        );
        let two = [turn("system"), turn("user")];
        assert_eq!(
            template.render_dialogue(&two, &rendering).unwrap_err().to_string(),
            "template `chatml` takes one user turn, got: system, user"
        );
        let choice = TemplateChoice { suffix: Some("."), ..TemplateChoice::named("chatml") };
        assert_eq!(
            choice.check().unwrap_err().to_string(),
            "template `chatml` takes no suffix, only template `chat` does"
        );
        assert_eq!(TemplateChoice::named("chat").check().unwrap(), None);
    }

    #[test]
    fn a_template_as_a_chat_template_renders_its_own_prompts_and_ends_its_turns() {
        for template in TEMPLATES {
            let Some(source) = jinja(template) else {
                assert_eq!(template.name, "none");
                continue;
            };
            let chat = chat_prompt(&source, None, None);
            let problem = "is '1\\n' {{ 1 }}\n1?";
            assert_eq!(
                chat.render(problem).unwrap(),
                render(template, problem),
                "{}",
                template.name
            );
            let turns = [Message::new("user", "a"), Message::new("assistant", "b")];
            let rendering = Rendering { add_generation_prompt: false, ..Rendering::prompt() };
            let text = chat.render_dialogue(&turns, &rendering).unwrap();
            let end = match template.end_of_turn {
                EndOfTurn::Token(token) => token,
                EndOfTurn::TokenizerEos => "</s>",
            };
            let expected = [&render(template, "a"), "b", end].concat();
            assert_eq!(text.trim_end(), expected, "{}", template.name);
            let system = chat_prompt(&source, Some("Be brief."), None).render("a").unwrap();
            assert!(!system.contains("You are") && !system.contains("A conversation"), "{system}");
            assert_eq!(system.matches("Be brief.").count(), 1);
        }
        let chatml = jinja(find_template("chatml").unwrap()).unwrap();
        assert_eq!(
            chat_prompt(&chatml, Some("s"), None).render("a").unwrap(),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
        );
    }

    #[test]
    fn teacher_prompt_is_the_papers() {
        let expected = r"You will be given a problem and its answer. Generate step-by-step reasoning that leads to this answer.

Put your final answer within \boxed{}. The answer in \boxed{} must be exactly: {problem}

Problem: {answer}

Provide your step-by-step solution:";
        assert_eq!(teacher_prompt("{answer}", "{problem}"), expected);
    }

    #[test]
    fn unknown_template_lists_the_known() {
        let message = find_template("qwen").unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown template `qwen`, expected one of: qwen-boxed, paper-literal, qwen25-math-cot, chatml, none, abel, r1, chat"
        );
    }
}
