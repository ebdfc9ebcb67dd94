//! A teacher against a real server that misbehaves.

use std::path::Path;
use std::time::Duration;

use hapo_core::Refusal;
use hapo_data::Dataset;
use hapo_eval::{
    Client, Completions, Leaked, OpenMode, Plan, ProblemSet, PromptForm, RetryPolicy, Rule, Rules,
    Sampling, Summary, Traces,
};
use hapo_verify::{Extracting, Extraction, MATH};

use crate::support::{Mood, Server, prompts};

fn retry_policy() -> RetryPolicy {
    RetryPolicy {
        concurrency: 8,
        timeout: Duration::from_millis(300),
        retries: 4,
        first_wait: Duration::from_millis(2),
        longest_wait: Duration::from_secs(1),
        response_limit: 4 << 20,
        seed: 1,
    }
}

fn plan(client: &Client, dataset: Dataset) -> Plan {
    let set = ProblemSet { name: "sums".into(), dataset, completions: 4, draws: 0 };
    let sampling = Sampling {
        endpoint: Some(client.address().to_owned()),
        temperature: 1.0,
        max_tokens: Some(100),
        seed: 5,
        ..Sampling::new("sums", PromptForm::Conditioned)
    };
    Plan::new(vec![set], sampling, Extracting::new(&MATH, Extraction::Announced))
}

fn open<'a>(
    plan: &'a Plan,
    output: &Path,
    rule: Rule,
) -> Result<Completions<'a, Traces<'a>>, Refusal> {
    let rules = Rules { rule, leaked: Leaked::Last, length: None, prices: None };
    Completions::of_teacher(plan, output, rules, OpenMode::ResumeOrStart)
}

/// Asks for everything, into `output`.
fn run(
    server: &Server,
    data: &Dataset,
    output: &Path,
    rule: Rule,
) -> Result<(Summary, Vec<u8>), Refusal> {
    let client = Client::new(&server.endpoint, Some("sk-right"), retry_policy())?;
    let plan = plan(&client, data.clone());
    let mut session = open(&plan, output, rule)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(session.request(&client, std::future::pending()))?;
    session.write(true)?;
    Ok((session.summary(), std::fs::read(output).unwrap()))
}

#[test]
fn misbehaviour_changes_nothing_that_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let data = prompts(24);
    let server = Server::start(Mood::Calm);
    for (rule, name) in [(Rule::ShortestCorrect, "s"), (Rule::FirstCorrect, "f")] {
        server.set(Mood::Calm);
        let output = |it: &str| folder.path().join(format!("{name}-{it}.jsonl"));
        let (calm, expected) = run(&server, &data, &output("calm"), rule).unwrap();
        assert!(calm.admitted > 15 && calm.wrong > 5 && calm.unparsable > 0, "{calm:?}");
        assert!(calm.leaked > 0 && calm.truncated > 0, "{calm:?}");
        assert_eq!((calm.retries, calm.failed), (0, 0));
        server.set(Mood::Bad);
        let (bad, got) = run(&server, &data, &output("bad"), rule).unwrap();
        assert!(bad.retries > bad.attempts as u64 / 2, "{bad:?}");
        assert_eq!(u64::from(server.requests()), bad.requests);
        assert_eq!(String::from_utf8(got).unwrap(), String::from_utf8(expected).unwrap());
        assert_eq!(
            Summary { requests: 0, retries: 0, ..bad },
            Summary { requests: 0, retries: 0, ..calm }
        );
        assert!(server.answered().values().all(|it| *it == 1));
        if rule == Rule::ShortestCorrect {
            assert_eq!(bad.attempts, 96);
        } else {
            assert!(bad.attempts < 80, "{bad:?}");
        }
    }
}

