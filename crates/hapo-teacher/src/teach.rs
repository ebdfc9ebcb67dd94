//! Requests a session's missing attempts from a server.

use std::collections::VecDeque;
use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hapo_core::{CounterRng, Refusal, Remedy, RngCounter, RngStream};

use crate::client::{Client, Question, stopped};
use crate::journal::{Attempt, Origin};
use crate::judgement::Outcome;
use crate::session::Session;

/// Sends requests until the session wants nothing more, or until `stop`. Each completion is recorded before the next
/// request starts, so at most as many as are in flight at once can be lost.
/// `finished` hears of each attempt.
///
/// # Errors
/// Those of [`Client::ask`] and [`Session::record`]; a stop; a server that is down, which it is when as many attempts in a row
/// failed as twice the concurrency, and at least 8.
pub async fn teach(
    client: &Client,
    session: &mut Session<'_>,
    stop: impl Future<Output = ()>,
    mut finished: impl FnMut(Outcome),
) -> Result<(), Refusal> {
    let origin = session.origin().clone();
    let concurrency = client.retry_policy().concurrency.max(1);
    let mut queue: VecDeque<(usize, u32)> = (0..session.dataset().examples.len())
        .flat_map(|prompt| {
            let wanted = session.wanted(prompt);
            wanted.into_iter().map(move |attempt| (prompt, attempt))
        })
        .collect();
    let wanted = session.summary().attempts + queue.len();
    let mut in_flight = FuturesUnordered::new();
    let mut failures = 0;
    tokio::pin!(stop);
    loop {
        while in_flight.len() < concurrency
            && let Some((prompt, attempt)) = queue.pop_front()
        {
            let user = session.question(prompt);
            in_flight.push(ask(client, &origin, user, prompt, attempt));
        }
        let next = tokio::select! {
            biased;
            () = &mut stop => {
                session.flush()?;
                let answered = session.summary().attempts;
                let journal = session.journal().display();
                let far = format!("stopped; {answered} of {wanted} attempts are in {journal}");
                return Err(stopped(far));
            }
            it = in_flight.next() => it,
        };
        let Some((prompt, attempt, answer)) = next else {
            return session.flush();
        };
        let (answer, given_up) = match answer {
            Ok(it) => it,
            Err(it) => {
                session.flush()?;
                return Err(it);
            }
        };
        let outcome = session.record(prompt, attempt, &answer)?;
        finished(outcome);
        if let Some(next) = session.follow_up(prompt) {
            queue.push_front((prompt, next));
        }
        let Some(reason) = given_up else {
            failures = 0;
            continue;
        };
        failures += 1;
        if failures >= (2 * concurrency).max(8) {
            session.flush()?;
            let failed = format!("{failures} attempts failed in a row, the last with: {reason}");
            let down = format!("{} does not answer: {failed}", client.address());
            return Err(Refusal::machine(down).hint(Remedy::RetryFailed));
        }
    }
}

/// A finished attempt, and why the server was given up on, if it was.
type Finished = (Attempt, Option<String>);

async fn ask(
    client: &Client,
    origin: &Origin,
    user: String,
    prompt: usize,
    attempt: u32,
) -> (usize, u32, Result<Finished, Refusal>) {
    let counter = RngCounter {
        prompt: prompt as u64,
        rollout: u64::from(attempt),
        position: u64::MAX,
        ..RngCounter::default()
    };
    let question = Question {
        model: &origin.model,
        system: origin.system.as_deref(),
        user: &user,
        temperature: origin.temperature,
        top_p: origin.top_p,
        max_tokens: origin.max_tokens,
        // Servers take 31 bits.
        seed: CounterRng::new(origin.seed, RngStream::Generate, counter).word() >> 33,
        extra: &origin.extra,
    };
    let number = ((prompt as u64) << 16) | u64::from(attempt);
    let started = Instant::now();
    let answer = client.ask(&question, number).await.map(|it| {
        let (reply, failure) = match it.reply {
            Ok(reply) => (Some(reply), None),
            Err(failure) => (None, Some(failure)),
        };
        let reply = reply.as_ref();
        let failed = failure.as_ref().map(|it| it.reason.clone());
        let attempt = Attempt {
            text: reply.map(|it| it.text.clone()),
            failed,
            finish_reason: reply.and_then(|it| it.finish_reason.clone()),
            served_by: reply.and_then(|it| it.model.clone()),
            prompt_tokens: reply.and_then(|it| it.prompt_tokens),
            completion_tokens: reply.and_then(|it| it.completion_tokens),
            requests: it.requests,
            milliseconds: started.elapsed().as_millis() as u64,
            at: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or(Duration::ZERO)
                .as_secs(),
        };
        let given_up = failure.filter(|it| it.retried_out).map(|it| it.reason);
        (attempt, given_up)
    });
    (prompt, attempt, answer)
}
