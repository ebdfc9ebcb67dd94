//! Decoding: one token of each running sequence per step, and many tokens of one that was preempted.
//!
//! Bits: a decoded row equals that row of [`Model::forward`] over the same tokens on the CPU, and the row of a token
//! that is read again is that token's decoded row on every device whose products do not depend on the other rows.

use hapo_kernels::{Buffer, CacheLayer, CacheRow, Device, DrawRow, DrawnToken};

use crate::batch::check_tokens;
use crate::compute_error::ComputeError;
use crate::kv_cache::{KvCache, SeqSlot, StepRows};
use crate::layer::Layer;
use crate::model::Model;
use crate::workspace::Workspace;

/// Tokens of a sequence that are read again at once.
pub const REREAD_TOKENS: usize = 256;

/// One block of a decode step.
struct Task<'a, D: Device> {
    work: &'a mut Workspace<D>,
    rows: &'a [CacheRow],
    tokens: &'a [u32],
    out: Out<'a>,
}

/// What follows a decoded row.
#[derive(Clone, Debug, PartialEq)]
pub enum NextToken {
    /// The logits of the vocabulary.
    Logits(Vec<f32>),
    /// The token drawn from them where they lie.
    Drawn(DrawnToken),
}

/// What is made of a block's logits.
enum Out<'a> {
    /// They are downloaded.
    Logits(&'a mut [f32]),
    /// A token is drawn where that is asked for, of ids below a number.
    Next(&'a [Option<DrawRow>], usize, &'a mut [NextToken]),
}

impl<D: Device> Model<D> {
    /// Feeds one token to each sequence and writes the logits that follow, `[rows, vocabulary]`.
    ///
    /// # Errors
    /// A slot that is gone, twice in the step, or full; no free page for a sequence whose last one is full; a token
    /// outside the vocabulary; a sequence longer than the model was opened for. Nothing is fed then.
    pub fn decode(
        &self,
        cache: &mut KvCache<D>,
        rows: &[(SeqSlot, u32)],
        logits: &mut Vec<f32>,
    ) -> Result<(), ComputeError> {
        let vocabulary = self.config.vocab_size;
        logits.resize(rows.len() * vocabulary, 0.0);
        self.decode_step(cache, rows, |size| {
            logits.chunks_mut(size * vocabulary).map(Out::Logits).collect()
        })
    }

    /// As [`Model::decode`], and from the logits of every row for which `wanted` says how a token of an id below `usable`
    /// is drawn on the device; of the others they are downloaded.
    ///
    /// # Errors
    /// Those of [`Model::decode`].
    ///
    /// # Panics
    /// When a draw is wanted of a device that has none.
    pub fn decode_next(
        &self,
        cache: &mut KvCache<D>,
        rows: &[(SeqSlot, u32)],
        wanted: &[Option<DrawRow>],
        usable: usize,
    ) -> Result<Vec<NextToken>, ComputeError> {
        let mut next = vec![NextToken::Logits(Vec::new()); rows.len()];
        self.decode_step(cache, rows, |size| {
            let parts = wanted.chunks(size).zip(next.chunks_mut(size));
            parts.map(|(wanted, next)| Out::Next(wanted, usable, next)).collect()
        })?;
        Ok(next)
    }

