//! Decoding: one token of each running sequence per step, and many tokens of one that was preempted.
//!
//! Bits: a decoded row equals that row of [`Tape::forward`](crate::Tape::forward) over the same tokens on the CPU, and the row of a token
//! that is read again is that token's decoded row on every device whose products do not depend on the other rows.

use std::borrow::Cow;

use hapo_core::Refusal;
use hapo_kernels::{
    AttentionDecode, Buffer, CacheAppend, CacheLayer, CacheRow, Device, DrawRow, DrawnToken,
    NO_CELL,
};

use crate::batch::{check_tokens, too_long};
use crate::{layer::AttentionArgs, model::Model};

use super::kv_cache::{KvCache, SeqSlot, StepRows};
use super::workspace::{BlockRows, TokenRows, Workspace};

/// Tokens of a sequence that are read again at once.
pub const REREAD_TOKENS: usize = 256;

struct Task<'a, D: Device> {
    work: &'a mut Workspace<D>,
    rows: &'a [CacheRow],
    tokens: &'a [u32],
    wanted: &'a [Option<DrawRow>],
    next: &'a mut [NextToken],
    cache: &'a D::Buf,
    pages: &'a D::Table<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NextToken {
    Logits(Vec<f32>),
    /// The token drawn from them where they lie.
    Drawn(DrawnToken),
}

impl<D: Device> KvCache<D> {
    /// Feeds one token to each sequence. From the logits of every row for which `wanted` says how, a token of an id below
    /// `usable` is drawn on the device; of the others they are downloaded.
    ///
    /// # Errors
    /// A slot that is gone, twice in the step, or full; no free page for a sequence whose last one is full; a token
    /// outside the vocabulary; a sequence longer than the model was opened for. Nothing is fed then.
    ///
    /// # Panics
    /// When a draw is wanted of a device that has none.
    pub fn decode_next(
        &mut self,
        model: &Model<D>,
        rows: &[(SeqSlot, u32)],
        wanted: &[Option<DrawRow>],
        usable: usize,
    ) -> Result<Vec<NextToken>, Refusal> {
        let mut next = vec![NextToken::Logits(Vec::new()); rows.len()];
        if rows.is_empty() {
            return Ok(next);
        }
        let tokens: Vec<u32> = rows.iter().map(|&(_, token)| token).collect();
        check_tokens(&tokens, model.config.vocab_size)?;
        let slots = rows.iter().map(|&(slot, _)| slot);
        let step = self.rows_of(model, slots.clone(), 1)?;
        let mut blocks = std::mem::take(&mut self.blocks);
        let size = reserve_blocks(model, &mut blocks, rows.len())?;
        {
            let (cache, pages) = (&self.buf, &model.device.table(&step.pages));
            let rows = step.rows.chunks(size).zip(tokens.chunks(size));
            let outs = wanted.chunks(size).zip(next.chunks_mut(size));
            let mut tasks: Vec<Task<'_, D>> = (blocks.iter_mut().zip(rows).zip(outs))
                .map(|((work, (rows, tokens)), (wanted, next))| Task {
                    work,
                    rows,
                    tokens,
                    wanted,
                    next,
                    cache,
                    pages,
                })
                .collect();
            model.device.each(&mut tasks, |device, task| task.run(model, device, usable));
        }
        self.append_new(model, &blocks, &step.cells, size);
        self.blocks = blocks;
        model.device.check()?;
        self.advance(slots, 1);
        Ok(next)
    }

    /// Draws tokens of ids below `usable` from a row of given logits by the arithmetic of [`KvCache::decode_next`].
    pub fn draw(
        &mut self,
        model: &Model<D>,
        logits: &[f32],
        how: &[DrawRow],
        usable: usize,
    ) -> Result<Vec<DrawnToken>, Refusal> {
        let mut work = self.prefill_workspace(model, 1, 1)?;
        let device = &model.device;
        let drawn = device.enter(|| {
            device.upload(logits, work.logits.first_mut(logits.len()));
            device.draw(logits.len(), usable, how, work.logits.first(logits.len()))
        });
        self.prefill = Some(work);
        device.check()?;
        Ok(drawn)
    }

    /// Feeds at most `most` tokens to a sequence that was given them before and lost its pages; how many there were.
    pub fn reread(
        &mut self,
        model: &Model<D>,
        slot: SeqSlot,
        tokens: &[u32],
        most: usize,
    ) -> Result<usize, Refusal> {
        check_tokens(tokens, model.config.vocab_size)?;
        let (tokens, device) = (&tokens[..tokens.len().min(most)], &model.device);
        for piece in tokens.chunks(REREAD_TOKENS) {
            let step = self.rows_of(model, std::iter::once(slot), piece.len())?;
            let mut work = self.prefill_workspace(model, piece.len(), 1)?;
            let read = TokenRows::new(device, piece, &positions_of(&step.rows));
            let (rows, pages) = (&device.table(&step.rows), &device.table(&step.pages));
            let cells = &device.table(&step.cells);
            device.enter(|| {
                work.run(model, device, &read, |index, device, a| {
                    let AttentionArgs { shape, qkv, out, .. } = a;
                    let (layer, cache, kv) = (self.layer(index), &mut self.buf, [qkv[1], qkv[2]]);
                    device.cache_append(CacheAppend { shape, first: layer, cells, kv, cache });
                    let cache = &self.buf;
                    let it = AttentionDecode { shape, layer, rows, pages, cache, qkv, out };
                    device.attention_decode(it);
                });
            });
            self.prefill = Some(work);
            device.check()?;
            self.advance(std::iter::once(slot), piece.len());
        }
        Ok(tokens.len())
    }

