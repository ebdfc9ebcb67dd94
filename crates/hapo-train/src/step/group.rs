//! The groups of a step: how each grows, and which of all are trained on.
//!
//! A group grows part by part, as its method asks (D35): one call of the sampler for each part, with every prompt of the
//! round in it.

use hapo_core::{
    Candidate, Context, Credit, Gated, GroupSoFar, GroupStats, Growth, Member, Memory, MixedGroup,
    PromptId, Refusal, RngCounter, RngStream, Rollout, SampledGroup, ScoredGroup, Scores, Slot,
    Step, TokenScores, rollouts_to_sample,
};
use hapo_kernels::Device;
use hapo_sampler::{GroupRequest, SampleSettings, Sampled};
use hapo_verify::in_order;

use crate::grading::{AnswerCounts, Verifier};
use crate::problems::prompts::{Order, Prompt, PromptTable};
use crate::{
    Result, engine::Engines, observe::Clock, pack::TokenGroup, plan::run_plan::RunPlan,
    recipe::Recipe,
};

#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) step: Step,
    pub(crate) table: &'a PromptTable,
    pub(crate) order: Order,
    pub(crate) method: &'a Gated,
    pub(crate) verifier: &'a Verifier,
    pub(crate) memory: &'a Memory,
    pub(crate) plan: &'a RunPlan,
}

pub(crate) fn sample_settings<'a>(
    recipe: &Recipe,
    verifier: &'a Verifier,
    rng_stream: RngStream,
    step: Step,
) -> SampleSettings<'a> {
    let (sampling, chat_format) = (&recipe.sampling, &verifier.chat_format);
    SampleSettings {
        decoding: sampling.decoding(),
        stop: &chat_format.stop,
        max_new_tokens: sampling.max_new_tokens,
        max_sequences: sampling.max_sequences,
        kv_memory: sampling.kv_memory,
        usable_vocab: chat_format.tokenizer.vocab_size(),
        seed: recipe.seed,
        rng_stream,
        step: step.0,
    }
}

impl<'a> Task<'a> {
    pub(crate) fn sampling(&self, rng_stream: RngStream) -> SampleSettings<'a> {
        sample_settings(self.plan.recipe(), self.verifier, rng_stream, self.step)
    }

    /// Ends a step whose method could not answer.
    pub(crate) fn require_answer(&self) -> Result<()> {
        let failure = self.method.method.foreign.as_ref().and_then(|it| it.failure());
        failure.map_or(Ok(()), |problem| Err(Refusal::input(problem)))
    }

    pub(crate) fn group_size(&self) -> usize {
        self.plan.recipe().sampling.group_size
    }

    /// The offer for a prompt's group, with its scores by the weights of the step.
    pub(crate) fn offer<'b>(&self, prompt: PromptId, scores: &'b [TokenScores]) -> Candidate<'b>
    where
        'a: 'b,
    {
        let found = self.table.prompt(prompt);
        let offer = Candidate {
            teachers: &found.teachers,
            stored: self.memory.traces(prompt),
            scores,
            slot: self.slot(),
        };
        offer.picking(self.plan.recipe().teacher.pick, prompt)
    }

    /// The gate's decision for each group of a round, in order.
    pub(crate) fn open(&self, groups: &[ScoredGroup]) -> Vec<bool> {
        let policy = self.verifier.policy;
        let glances = groups.iter().map(|group| {
            let can_help = self.method.help.has_any(&self.offer(group.prompt(), &[]));
            GroupStats::of(group, policy.truncated, policy.wrong, can_help)
        });
        self.method.open(&glances.collect::<Vec<_>>(), self.slot(), self.memory)
    }

    fn slot(&self) -> Slot {
        Slot { rule: self.method.slot, seed: self.plan.recipe().seed, step: self.step }
    }
}

/// The next part of one prompt's group, in tokens.
struct NextPart {
    index: usize,
    rollouts: usize,
    /// Each response as far as it is given.
    given: Rollout,
}

