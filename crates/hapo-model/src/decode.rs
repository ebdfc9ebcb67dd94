//! Decoding: one token of each running sequence per step.
//!
//! Bits: a decoded row equals that row of [`Model::forward`] over the same tokens.

use hapo_kernels::{Buffer, CacheRow, Device};

use crate::batch::check_tokens;
use crate::compute_error::ComputeError;
use crate::kv_cache::{KvCache, SeqSlot};
use crate::layer::Layer;
use crate::model::Model;
use crate::workspace::Workspace;

/// One block of a decode step.
struct Task<'a, D: Device> {
    work: &'a mut Workspace<D>,
    rows: &'a [CacheRow],
    tokens: &'a [u32],
    logits: &'a mut [f32],
}

impl<D: Device> Model<D> {
    /// Feeds one token to each sequence and writes the logits that follow, `[rows, vocabulary]`.
    ///
    /// # Errors
    /// A slot that is gone, twice in the step, or full; a token outside the vocabulary; a sequence
    /// longer than the model was opened for. Nothing is fed then.
    pub fn decode(
        &self,
        cache: &mut KvCache<D>,
        rows: &[(SeqSlot, u32)],
        logits: &mut Vec<f32>,
    ) -> Result<(), ComputeError> {
        let vocabulary = self.config.vocab_size;
        logits.resize(rows.len() * vocabulary, 0.0);
        if rows.is_empty() {
            return Ok(());
        }
        let tokens: Vec<u32> = rows.iter().map(|&(_, token)| token).collect();
        check_tokens(&tokens, vocabulary)?;
        let cache_rows = self.cache_rows(cache, rows)?;
        let mut blocks = std::mem::take(&mut cache.blocks);
        let size = self.reserve_blocks(&mut blocks, rows.len())?;
        {
            let mut tasks: Vec<Task<'_, D>> = blocks
                .iter_mut()
                .zip(cache_rows.chunks(size))
                .zip(tokens.chunks(size))
                .zip(logits.chunks_mut(size * vocabulary))
                .map(|(((work, rows), tokens), logits)| Task { work, rows, tokens, logits })
                .collect();
            let buf = &cache.buf;
            self.device.each(&mut tasks, |device, task| {
                self.decode_block(device, buf, task);
            });
        }
        self.append_new(cache, &blocks, &cache_rows, size);
        cache.blocks = blocks;
        self.device.check()?;
        for &(slot, _) in rows {
            if let Some(sequence) = &mut cache.sequences[slot.index] {
                sequence.span.len += 1;
            }
        }
        Ok(())
    }

    /// Where the cache holds what each row attends to.
    fn cache_rows(
        &self,
        cache: &KvCache<D>,
        rows: &[(SeqSlot, u32)],
    ) -> Result<Vec<CacheRow>, ComputeError> {
        let mut seen = vec![false; cache.sequences.len()];
        let mut cache_rows = Vec::with_capacity(rows.len());
        for &(slot, _) in rows {
            let row = cache.cache_row(slot)?;
            if std::mem::replace(&mut seen[slot.index], true) {
                return Err(ComputeError::SlotTwice { index: slot.index });
            }
            let length = (row.prompt.len + row.own.len) as usize + 1;
            if length > self.positions {
                return Err(ComputeError::TooLong { length, positions: self.positions });
            }
            cache_rows.push(row);
        }
        Ok(cache_rows)
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

    fn decode_block(&self, device: &D, cache: &D::Buf, task: &mut Task<'_, D>) {
        let Task { work, rows, tokens, logits } = task;
        let n = rows.len();
        let shape = self.config.attention_shape();
        let new_tokens = n * shape.kv_dim();
        let positions: Vec<u32> = rows.iter().map(|r| r.prompt.len + r.own.len).collect();
        let (tokens, positions) = (device.table(tokens), device.table(&positions));
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
                };
                let Workspace { x: [x, x_next], saved, scratch, new_keys, new_values, .. } =
                    &mut **work;
                layer.forward(x, x_next, saved, scratch, |device, a| {
                    let out = a.out.first_mut(n * shape.q_dim());
                    device.attention_decode(shape, index, &rows, cache, a.q, a.k, a.v, out);
                    device.copy(a.k, new_keys.at_mut(index * new_tokens, new_tokens));
                    device.copy(a.v, new_values.at_mut(index * new_tokens, new_tokens));
                });
                work.x.swap(0, 1);
            }
            let all = n * self.config.hidden;
            device.copy(work.x[0].first(all), work.last.first_mut(all));
            self.head_rows(device, n, work, logits);
        });
    }

    /// Writes the keys and values of a step into the cache.
    fn append_new(
        &self,
        cache: &mut KvCache<D>,
        blocks: &[Workspace<D>],
        rows: &[CacheRow],
        size: usize,
    ) {
        let shape = self.config.attention_shape();
        for (work, rows) in blocks.iter().zip(rows.chunks(size)) {
            let all = self.config.layers * rows.len() * shape.kv_dim();
            self.device.cache_append_rows(
                shape,
                self.config.layers,
                rows,
                work.new_keys.first(all),
                work.new_values.first(all),
                &mut cache.buf,
            );
        }
    }
}
