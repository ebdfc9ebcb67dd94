//! The rollouts of a step, kept: `rollouts/step-000123.jsonl.zst`, one line per trajectory.
//!
//! A file is compressed and written on a thread of its own while the step's update runs; the run waits
//! for it before the next one and before a checkpoint. Files of one seed are equal byte for byte.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use hapo_core::{Member, MixedGroup, PolicyMember, Verdict};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::files::write_atomically;
use crate::prompts::Prompt;

/// Most bytes of a file after decompression.
const MAX_BYTES: u64 = 8 << 30;

/// One trajectory of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutLine {
    /// The training step.
    pub step: u64,
    /// The prompt's number in the run.
    pub prompt_id: u64,
    /// The prompt's id in the data set.
    pub id: String,
    /// The problem as written.
    pub prompt: String,
    /// The rendered prompt's tokens.
    pub prompt_tokens: Vec<u32>,
    /// The gold answer.
    pub answer: String,
    /// `policy`, `replaced` (sampled, and gave way to the teacher) or `teacher`.
    pub role: String,
    /// Position in the group.
    pub slot: usize,
    /// Whether the teacher entered the group.
    pub injected: bool,
    /// The response as text, without its end token.
    pub completion: String,
    /// The response's tokens, the end token included.
    pub tokens: Vec<u32>,
    /// How many of its first tokens are the teacher's (D22).
    #[serde(default, alias = "hint", skip_serializing_if = "is_zero")]
    pub prefix: usize,
    /// log `π_old` of each token after the prefix at the sampling temperature; empty for the teacher.
    pub log_probs: Vec<f32>,
    /// False when the response was truncated.
    pub ended: bool,
    /// `correct`, `wrong` or `unparsable`.
    pub verdict: String,
    /// Why no answer could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(it: &usize) -> bool {
    *it == 0
}

impl RolloutLine {
    /// The verdict as the core knows it.
    pub(crate) fn core_verdict(&self) -> Verdict {
        match self.verdict.as_str() {
            "correct" => Verdict::Correct,
            "wrong" => Verdict::Wrong,
            _ => Verdict::Unparsable(self.reason.clone().unwrap_or_default()),
        }
    }
}

/// File of a step's rollouts.
pub fn file_of(run_dir: &Path, step: u64) -> PathBuf {
    run_dir
        .join("rollouts")
        .join(format!("step-{step:06}.jsonl.zst"))
}

/// The lines of one group; `text` decodes a response.
pub(crate) fn lines_of(
    group: &MixedGroup,
    prompt: &Prompt,
    step: u64,
    text: &dyn Fn(&[u32]) -> Result<String>,
) -> Result<Vec<RolloutLine>> {
    let line = |role: &str, slot: usize, tokens: &[u32]| -> Result<RolloutLine> {
        Ok(RolloutLine {
            step,
            prompt_id: prompt.id.0,
            id: prompt.name.clone(),
            prompt: prompt.problem.clone(),
            prompt_tokens: prompt.tokens.clone(),
            answer: prompt.answer.clone(),
            role: role.to_owned(),
            slot,
            injected: group.injected(),
            completion: text(tokens)?,
            tokens: tokens.to_vec(),
            prefix: 0,
            log_probs: Vec::new(),
            ended: true,
            verdict: "correct".to_owned(),
            reason: None,
        })
    };
    let sampled = |role: &str, slot: usize, it: &PolicyMember| -> Result<RolloutLine> {
        let (verdict, reason) = match &it.verdict {
            Verdict::Correct => ("correct", None),
            Verdict::Wrong => ("wrong", None),
            Verdict::Unparsable(reason) => ("unparsable", Some(reason.clone())),
        };
        Ok(RolloutLine {
            prefix: it.rollout.prefix,
            log_probs: it.rollout.log_probs.clone(),
            ended: it.rollout.ended,
            verdict: verdict.to_owned(),
            reason,
            ..line(role, slot, &it.rollout.tokens)?
        })
    };
    let mut lines = Vec::with_capacity(group.members().len() + 1);
    for (slot, member) in group.members().iter().enumerate() {
        match member {
            Member::Policy(it) => lines.push(sampled("policy", slot, it)?),
            Member::Teacher {
                trajectory,
                replaced,
            } => {
                if let Some(it) = replaced {
                    lines.push(sampled("replaced", slot, it)?);
                }
                lines.push(line("teacher", slot, trajectory.tokens())?);
            }
        }
    }
    Ok(lines)
}

/// Writes the files of a run, one at a time.
#[derive(Debug, Default)]
pub(crate) struct RolloutWriter {
    under_way: Option<JoinHandle<Result<()>>>,
}

impl RolloutWriter {
    /// Begins to write a file, once the one before is done.
    pub(crate) fn write(&mut self, path: PathBuf, lines: Vec<RolloutLine>) -> Result<()> {
        self.wait()?;
        self.under_way = Some(std::thread::spawn(move || {
            let mut text = Vec::new();
            for it in &lines {
                serde_json::to_writer(&mut text, it).expect("a line is plain data");
                text.push(b'\n');
            }
            let packed = ruzstd::encoding::compress_to_vec(
                text.as_slice(),
                ruzstd::encoding::CompressionLevel::Fastest,
            );
            write_atomically(&path, &packed)
        }));
        Ok(())
    }

    /// Waits until every file is on the disk.
    pub(crate) fn wait(&mut self) -> Result<()> {
        match self.under_way.take() {
            Some(it) => it.join().expect("writing a file does not panic"),
            None => Ok(()),
        }
    }
}

/// Reads a step's rollouts.
///
/// # Errors
/// A file that is missing or is no zstd-compressed JSONL of [`RolloutLine`]s.
pub fn read(path: &Path) -> Result<Vec<RolloutLine>> {
    let io = |source| Error::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let bad = |problem: String| Error::Dataset {
        problem: format!("{problem} ({})", path.display()),
        hint: "rollout files are written by `hapo train`".to_owned(),
    };
    let file = std::fs::File::open(path).map_err(io)?;
    let unpacked = ruzstd::decoding::StreamingDecoder::new(std::io::BufReader::new(file))
        .map_err(|it| bad(it.to_string()))?;
    let mut text = String::new();
    unpacked
        .take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(|it| bad(it.to_string()))?;
    text.lines()
        .enumerate()
        .map(|(n, it)| serde_json::from_str(it).map_err(|it| bad(format!("line {}: {it}", n + 1))))
        .collect()
}
