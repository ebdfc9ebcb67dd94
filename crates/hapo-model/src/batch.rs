//! Packed sequences, and the outputs wanted from them.
//!
//! Purpose: sequences of different lengths follow each other without padding, and the responses
//! of a group read their prompt from one segment, computed once.

use hapo_core::Refusal;
use hapo_kernels::{Device, HeadTarget, SegmentRow};

use crate::model::Model;

/// A run of packed tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First token, in the packed numbering.
    pub start: usize,
    /// Number of tokens, at least one.
    pub len: usize,
    /// Index of an earlier segment, itself without a prefix, whose tokens come before these.
    pub prefix: Option<usize>,
}

/// A token whose log-probability is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Packed row that predicts it; several targets may share one.
    pub row: usize,
    pub token: u32,
    /// 1 / temperature; 1 for the plain distribution.
    pub inverse_temperature: f32,
}

/// Sequences without padding. Segments tile `tokens` in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PackedBatch {
    pub tokens: Vec<u32>,
    /// Location of each sequence, and the segment that it continues.
    pub segments: Vec<Segment>,
    pub targets: Vec<Target>,
}

impl PackedBatch {
    /// Appends a segment and returns its index.
    pub fn push(&mut self, tokens: &[u32], prefix: Option<usize>) -> usize {
        self.segments.push(Segment { start: self.tokens.len(), len: tokens.len(), prefix });
        self.tokens.extend_from_slice(tokens);
        self.segments.len() - 1
    }

    /// Appends a response to a prompt segment and one target per response token, the first predicted
    /// by the prompt's last row. The last token of the response is predicted but not read.
    pub fn push_response(&mut self, prompt: usize, response: &[u32], inverse_temperature: f32) {
        let Some((&last, read)) = response.split_last() else { return };
        let mut row = self.segments[prompt].start + self.segments[prompt].len - 1;
        let start = self.tokens.len();
        for (i, &token) in read.iter().enumerate() {
            self.targets.push(Target { row, token, inverse_temperature });
            row = start + i;
        }
        self.targets.push(Target { row, token: last, inverse_temperature });
        if !read.is_empty() {
            self.push(read, Some(prompt));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Prepared<D: Device> {
    pub(crate) rows: usize,
    pub(crate) tokens: D::Table<u32>,
    pub(crate) positions: D::Table<u32>,
    pub(crate) segments: D::Table<SegmentRow>,
    /// Packed rows with a target, ascending.
    pub(crate) head_rows: D::Table<u32>,
    pub(crate) head_row_count: usize,
    /// Targets sorted by row, rows numbered within `head_rows`.
    pub(crate) targets: D::Table<HeadTarget>,
    /// First sorted target of each head row, and the end.
    pub(crate) target_starts: Vec<usize>,
    /// Caller's index of each sorted target.
    pub(crate) order: Vec<usize>,
}

pub(crate) fn prepare<D: Device>(
    model: &Model<D>,
    batch: &PackedBatch,
) -> Result<Prepared<D>, Refusal> {
    let (device, vocabulary) = (&model.device, model.config.vocab_size);
    check_tokens(&batch.tokens, vocabulary)?;
    let (segments, positions) = segment_rows(batch, model.positions())?;
    let mut order: Vec<usize> = (0..batch.targets.len()).collect();
    for (index, target) in batch.targets.iter().enumerate() {
        let problem = if target.row >= batch.tokens.len() {
            "its row is outside the batch"
        } else if target.token as usize >= vocabulary {
            "its token is outside the vocabulary"
        } else if !(target.inverse_temperature.is_finite() && target.inverse_temperature > 0.0) {
            "its inverse temperature is not a positive number"
        } else {
            continue;
        };
        return Err(Refusal::bug(format!("target {index}: {problem}")));
    }
    order.sort_by_key(|&i| batch.targets[i].row);
    let (mut head_rows, mut target_starts) = (Vec::new(), Vec::new());
    let mut targets = Vec::with_capacity(order.len());
    for (sorted, &i) in order.iter().enumerate() {
        let target = batch.targets[i];
        if head_rows.last() != Some(&(target.row as u32)) {
            head_rows.push(target.row as u32);
            target_starts.push(sorted);
        }
        targets.push(HeadTarget {
            row: head_rows.len() as u32 - 1,
            token: target.token,
            inverse_temperature: target.inverse_temperature,
        });
    }
    target_starts.push(order.len());
    let prepared = Prepared {
        rows: batch.tokens.len(),
        tokens: device.table(&batch.tokens),
        positions: device.table(&positions),
        segments: device.table(&segments),
        head_row_count: head_rows.len(),
        head_rows: device.table(&head_rows),
        targets: device.table(&targets),
        target_starts,
        order,
    };
    // An early return for another error would leave this one to the next pass.
    device.check()?;
    Ok(prepared)
}

pub(crate) fn check_tokens(tokens: &[u32], vocabulary: usize) -> Result<(), Refusal> {
    let Some(row) = tokens.iter().position(|&t| t as usize >= vocabulary) else { return Ok(()) };
    let token = tokens[row];
    Err(Refusal::input(format!("token {token} at row {row}: the vocabulary has {vocabulary}")))
}

fn segment_rows(batch: &PackedBatch, most: usize) -> Result<(Vec<SegmentRow>, Vec<u32>), Refusal> {
    if batch.tokens.is_empty() {
        return Err(Refusal::bug("batch is empty".to_owned()));
    }
    let mut rows = Vec::with_capacity(batch.segments.len());
    let mut positions = Vec::with_capacity(batch.tokens.len());
    let mut end = 0;
    for (index, segment) in batch.segments.iter().enumerate() {
        let wrong = |problem| Refusal::bug(format!("segment {index}: {problem}"));
        if segment.start != end {
            return Err(wrong("it does not start where the one before ends"));
        }
        if segment.len == 0 || segment.len > batch.tokens.len() - end {
            return Err(wrong("its length is zero or reaches beyond the batch"));
        }
        end += segment.len;
        let (prefix, prefix_group) = match segment.prefix {
            None => (None, index),
            Some(p) if p >= index => return Err(wrong("its prefix does not come before it")),
            Some(p) if batch.segments[p].prefix.is_some() => {
                return Err(wrong("its prefix has a prefix"));
            }
            Some(p) => (Some(batch.segments[p]), p),
        };
        let (prefix_start, prefix_len) = prefix.map_or((0, 0), |p| (p.start, p.len));
        let length = prefix_len + segment.len;
        if length > most {
            return Err(too_long(length, most));
        }
        positions.extend((prefix_len as u32)..(length as u32));
        rows.push(SegmentRow {
            start: segment.start as u32,
            len: segment.len as u32,
            prefix_start: prefix_start as u32,
            prefix_len: prefix_len as u32,
            prefix_group: prefix_group as u32,
        });
    }
    if end != batch.tokens.len() {
        let index = batch.segments.len();
        let problem = format!("segment {index}: the segments end before the batch does");
        return Err(Refusal::bug(problem));
    }
    // A prefix group is adjacent, its prefix first: stable by prefix group, whose number is the prefix's index.
    rows.sort_by_key(|row| row.prefix_group);
    Ok((rows, positions))
}

pub(crate) fn too_long(length: usize, positions: usize) -> Refusal {
    Refusal::bug(format!("a sequence of {length} tokens, the model was opened for {positions}"))
}
