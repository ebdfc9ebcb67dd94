//! The rollouts of a step, stored: `rollouts/step-000123.jsonl.zst`, one line per trajectory. A file is compressed and
//! written on a thread of its own while the step's update runs; the run waits for it before the next one and before a
//! checkpoint. Files of one seed are equal byte for byte.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use hapo_core::{Context, Refusal, Verdict};
use serde::{Deserialize, Serialize};

use crate::files::write_atomically;

const LINE_BYTES: u64 = 256 << 20;

const LEVEL: i32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RolloutLine {
    pub step: u64,
    /// The prompt's number in the run.
    pub prompt_id: u64,
    /// The prompt's id in the data set.
    pub id: String,
    pub problem: String,
    /// The rendered prompt as the model reads it, with its special tokens, on the first line of a group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rendered: String,
    pub prompt_tokens: Vec<u32>,
    pub answer: String,
    /// Who wrote it, and whether it is in the group.
    pub role: Role,
    pub slot: usize,
    pub injected: bool,
    /// The response as text, without its end token.
    pub completion: String,
    /// The response's tokens, the end token included.
    pub tokens: Vec<u32>,
    /// Length of the prefix that the response continues, in tokens (D22, D36).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prefix: usize,
    /// The part of its group that it was sampled in, from 0 (D35).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub part: usize,
    /// The rendering of the prompt that it was sampled behind, if not the plain one (D36).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_tokens: Vec<u32>,
    /// Its number among the group's rollouts that came back, where its slot does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// Requested rollouts of the first part, if fewer came back (D6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<usize>,
    /// log `π_old` at the sampling temperature of the last tokens, those that the policy wrote; empty for the teacher.
    pub log_probs: Vec<f32>,
    /// Those of the engine that sampled them, where it is not ours (D41).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampler_log_probs: Vec<f32>,
    /// False when the response was truncated.
    pub ended: bool,
    /// A of the response's first token that has one; a replaced rollout and the teacher have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advantage: Option<f64>,
    /// The reward, if it differs from the verdict's (D28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl RolloutLine {
    /// `R(τ)`: the grader's own reward, or else the verdict's.
    pub fn reward(&self) -> f64 {
        self.reward.unwrap_or_else(|| self.verdict.reward())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    #[default]
    Policy,
    /// The policy; another member is in its slot.
    Replaced,
    /// The policy, with help, in the slot of another rollout.
    Helped,
    /// The policy; thrown away (D35).
    Discarded,
    Teacher,
    /// The policy, in an earlier step (D39).
    Replayed,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(it: &usize) -> bool {
    *it == 0
}
#[derive(Debug, Default)]
pub struct RolloutWriter {
    running: Option<JoinHandle<Result<(), Refusal>>>,
    pub has_lost: bool,
}

impl RolloutWriter {
    pub fn write(&mut self, path: PathBuf, lines: Vec<RolloutLine>) -> Result<(), Refusal> {
        self.wait()?;
        let place = path.clone();
        let pack = move || {
            let mut text = Vec::new();
            for it in &lines {
                serde_json::to_writer(&mut text, it).expect("a line is plain data");
                text.push(b'\n');
            }
            let packed = zstd::encode_all(&*text, LEVEL).map_err(Refusal::io("pack", &path))?;
            write_atomically(&path, &packed)
        };
        let started = std::thread::Builder::new().spawn(pack);
        self.running = Some(started.map_err(Refusal::io("start a thread for", &place))?);
        Ok(())
    }

    pub fn wait(&mut self) -> Result<(), Refusal> {
        let running = self.running.take();
        let done = running.map_or(Ok(()), |it| it.join().expect("writing a file does not panic"));
        self.has_lost |= done.is_err();
        done
    }
}

pub fn read_rollouts(path: &Path) -> Result<Vec<RolloutLine>, Refusal> {
    let mut lines = Vec::new();
    each_rollout(path, |it| lines.push(it))?;
    Ok(lines)
}

pub fn each_rollout(path: &Path, mut take: impl FnMut(RolloutLine)) -> Result<(), Refusal> {
    let bad = |problem: String| {
        Refusal::input(problem).at(path.display()).hint("rollout files are written by `hapo train`")
    };
    let file = std::fs::File::open(path).map_err(Refusal::io("read", path))?;
    let unpacked =
        zstd::Decoder::with_buffer(BufReader::new(file)).map_err(|it| bad(it.to_string()))?;
    let mut reader = BufReader::with_capacity(1 << 16, unpacked);
    let (mut text, mut number) = (Vec::new(), 0);
    loop {
        text.clear();
        let read = Read::take(&mut reader, LINE_BYTES).read_until(b'\n', &mut text);
        let length = read.map_err(|it| match it.raw_os_error() {
            Some(_) => Refusal::io("read", path)(it),
            None => bad(it.to_string()),
        })?;
        if length == 0 {
            return Ok(());
        }
        number += 1;
        take(serde_json::from_slice(&text).map_err(|it| bad(format!("line {number}: {it}")))?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_and_read_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-000001.jsonl.zst");
        let line = |slot, verdict| RolloutLine {
            step: 1,
            slot,
            tokens: vec![1, 2],
            log_probs: vec![-0.1, -1.5e-7],
            verdict,
            ..RolloutLine::default()
        };
        let lines =
            vec![line(0, Verdict::Correct), line(1, Verdict::Unparsable("no box".to_owned()))];
        let mut writer = RolloutWriter::default();
        writer.write(path.clone(), lines.clone()).unwrap();
        writer.wait().unwrap();
        assert_eq!(read_rollouts(&path).unwrap(), lines);
        assert!(!writer.has_lost);
        let nowhere = dir.path().join("missing/step-000002.jsonl.zst");
        writer.write(nowhere, lines.clone()).unwrap();
        assert!(writer.write(path.clone(), lines).is_err(), "the file before is waited for");
        assert!(writer.wait().is_ok() && writer.has_lost, "what was lost stays lost");
        std::fs::write(&path, "text").unwrap();
        let message = read_rollouts(&path).unwrap_err().to_string();
        assert!(message.ends_with("step-000001.jsonl.zst)"), "{message}");
    }

    #[test]
    fn a_line_that_lacks_a_field_is_refused_by_name() {
        let line = RolloutLine { step: 3, prefix: 1, ..RolloutLine::default() };
        let written = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<RolloutLine>(&written).unwrap(), line);
        let mut fields: serde_json::Map<_, _> = serde_json::from_str(&written).unwrap();
        for field in ["problem", "tokens", "log_probs", "verdict"] {
            let kept = fields.remove(field).unwrap();
            let text = serde_json::to_string(&fields).unwrap();
            let message = serde_json::from_str::<RolloutLine>(&text).unwrap_err().to_string();
            assert!(message.contains(&format!("missing field `{field}`")), "{message}");
            fields.insert(field.to_owned(), kept);
        }
    }

    #[test]
    fn a_rollout_keeps_its_part_and_its_context() {
        let line = RolloutLine {
            role: Role::Helped,
            part: 2,
            context: Some(Context::Hint(1)),
            context_tokens: vec![3, 4],
            index: Some(8),
            requested: Some(8),
            ..RolloutLine::default()
        };
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.contains(r#""part":2,"context":{"hint":1},"context_tokens":[3,4],"index":8"#));
        assert_eq!(serde_json::from_str::<RolloutLine>(&text).unwrap(), line);
        // A plain rollout's line has none of these.
        let plain = serde_json::to_string(&RolloutLine::default()).unwrap();
        let words = ["prefix", "part", "context", "index", "requested"];
        assert!(words.iter().all(|it| !plain.contains(&format!("\"{it}\""))), "{plain}");
    }
}