#[test]
fn what_will_not_mend_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let data = prompts(20);
    let server = Server::start(Mood::Calm);
    let check = |mood: Mood, expected: &str, bad_input: bool| {
        server.set(mood);
        let error = run(&server, &data, &folder.path().join("o"), Rule::AllCorrect).unwrap_err();
        let message = error.to_string().replace(&server.endpoint, "URL");
        assert_eq!(message, expected);
        assert_eq!(error.is_bad_input(), bad_input);
        assert!(error.how_to_mend().is_some());
        assert!(server.requests() <= 8, "{}", server.requests());
    };
    let always = |status, body| Mood::Always(status, body, None);
    check(
        always(401, r#"{"error":{"message":"Incorrect API key provided: sk-right"}}"#),
        "URL/chat/completions refuses with status 401: Incorrect API key provided: ***",
        true,
    );
    check(
        always(
            404,
            r#"{"error":{"message":"The model `sums` does not exist","code":"model_not_found"}}"#,
        ),
        "URL/chat/completions refuses with status 404: The model `sums` does not exist",
        true,
    );
    check(
        always(400, r#"{"object":"error","message":"max_tokens is too large"}"#),
        "URL/chat/completions refuses with status 400: max_tokens is too large",
        true,
    );
    check(
        always(403, "<html>\nforbidden</html>"),
        "URL/chat/completions refuses with status 403: <html> forbidden</html>",
        true,
    );
    check(
        always(
            429,
            r#"{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}"#,
        ),
        "URL/chat/completions refuses with status 429: You exceeded your quota",
        false,
    );
    check(
        Mood::Always(308, "", Some(("location", "http://elsewhere/v1"))),
        "URL/chat/completions refuses with status 308: it has moved to http://elsewhere/v1",
        true,
    );
    check(
        Mood::Always(429, "{}", Some(("retry-after", "3600"))),
        "URL/chat/completions asks to wait 3600 s, expected at most 1 s",
        false,
    );
    server.require("sk-other");
    server.set(Mood::Calm);
    let error = run(&server, &data, &folder.path().join("o"), Rule::AllCorrect).unwrap_err();
    assert!(error.to_string().ends_with("status 401: Incorrect API key"));
}

#[test]
fn a_prompt_that_always_fails_is_recorded_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (data, output) = (prompts(6), folder.path().join("o.jsonl"));
    let server = Server::start(Mood::FailsOn("What is 3 + 10?"));
    let (it, rows) = run(&server, &data, &output, Rule::AllCorrect).unwrap();
    // Four attempts, each sent once and retried four times.
    assert_eq!((it.failed, it.retries, it.attempts), (4, 16, 24));
    let journal = std::fs::read_to_string(folder.path().join("o.jsonl.journal")).unwrap();
    assert_eq!(journal.matches(r#""failed":"status 500: {}""#).count(), 4);
    let row = String::from_utf8(rows).unwrap().lines().nth(3).unwrap().to_owned();
    assert!(row.contains(r#""id":"p3""#) && !row.contains(r#""teacher""#), "{row}");
    assert!(
        row.contains(r#""outcomes":["failed","failed","failed","failed"],"traces":[]"#),
        "{row}"
    );
}

#[test]
fn a_prompt_too_long_for_the_server_fails_at_once_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (data, output) = (prompts(6), folder.path().join("o.jsonl"));
    let too_long = r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.","type":"BadRequestError","param":null,"code":400}}"#;
    let server = Server::start(Mood::Always(400, too_long, None));
    let (it, rows) = run(&server, &data, &output, Rule::AllCorrect).unwrap();
    assert_eq!((it.failed, it.retries, it.attempts), (24, 0, 24));
    assert_eq!(String::from_utf8(rows).unwrap().lines().count(), 6);
    let journal = std::fs::read_to_string(folder.path().join("o.jsonl.journal")).unwrap();
    assert_eq!(journal.matches("status 400: This model's maximum context length").count(), 24);
}

#[test]
fn a_server_that_is_down_stops_the_run_and_failed_attempts_can_be_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (data, output) = (prompts(12), folder.path().join("o.jsonl"));
    let server = Server::start(Mood::Always(500, "down", None));
    let error = run(&server, &data, &output, Rule::AllCorrect).unwrap_err();
    assert!(
        error.to_string().ends_with(
            "does not answer: 16 attempts failed in a row, the last with: status 500: down"
        ),
        "{error}"
    );
    server.set(Mood::Calm);
    let client = Client::new(&server.endpoint, None, retry_policy()).unwrap();
    let plan = plan(&client, data);
    let open = || open(&plan, &output, Rule::AllCorrect).unwrap();
    assert_eq!(open().summary().failed, 16);
    assert_eq!(open().retrying_failed().summary().attempts, 0);
}