/// Samples and scores the groups of some prompts until their method asks for nothing more.
pub(super) fn grow<D: Device>(
    task: Task,
    engines: &mut Engines<'_, D>,
    prompts: &[&Prompt],
    batch: &mut Batch,
) -> Result<Vec<ScoredGroup>> {
    let mut groups: Vec<_> = prompts.iter().map(|prompt| ScoredGroup::empty(prompt.id)).collect();
    let mut open = vec![false; groups.len()];
    for part in 0..task.method.help.needs.parts {
        if part == 1 {
            open = task.open(&groups);
        }
        let mut asked = Vec::new();
        for (index, (prompt, group)) in prompts.iter().zip(&groups).enumerate() {
            let next = ask(task, prompt, group, part, open[index])?;
            asked.extend(next.map(|it| NextPart { index, ..it }));
        }
        if asked.is_empty() {
            break;
        }
        let starts: Vec<_> = asked.iter().map(|it| it.start(prompts[it.index])).collect();
        let requests = asked.iter().zip(&starts).map(|(it, tokens)| GroupRequest {
            given: it.given.prefix,
            ..GroupRequest::new(prompts[it.index].id, tokens, it.rollouts)
        });
        let requests: Vec<_> = requests.collect();
        let sampled = engines.sample(&requests, &task.sampling(RngStream::of_part(part)))?;
        batch.tokens.add(&sampled);
        batch.clock.lap("sample");

        let responses = asked.iter().zip(sampled).map(|(part, sampled)| {
            let prompt = prompts[part.index];
            let group = SampledGroup::new(prompt.id, part.rollouts, part.responses(&sampled));
            (prompt, group, groups[part.index].asked())
        });
        let scored = score(responses.collect(), task.verifier, task.step, &mut batch.answers)?;
        for (part, scored) in asked.iter().zip(scored) {
            groups[part.index].join(scored);
        }
        batch.clock.lap("verify");
    }
    Ok(groups)
}

/// The next part of one group by its method; nothing where it is complete.
fn ask(
    task: Task,
    prompt: &Prompt,
    group: &ScoredGroup,
    part: usize,
    is_open: bool,
) -> Result<Option<NextPart>> {
    let (recipe, chat_format) = (task.plan.recipe(), &task.verifier.chat_format);
    let limit = recipe.sampling.max_new_tokens;
    let tokenizer = &chat_format.tokenizer;
    let growing = GroupSoFar {
        group,
        part,
        size: rollouts_to_sample(task.method.slot, task.group_size(), prompt.teacher()),
        teachers: task.offer(prompt.id, &[]).teachers,
        hints: prompt.hints.len(),
        frontier: task.memory.frontier(prompt.id),
        is_open,
        at: task.method.moment(task.step),
        seed: recipe.seed,
        ends_paragraph: &|token| tokenizer.decode(&[token]).is_ok_and(|text| text.contains("\n\n")),
    };
    let growth = (task.method.help.grow)(&growing);
    task.require_answer()?;
    let Growth::Sample(wanted) = growth else { return Ok(None) };
    let (prefix, log_probs) = growing.given(wanted.prefix, limit);
    let privileged = match wanted.context {
        Context::Plain => Vec::new(),
        Context::Hint(level) => prompt.hints[level].clone(),
        Context::Response(rollout) => {
            let response = &growing.members()[rollout].rollout.tokens;
            prompt.with_solution(response, chat_format, task.table.prompt_limit)?
        }
    };
    Ok(Some(NextPart {
        index: 0,
        rollouts: wanted.rollouts,
        given: Rollout {
            tokens: prefix.to_vec(),
            prefix: prefix.len(),
            log_probs: log_probs.to_vec(),
            part,
            context: wanted.context,
            privileged,
            ..Rollout::default()
        },
    }))
}

impl NextPart {
    fn start(&self, prompt: &Prompt) -> Vec<u32> {
        let Rollout { tokens, privileged, .. } = &self.given;
        let read = if privileged.is_empty() { &prompt.tokens } else { privileged };
        [read.as_slice(), tokens].concat()
    }

    /// The whole responses, the prefix included.
    fn responses(&self, sampled: &Sampled) -> Vec<Rollout> {
        let response = |it: &Rollout| Rollout {
            tokens: [self.given.tokens.as_slice(), &it.tokens].concat(),
            log_probs: [self.given.log_probs.as_slice(), &it.log_probs].concat(),
            sampler_log_probs: it.sampler_log_probs.clone(),
            ended: it.ended,
            prefix: self.given.prefix,
            part: self.given.part,
            context: self.given.context,
            privileged: self.given.privileged.clone(),
        };
        sampled.group.rollouts.iter().map(response).collect()
    }
}

/// Groups with a verdict on every rollout, each beside the number of its first rollout among those of its prompt.
pub(super) fn score(
    groups: Vec<(&Prompt, SampledGroup, usize)>,
    verifier: &Verifier,
    step: Step,
    answers: &mut AnswerCounts,
) -> Result<Vec<ScoredGroup>> {
    let each = groups.iter().flat_map(|(prompt, group, first)| {
        let rollouts = group.rollouts.iter().zip(*first as u64..);
        rollouts.map(|(it, number)| (prompt.gold.as_ref(), it, prompt.id.0, number))
    });
    let each: Vec<_> = each.collect();
    let graded = in_order(verifier.workers, &each, |&(gold, it, prompt, rollout)| {
        verifier.grade(gold, it, RngCounter { step: step.0, prompt, rollout, position: 0 })
    })?;
    let mut graded = graded.into_iter();
    let of_group = |(_, group, _): (&Prompt, SampledGroup, usize)| {
        let graded: Vec<_> = graded.by_ref().take(group.rollouts.len()).collect();
        answers.add(&graded);
        let graded = graded.into_iter().map(|it| (it.reward, it.verdict)).collect();
        group.score_with_rewards(graded, verifier.policy.success_at)
    };
    Ok(groups.into_iter().map(of_group).collect())
}

