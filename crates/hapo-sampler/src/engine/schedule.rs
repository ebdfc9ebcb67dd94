//! Scheduling of pages: running, waiting and preempted sequences.

use hapo_core::Refusal;
use hapo_kernels::Device;
use hapo_model::{CacheFull, KvCache, PromptSlot};

use super::{CachedPrompt, Engine, MAX_PREFILL_PROMPTS, Preempted, Running, Sequence};
use crate::{request::RequestId, text::TextStream};

impl<D: Device> Engine<'_, D> {
    /// Reads preempted sequences again, the first ones first, as far as pages and `budget` allow; whether none waits
    /// any longer.
    pub(super) fn resume(&mut self, budget: &mut usize) -> Result<bool, Refusal> {
        while let Some(first) = self.preempted.first() {
            let id = first.sequence.id;
            match self.read_again(budget) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(refusal) if is_full(&refusal) && !self.running.is_empty() => return Ok(false),
                Err(refusal) if is_full(&refusal) && self.evict(Some(id))? => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(true)
    }

    /// Reads the first preempted sequence, and its prompt if that is gone; whether it runs again.
    fn read_again(&mut self, budget: &mut usize) -> Result<bool, Refusal> {
        let it = &self.preempted[0].sequence;
        let (id, fed) = (it.id, it.tokens.len() - 1);
        let job = &self.jobs[&id];
        let Some(prompt) = job.prompt.as_ref().map(|it| it.slot) else {
            // A prompt that is half read has its pages.
            let is_begun = self.partial.as_ref().is_some_and(|it| it.0 == id);
            let prompt = if is_begun { 0 } else { job.request.prompt.len() };
            self.require_room(KvCache::<D>::cost(prompt) + KvCache::<D>::cost(fed + 1))?;
            return Ok(self.read_prompts(&[id], budget)? && self.read_again(budget)?);
        };
        let slot = if let Some(it) = self.preempted[0].reading {
            it
        } else {
            self.require_room(KvCache::<D>::cost(fed + 1))?;
            self.cache.fork(prompt, self.jobs[&id].request.max_tokens)?
        };
        self.preempted[0].reading = Some(slot);
        let rest = &self.preempted[0].sequence.tokens[self.cache.fed(slot)?..fed];
        let read = self.cache.reread(self.model, slot, rest, *budget)?;
        *budget -= read;
        if read < rest.len() {
            return Ok(false);
        }
        let sequence = self.preempted.remove(0).sequence;
        self.running.push(Running { sequence, slot });
        Ok(true)
    }

    /// Checks that `needed` tokens are free while every sequence may still take a page.
    fn require_room(&self, needed: usize) -> Result<(), Refusal> {
        let (free, capacity) = (self.cache.free_tokens(), self.cache.capacity());
        let needed = needed + self.cache.reserve();
        if free < needed {
            return Err(CacheFull { needed, free, capacity }.into());
        }
        Ok(())
    }

    /// Moves waiting completions from the front into free slots, reading prompts as needed, as far as
    /// slots, pages and `budget` allow.
    pub(super) fn take_waiting(&mut self, budget: &mut usize) -> Result<Vec<Running>, Refusal> {
        let mut admitted: Vec<Running> = Vec::new();
        while self.running.len() + admitted.len() < self.limits.max_sequences {
            let Some(&id) = self.waiting.front() else { break };
            let slots = self.limits.max_sequences - self.running.len() - admitted.len();
            let step = match self.jobs[&id].prompt.as_ref().map(|it| it.slot) {
                Some(prompt) => self.fork(id, prompt).map(|it| {
                    admitted.push(it);
                    true
                }),
                None if *budget == 0 => Ok(false),
                None => self
                    .prefill_batch(slots, *budget)
                    .and_then(|ids| self.read_prompts(&ids, budget)),
            };
            match step {
                Ok(true) => {}
                Ok(false) => break,
                // A running sequence will finish.
                Err(refusal)
                    if is_full(&refusal) && (!self.running.is_empty() || !admitted.is_empty()) =>
                {
                    break;
                }
                Err(refusal) if is_full(&refusal) && self.evict(Some(id))? => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(admitted)
    }

    fn fork(&mut self, id: RequestId, prompt: PromptSlot) -> Result<Running, Refusal> {
        self.require_room(KvCache::<D>::cost(1))?;
        let job = self.jobs.get_mut(&id).expect("a waiting request is known");
        let slot = self.cache.fork(prompt, job.request.max_tokens)?;
        let completion = job.admitted;
        job.admitted += 1;
        if job.admitted == job.request.completions {
            self.waiting.pop_front();
        }
        let text = (job.request.wants_text())
            .then(|| TextStream::new(job.request.text.unwrap_or_default()));
        let sequence = Sequence { id, completion, tokens: Vec::new(), text };
        Ok(Running { sequence, slot })
    }

    /// Reads the prompts of these requests, for which there are pages, or a piece of the first; returns `false` when
    /// the step's budget is spent.
    fn read_prompts(&mut self, ids: &[RequestId], budget: &mut usize) -> Result<bool, Refusal> {
        let first = ids[0];
        if *budget == 0 {
            return Ok(false);
        }
        if let Some((_, it)) = self.partial.take_if(|it| it.0 != first) {
            self.cache.cancel_prefill(it);
        }
        if self.partial.is_some() || self.jobs[&first].request.prompt.len() > *budget {
            return self.read_piece(first, budget);
        }
        let prompt_of = |id: &RequestId| self.jobs[id].request.prompt.as_slice();
        let prompts: Vec<&[u32]> = ids.iter().map(prompt_of).collect();
        let tokens = prompts.iter().map(|it| it.len()).sum::<usize>();
        let read = self.cache.prefill(self.model, &prompts)?;
        *budget -= tokens;
        let vocabulary = self.model.config().vocab_size;
        for ((id, slot), logits) in
            ids.iter().zip(read.slots).zip(read.logits.chunks_exact(vocabulary))
        {
            self.keep_prompt(*id, slot, logits.to_vec());
        }
        Ok(true)
    }

    fn keep_prompt(&mut self, id: RequestId, slot: PromptSlot, logits: Vec<f32>) {
        let job = self.jobs.get_mut(&id).expect("a request with a prompt to read is known");
        let logits = if job.admitted < job.request.completions { logits } else { Vec::new() };
        job.prompt = Some(CachedPrompt { slot, logits });
    }

    /// The first waiting request and those after it that fit into the budget, the slots and the cache.
    fn prefill_batch(&self, slots: usize, budget: usize) -> Result<Vec<RequestId>, Refusal> {
        let cost = KvCache::<D>::cost;
        let (mut ids, mut tokens, mut free_slots) = (Vec::new(), 0, slots);
        let mut free_tokens = self.cache.free_tokens().saturating_sub(self.cache.reserve());
        for id in &self.waiting {
            let job = &self.jobs[id];
            let length = job.request.prompt.len();
            let needed = cost(length) + cost(1);
            if ids.is_empty() {
                let is_begun = self.partial.as_ref().is_some_and(|it| it.0 == *id);
                self.require_room(if is_begun { cost(1) } else { needed })?;
            } else if tokens + length > budget
                || free_slots == 0
                || free_tokens < needed
                || ids.len() == MAX_PREFILL_PROMPTS
                || job.prompt.is_some()
            {
                break;
            }
            ids.push(*id);
            tokens += length;
            let others = (job.request.completions - 1) * cost(1);
            free_tokens = free_tokens.saturating_sub(needed + others);
            free_slots = free_slots.saturating_sub(job.request.completions);
        }
        Ok(ids)
    }

    fn read_piece(&mut self, id: RequestId, budget: &mut usize) -> Result<bool, Refusal> {
        let mut prompt = match self.partial.take() {
            Some((_, it)) => it,
            None => self.cache.begin_prefill(self.model, &self.jobs[&id].request.prompt)?,
        };
        let before = prompt.remaining();
        let read = self.cache.continue_prefill(self.model, &mut prompt, *budget)?;
        *budget -= before - prompt.remaining();
        if let Some((slot, logits)) = read {
            self.keep_prompt(id, slot, logits);
            return Ok(true);
        }
        self.partial = Some((id, prompt));
        Ok(false)
    }

    /// Frees unused pages, one prompt or sequence at a time, but none of the request `keep`; returns `false` if there
    /// was nothing to free. Freed tokens are read again.
    fn evict(&mut self, keep: Option<RequestId>) -> Result<bool, Refusal> {
        let mut reading = self.preempted.iter_mut().filter(|it| Some(it.sequence.id) != keep);
        if let Some(slot) = reading.find_map(|it| it.reading.take()) {
            self.cache.release(slot)?;
            return Ok(true);
        }
        if let Some((_, it)) = self.partial.take_if(|it| Some(it.0) != keep) {
            self.cache.cancel_prefill(it);
            return Ok(true);
        }
        let (running, preempted) = (&self.running, &self.preempted);
        let is_used = |id: RequestId| {
            Some(id) == keep
                || running.iter().any(|it| it.sequence.id == id)
                || preempted.iter().any(|it| it.sequence.id == id && it.reading.is_some())
        };
        let unused = self.jobs.iter_mut().rev().find(|it| it.1.prompt.is_some() && !is_used(*it.0));
        match unused.and_then(|it| it.1.prompt.take()) {
            Some(prompt) => self.cache.release_prompt(prompt.slot).map(|()| true),
            None => Ok(false),
        }
    }

    /// Frees pages until every running sequence can take its next token.
    pub(super) fn make_room(&mut self) -> Result<(), Refusal> {
        loop {
            let needed = self.cache.growth(self.running.iter().map(|it| it.slot))?;
            let (free, capacity) = (self.cache.free_tokens(), self.cache.capacity());
            if needed <= free {
                return Ok(());
            }
            if self.evict(None)? {
                continue;
            }
            let last = (0..self.running.len()).max_by_key(|&i| self.running[i].sequence.place());
            let Some(last) = last.filter(|_| self.running.len() > 1) else {
                return Err(CacheFull { needed, free, capacity }.into());
            };
            let Running { sequence, slot } = self.running.remove(last);
            self.cache.release(slot)?;
            self.preemptions += 1;
            let at = self.preempted.partition_point(|it| it.sequence.place() < sequence.place());
            self.preempted.insert(at, Preempted { sequence, reading: None });
        }
    }
}

fn is_full(refusal: &Refusal) -> bool {
    refusal.cause::<CacheFull>().is_some()
}