    /// Where the cache holds the tokens that each row attends to, and where its key and value go.
    fn rows_of(
        &mut self,
        model: &Model<D>,
        slots: impl Iterator<Item = SeqSlot> + Clone,
        n: usize,
    ) -> Result<StepRows, Refusal> {
        self.expect_format(model.kv_format());
        let step = self.step_rows(slots, n)?;
        match step.rows.iter().map(CacheRow::positions).max() {
            Some(length) if length > model.positions() => Err(too_long(length, model.positions())),
            _ => Ok(step),
        }
    }

    fn append_new(
        &mut self,
        model: &Model<D>,
        blocks: &[Workspace<D>],
        cells: &[u32],
        size: usize,
    ) {
        let shape = model.config.attention_shape();
        let first = self.layer(0);
        for (work, cells) in blocks.iter().zip(cells.chunks(size)) {
            let n = model.device.caps().decoded_rows(cells.len());
            let all = model.config.layers * n * shape.kv_dim();
            let [_, k, v] = &work.saved.qkv;
            let cells = model.device.table(&padded(cells, n, NO_CELL));
            let (kv, cache) = ([k.first(all), v.first(all)], &mut self.buf);
            model.device.cache_append(CacheAppend { shape, first, cells: &cells, kv, cache });
        }
    }
}

/// Buffers for a step of `rows` rows in blocks; the result is the rows of a block.
fn reserve_blocks<D: Device>(
    model: &Model<D>,
    blocks: &mut Vec<Workspace<D>>,
    rows: usize,
) -> Result<usize, Refusal> {
    let caps = model.device.caps();
    let size = rows.div_ceil(caps.blocks(rows, model.weight_bytes()).max(1));
    for (i, first) in (0..rows).step_by(size).enumerate() {
        let here = size.min(rows - first);
        if blocks.get(i).is_none_or(|it| it.rows < here || it.rank != model.rank()) {
            let rows = caps.decoded_rows(here).next_multiple_of(4);
            let of = BlockRows { rows, head_rows: rows, kv_layers: model.config.layers };
            let block = Workspace::new(&model.device, &model.config, model.rank(), of)?;
            if i < blocks.len() {
                blocks[i] = block;
            } else {
                blocks.push(block);
            }
        }
    }
    Ok(size)
}

impl<D: Device> Task<'_, D> {
    /// Runs the block on a device's handle; then draws tokens of ids below `usable`.
    fn run(&mut self, model: &Model<D>, device: &D, usable: usize) {
        let &mut Task { ref mut work, rows, tokens, wanted, ref mut next, cache, pages } = self;
        let config = &model.config;
        let n = device.caps().decoded_rows(rows.len());
        let (rows, tokens) = (padded(rows, n, rows[0]), padded(tokens, n, tokens[0]));
        let tokens = TokenRows::new(device, &tokens, &positions_of(&rows));
        let rows = &device.table(&rows);
        device.enter(|| {
            device.repeated(|| {
                work.run(model, device, &tokens, |index, device, a| {
                    let AttentionArgs { shape, qkv, out, .. } = a;
                    let (count, format) = (config.layers, model.kv_format());
                    let layer = CacheLayer { index, count, format };
                    let it = AttentionDecode { shape, layer, rows, pages, cache, qkv, out };
                    device.attention_decode(it);
                });
                let all = n * config.hidden;
                device.copy(work.x[0].first(all), work.last.first_mut(all));
                work.head_rows(model, device, n);
            });
            let vocabulary = config.vocab_size;
            let logits = work.logits.first(wanted.len() * vocabulary);
            let placed = (0..).zip(wanted.iter());
            let draws: Vec<DrawRow> =
                placed.filter_map(|(row, it)| Some(DrawRow { row, ..(*it)? })).collect();
            let drawn =
                (!draws.is_empty()).then(|| device.draw(vocabulary, usable, &draws, logits));
            let mut drawn = drawn.into_iter().flatten();
            for (row, (it, next)) in wanted.iter().zip(next.iter_mut()).enumerate() {
                *next = if it.is_some() {
                    NextToken::Drawn(drawn.next().expect("a token for each draw"))
                } else {
                    let mut all = vec![0.0; vocabulary];
                    device.download(logits.part(row * vocabulary, vocabulary), &mut all);
                    NextToken::Logits(all)
                };
            }
        });
    }
}

fn padded<T: Copy>(items: &[T], n: usize, with: T) -> Cow<'_, [T]> {
    if items.len() == n {
        return Cow::Borrowed(items);
    }
    let more = std::iter::repeat_n(with, n - items.len());
    Cow::Owned(items.iter().copied().chain(more).collect())
}

fn positions_of(rows: &[CacheRow]) -> Vec<u32> {
    rows.iter().map(|it| it.prompt_len + it.own_len).collect()
}