/// A group after the gate, with the method's credit and its tokens.
pub(crate) struct Credited {
    pub(crate) group: MixedGroup,
    pub(crate) credit: Credit,
    pub(crate) scores: Scores,
    pub(crate) tokens: TokenGroup,
    /// True if the objective gives it a term (D20).
    pub(crate) has_terms: bool,
}

/// Groups after the gate. Dynamic sampling puts new ones in the slots of those without signal.
#[derive(Default)]
pub(crate) struct Batch {
    pub(super) sampled: Vec<Credited>,
    /// Indices of those that are trained on, by slot.
    pub(super) slots: Vec<usize>,
    /// Groups that lost too many rollouts to be used (D6).
    pub(crate) dropped: usize,
    pub(crate) tokens: SampledTokens,
    pub(crate) answers: AnswerCounts,
    pub(crate) clock: Clock,
}

impl Batch {
    pub(crate) fn sampled(&self) -> impl Iterator<Item = (&MixedGroup, &Credit)> {
        self.sampled.iter().map(|it| (&it.group, &it.credit))
    }

    pub(crate) fn trained(&self) -> impl Iterator<Item = (&MixedGroup, &Credit)> {
        self.slots.iter().map(|it| (&self.sampled[*it].group, &self.sampled[*it].credit))
    }

    pub(crate) fn take_tokens(&mut self) -> Vec<TokenGroup> {
        let sampled = &mut self.sampled;
        self.slots.iter().map(|it| std::mem::take(&mut sampled[*it].tokens)).collect()
    }

    /// How many of them cannot move the weights: the objective gives them no term (D20).
    pub(crate) fn without_signal(&self) -> usize {
        self.slots.iter().filter(|it| !self.sampled[**it].has_terms).count()
    }

    pub(crate) fn into_trained(self) -> Vec<MixedGroup> {
        let mut sampled: Vec<_> = self.sampled.into_iter().map(|it| Some(it.group)).collect();
        self.slots.into_iter().filter_map(|it| sampled[it].take()).collect()
    }

    /// Mean of log π − log `π_ref` over the tokens that the policy's members were sampled in, but for those that are
    /// trained on behind another prompt: k1 of the KL to the second model. Is `None` without one, or without a token.
    pub(crate) fn kl_to_reference(&self, is_moved: impl Fn(&Member) -> bool) -> Option<f64> {
        let (mut sum, mut tokens) = (0.0, 0_usize);
        for it in &self.sampled {
            let scored = it.group.members().iter().zip(&it.scores.reference);
            for (member, scores) in scored.filter(|it| !is_moved(it.0)) {
                let own = member.sampled().map_or(&[][..], |it| &it.rollout.log_probs);
                let of_own = &scores.log_probs[scores.log_probs.len() - own.len()..];
                let gaps = own.iter().zip(of_own).map(|(own, other)| f64::from(*own - *other));
                sum += gaps.sum::<f64>();
                tokens += own.len();
            }
        }
        (tokens > 0).then(|| sum / tokens as f64)
    }

    /// Adds a round's groups: all of the first round, later ones in slots without signal.
    pub(crate) fn add(&mut self, groups: Vec<Credited>) {
        let fresh = self.sampled.len()..self.sampled.len() + groups.len();
        if self.sampled.is_empty() {
            self.slots = fresh.collect();
        } else {
            let known = &self.sampled;
            let without_signal = self.slots.iter_mut().filter(|it| !known[**it].has_terms);
            for (slot, index) in without_signal.zip(fresh) {
                *slot = index;
            }
        }
        self.sampled.extend(groups);
    }
}

#[derive(Default)]
pub(crate) struct SampledTokens {
    pub(crate) lengths: Vec<usize>,
    pub(crate) truncated: usize,
    /// Σ H over the tokens, at temperature 1.
    pub(crate) entropy: f64,
}

impl SampledTokens {
    pub(crate) fn add(&mut self, sampled: &[Sampled]) {
        let all = || sampled.iter().flat_map(Sampled::completions);
        self.lengths.extend(all().map(|it| it.0.tokens.len()));
        self.truncated += all().filter(|it| !it.0.ended).count();
        self.entropy += all().flat_map(|it| &it.1.entropies).map(|it| f64::from(*it)).sum::<f64>();
    }
}
