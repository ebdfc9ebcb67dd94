//! A server that judges by POST.

use crate::http::{Failure as Attempt, Retries, may_pass, retry_after, ureq, ureq::Agent};
use crate::reward::{Failure, RewardLog, RewardSettings};
use hapo_core::excerpt;
use std::io::Read;
use std::time::{Duration, SystemTime};

const LIMIT: u64 = 1 << 20;
/// Of a request that was not answered, or with a status that may pass.
const RETRIES: Retries = Retries { attempts: 3, first_wait: Duration::from_millis(250) };

#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    agent: Agent,
    log: RewardLog,
}

impl Server {
    pub(crate) fn new(url: &str, settings: &RewardSettings, log: RewardLog) -> Self {
        let agent = crate::http::config(url.starts_with("https:"))
            .timeout_global(Some(settings.timeout))
            .build()
            .new_agent();
        Self { url: url.to_owned(), agent, log }
    }

    pub(crate) fn ask(&self, line: &str) -> Result<String, Failure> {
        let waiting = |(): &mut (), cause: &str, pause: Duration| {
            let seconds = pause.as_secs_f64();
            self.log.add("server", &format!("{cause}; asked again in {seconds:.1} s"));
        };
        RETRIES.run(&mut (), |()| self.post(line), waiting).map_err(|failure| match failure {
            Attempt::Later(message, _) => Failure::of_one(message),
            Attempt::Never(failure) => failure,
        })
    }

    fn post(&self, line: &str) -> Result<String, Attempt<Failure>> {
        let failure = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => {
                Attempt::Never(Failure::of_one("no answer within the time limit"))
            }
            other => Attempt::Later(format!("the request failed: {other}"), None),
        };
        let request = self.agent.post(&self.url).header("Content-Type", "application/json");
        let mut answer = request.send(line).map_err(failure)?;
        let status = answer.status().as_u16();
        let wait = retry_after(answer.headers(), SystemTime::now());
        // Of the text, not of the bytes on the way, which may be packed.
        let mut text = String::new();
        let mut body = answer.body_mut().as_reader().take(LIMIT + 1);
        let read = body.read_to_string(&mut text).map_err(ureq::Error::from);
        if status == 200 && text.len() as u64 > LIMIT {
            let message = format!("expected an answer of at most {LIMIT} bytes");
            return Err(Attempt::Never(Failure::of_one(message)));
        }
        if status == 200 {
            return read.map(|_| text).map_err(failure);
        }
        let said = excerpt(text.trim(), 200);
        let message = format!("expected status 200, got {status}: {said}");
        let message = message.trim_end_matches([':', ' ']).to_owned();
        Err(if may_pass(status) {
            Attempt::Later(message, wait)
        } else {
            Attempt::Never(Failure::of_one(message))
        })
    }
}
