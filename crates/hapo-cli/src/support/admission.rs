//! The solutions of a file that another engine may inject, as the tokens of its model.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use hapo_core::{Refusal, Verdict};
use hapo_data::{AdmissionRule, Dataset, Decision, Row, Rows, TemplateChoice};
use hapo_sampler::ChatFormat;
use hapo_train::grading::{gold_of, graded};

use crate::support::{hub, model};

/// The rule that admits a row's solution.
#[derive(clap::Args)]
pub(crate) struct AdmissionArgs {
    /// Model of the engine: `verl` rows then have `hapo_teacher_ids`, a correct solution's tokens
    #[arg(long, requires = "max_response")]
    pub(crate) model: Option<String>,
    /// Longest response in tokens, end token included; a longer solution is left out
    #[arg(long, value_name = "TOKENS", requires = "model")]
    max_response: Option<usize>,
    /// Template whose end of turn ends a solution; `chat` is the model's own
    #[arg(long, default_value = "chat", requires = "model")]
    template: String,
    #[command(flatten)]
    grader: crate::support::arguments::GraderArgs,
}

impl AdmissionArgs {
    /// The rule, where a model is named.
    pub(crate) fn open(&self) -> Result<Option<Solutions>> {
        let (Some(named), Some(longest)) = (&self.model, self.max_response) else {
            return Ok(None);
        };
        let (format, end) = engine_format(named, &self.template)?;
        end?;
        let grader = self.grader.open()?;
        let (rows, admitted, refused) = (0, 0, BTreeMap::new());
        Ok(Some(Solutions { format, grader, longest, rows, admitted, refused }))
    }
}

/// The chats of a model in another engine, and whether its files name the token that ends them there.
pub(crate) fn engine_format(
    named: &str,
    template: &str,
) -> Result<(ChatFormat, Result<(), Refusal>)> {
    let folder = hub::model_folder(named)?;
    let folder = Path::new(&folder);
    let files = hapo_model::folder::read_tokenizer_files(folder)?;
    let template = hapo_sampler::choose_template(TemplateChoice::named(template), named, &files)?;
    let eos = hapo_model::folder::read_config(folder)?.config.eos;
    let eos_token = hapo_model::chat_files(&files, folder)?.special_tokens.remove("eos_token");
    let format = ChatFormat::new(model::open_tokenizer(folder)?, template, &eos)?;
    let end = format.check_one_end(named, eos_token.as_deref(), &eos);
    Ok((format, end))
}

/// The solutions of a file so far.
pub(crate) struct Solutions {
    format: ChatFormat,
    grader: hapo_verify::Extracting<'static>,
    longest: usize,
    rows: u64,
    admitted: u64,
    refused: BTreeMap<String, u64>,
}

impl Solutions {
    /// The row with the tokens of its first solution that is correct and fits.
    pub(crate) fn decide(&mut self, _: &Rows<'_>, row: &Row) -> Result<Decision> {
        let Row::Good(example) = row else { return Ok(Decision::Write(None)) };
        let dataset = Dataset { examples: vec![example.clone()] };
        let dataset = dataset.under(&self.format.template)?;
        let solutions = &dataset.examples[0].teachers;
        let gold = gold_of(&self.grader, example);
        let grade = |_, solution: usize| match &gold {
            Ok(gold) => graded(&gold.judge(&solutions[solution])),
            Err(_) => Ok((0.0, Verdict::Wrong)),
        };
        let encode = |text: &str| self.format.tokenizer.encode(text);
        let rule = AdmissionRule {
            success_at: 1.0,
            stop: &self.format.stop,
            response_limit: self.longest,
            most: 1,
        };
        let mut admission = hapo_data::admit(&dataset, rule, grade, encode)?;
        for it in &admission.refused {
            *self.refused.entry(it.why.clone()).or_default() += 1;
        }
        self.rows += 1;
        let admitted = admission.teachers.pop().and_then(|mut it| it.pop());
        self.admitted += u64::from(admitted.is_some());
        Ok(Decision::Write(admitted.map(|it| it.tokens().to_vec())))
    }

    pub(crate) fn print_counts(&self) {
        errln!("{} of {} rows have a teacher", self.admitted, self.rows);
        for (why, count) in &self.refused {
            errln!("{count} left out: {why}");
        }
    }
}