    fn decode_step<'a>(
        &self,
        cache: &mut KvCache<D>,
        rows: &[(SeqSlot, u32)],
        outs: impl FnOnce(usize) -> Vec<Out<'a>>,
    ) -> Result<(), ComputeError> {
        let vocabulary = self.config.vocab_size;
        if rows.is_empty() {
            return Ok(());
        }
        let tokens: Vec<u32> = rows.iter().map(|&(_, token)| token).collect();
        check_tokens(&tokens, vocabulary)?;
        let slots = rows.iter().map(|&(slot, _)| slot);
        let step = self.step_rows(cache, slots.clone(), 1)?;
        let mut blocks = std::mem::take(&mut cache.blocks);
        let size = self.reserve_blocks(&mut blocks, rows.len())?;
        {
            let pages = self.device.table(&step.pages);
            let mut tasks: Vec<Task<'_, D>> = blocks
                .iter_mut()
                .zip(step.rows.chunks(size))
                .zip(tokens.chunks(size))
                .zip(outs(size))
                .map(|(((work, rows), tokens), out)| Task { work, rows, tokens, out })
                .collect();
            let buf = &cache.buf;
            self.device.each(&mut tasks, |device, task| {
                self.decode_block(device, (buf, &pages), task);
            });
        }
        self.append_new(cache, &blocks, &step.cells, size);
        cache.blocks = blocks;
        self.device.check()?;
        cache.advance(slots, 1);
        Ok(())
    }

    /// Feeds tokens to a sequence that was given them before and lost its pages, at most `most` of them; how many
    /// there were.
    ///
    /// # Errors
    /// Those of [`Model::decode`].
    pub fn reread(
        &self,
        cache: &mut KvCache<D>,
        slot: SeqSlot,
        tokens: &[u32],
        most: usize,
    ) -> Result<usize, ComputeError> {
        check_tokens(tokens, self.config.vocab_size)?;
        let tokens = &tokens[..tokens.len().min(most)];
        for piece in tokens.chunks(REREAD_TOKENS) {
            self.reread_piece(cache, slot, piece)?;
        }
        Ok(tokens.len())
    }

    fn reread_piece(
        &self,
        cache: &mut KvCache<D>,
        slot: SeqSlot,
        tokens: &[u32],
    ) -> Result<(), ComputeError> {
        let (n, device) = (tokens.len(), &self.device);
        let shape = self.config.attention_shape();
        let step = self.step_rows(cache, std::iter::once(slot), n)?;
        let mut work = self.prefill_workspace(cache, n, 1)?;
        let tokens = device.table(tokens);
        let positions = device.table(&positions_of(&step.rows));
        let (rows, pages) = (device.table(&step.rows), device.table(&step.pages));
        let cells = device.table(&step.cells);
        device.enter(|| {
            self.embed(device, &tokens, work.x[0].first_mut(n * self.config.hidden));
            for index in 0..self.config.layers {
                let at = cache.layer(index);
                let layer = self.prefill_layer(index, n, &positions);
                let buf = &mut cache.buf;
                work.run_layer(&layer, |device, a| {
                    device.cache_append(shape, at, &cells, a.k, a.v, buf);
                    let out = a.out.first_mut(n * shape.q_dim());
                    device.attention_decode(shape, at, &rows, &pages, buf, a.q, a.k, a.v, out);
                });
            }
        });
        cache.prefill = Some(work);
        device.check()?;
        cache.advance(std::iter::once(slot), n);
        Ok(())
    }

    /// Where the cache holds what each row attends to, and where its key and value go.
    fn step_rows(
        &self,
        cache: &mut KvCache<D>,
        slots: impl Iterator<Item = SeqSlot> + Clone,
        n: usize,
    ) -> Result<StepRows, ComputeError> {
        cache.expect_format(self.kv_format);
        let step = cache.step_rows(slots, n)?;
        match step.rows.iter().map(CacheRow::positions).max() {
            Some(length) if length > self.positions => {
                Err(ComputeError::TooLong { length, positions: self.positions })
            }
            _ => Ok(step),
        }
    }

    /// Buffers for a step of `rows` rows in blocks; the result is the rows of a block.
    fn reserve_blocks(
        &self,
        blocks: &mut Vec<Workspace<D>>,
        rows: usize,
    ) -> Result<usize, ComputeError> {
        let size = rows.div_ceil(self.device.blocks(rows, self.weight_bytes()).max(1));
        for (i, first) in (0..rows).step_by(size).enumerate() {
            let here = size.min(rows - first);
            if blocks.get(i).is_none_or(|it| it.rows < here) {
                let here = here.next_multiple_of(4);
                let block = Workspace::new(self, here, here, true)?;
                if i < blocks.len() {
                    blocks[i] = block;
                } else {
                    blocks.push(block);
                }
            }
        }
        Ok(size)
    }

    fn decode_block(
        &self,
        device: &D,
        (cache, pages): (&D::Buf, &D::Table<u32>),
        task: &mut Task<'_, D>,
    ) {
        let Task { work, rows, tokens, out } = task;
        let n = rows.len();
        let shape = self.config.attention_shape();
        let new_tokens = n * shape.kv_dim();
        let (tokens, positions) = (device.table(tokens), device.table(&positions_of(rows)));
        let rows = device.table(rows);
        device.enter(|| {
            self.embed(device, &tokens, work.x[0].first_mut(n * self.config.hidden));
            for index in 0..self.config.layers {
                let layer = Layer {
                    model: self,
                    device,
                    packed: self.packed_for(n),
                    index,
                    rows: n,
                    positions: &positions,
                    kv_format: self.kv_format,
                    kv_at: index * new_tokens,
                };
                work.run_layer(&layer, |device, a| {
                    let out = a.out.first_mut(n * shape.q_dim());
                    let at =
                        CacheLayer { index, count: self.config.layers, format: self.kv_format };
                    device.attention_decode(shape, at, &rows, pages, cache, a.q, a.k, a.v, out);
                });
            }
            let all = n * self.config.hidden;
            device.copy(work.x[0].first(all), work.last.first_mut(all));
            self.head_rows(device, n, work);
            self.take(device, n, work, out);
        });
    }

    /// Makes of the logits of `n` rows what is asked for.
    fn take(&self, device: &D, n: usize, work: &Workspace<D>, out: &mut Out<'_>) {
        let vocabulary = self.config.vocab_size;
        match out {
            Out::Logits(logits) => device.download(work.logits.first(n * vocabulary), logits),
            Out::Next(wanted, usable, next) => {
                let placed = (0..).zip(wanted.iter());
                let draws: Vec<DrawRow> =
                    placed.filter_map(|(row, it)| Some(DrawRow { row, ..(*it)? })).collect();
                let all = work.logits.first(n * vocabulary);
                let drawn = if draws.is_empty() {
                    Vec::new()
                } else {
                    device.draw(vocabulary, *usable, &draws, all)
                };
                let mut drawn = drawn.into_iter();
                for (row, (it, next)) in wanted.iter().zip(next.iter_mut()).enumerate() {
                    *next = if it.is_some() {
                        NextToken::Drawn(drawn.next().expect("a token for each draw"))
                    } else {
                        let mut logits = vec![0.0; vocabulary];
                        device.download(work.logits.at(row * vocabulary, vocabulary), &mut logits);
                        NextToken::Logits(logits)
                    };
                }
            }
        }
    }

    /// Writes the keys and values of a step into the cache.
    fn append_new(
        &self,
        cache: &mut KvCache<D>,
        blocks: &[Workspace<D>],
        cells: &[u32],
        size: usize,
    ) {
        let shape = self.config.attention_shape();
        let first = cache.layer(0);
        for (work, cells) in blocks.iter().zip(cells.chunks(size)) {
            let all = self.config.layers * cells.len() * shape.kv_dim();
            let (k, v) = (work.saved.k.first(all), work.saved.v.first(all));
            let cells = self.device.table(cells);
            self.device.cache_append(shape, first, &cells, k, v, &mut cache.buf);
        }
    }
}

/// The position of each row in its sequence.
fn positions_of(rows: &[CacheRow]) -> Vec<u32> {
    rows.iter().map(|it| it.prompt_len + it.own_len).collect()
}
