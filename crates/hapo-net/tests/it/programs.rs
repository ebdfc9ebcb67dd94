//! Programs and servers that crash, hang and lie, and the outcome of each.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hapo_net::reward::{Answers, OnFailure, OwnReward, RewardSettings};
use hapo_verify::{Completion, Gold, Grader, Judgement, Problem, Reason, Verdict, in_order};

/// Short times, one worker.
fn settings() -> RewardSettings {
    RewardSettings {
        timeout: Duration::from_secs(20),
        start_timeout: Duration::from_secs(20),
        workers: 1,
        ..RewardSettings::default()
    }
}

fn program(script: &str, settings: RewardSettings) -> OwnReward {
    OwnReward::new(&format!("command:{script}"), settings).unwrap()
}

fn judge(reward: &OwnReward, completion: &str) -> Judgement {
    let problem = Problem { text: "p", golds: &["g"], row: None };
    Gold::of(reward, &problem).unwrap().judge(completion)
}

/// A loop over lines that answers 1, except for `cases`.
fn answers(cases: &str) -> String {
    format!("while read -r line; do case \"$line\" in {cases} *) echo 1;; esac; done")
}

#[test]
fn every_completion_gets_its_own_answer_whoever_is_faster() {
    // The answer is the length of the line; the first lines take longest.
    let script = "while read -r line; do case \"$line\" in *slow*) sleep 0.2;; esac; echo \"${#line}\"; done";
    let texts: Vec<String> =
        (0..24).map(|it| "x".repeat(it) + if it < 3 { "slow" } else { "" }).collect();
    let mut all = Vec::new();
    for workers in [1, 4] {
        let reward = program(script, RewardSettings { workers, ..settings() });
        let rewards =
            in_order(reward.workers(), &texts, |it| Ok::<_, ()>(judge(&reward, it).reward()));
        all.push(rewards.unwrap());
    }
    assert_eq!(all[0], all[1]);
    let differences: Vec<f64> = all[0][3..].windows(2).map(|it| it[1] - it[0]).collect();
    assert_eq!(differences, [1.0; 20]);
}

#[test]
fn rewards_verdicts_reasons_and_parts_are_taken_as_they_are() {
    let script = r#"while read -r line; do case "$line" in
        *half*) echo '{"reward": 0.5, "parts": {"format": true}}';;
        *odd*) echo '{"verdict": "unparsable", "reason": "no code"}';;
        *) echo 0.75;; esac; done"#;
    let reward = program(script, RewardSettings { success_at: 0.75, ..settings() });
    let half = judge(&reward, "half");
    assert_eq!((half.verdict, half.reward()), (Verdict::Wrong, 0.5));
    assert_eq!(half.parts, [("format".to_owned(), 1.0)]);
    let odd = judge(&reward, "odd");
    assert_eq!((odd.verdict, odd.reward()), (Verdict::Unparsable(Reason::Unreadable), 0.0));
    assert_eq!((odd.reason.as_ref(), odd.failure()), ("no code", None));
    let other = judge(&reward, "so \\boxed{3}");
    assert_eq!((other.verdict, other.reward()), (Verdict::Correct, 0.75));
    assert_eq!((other.extracted.as_deref(), other.gold_read.as_str()), (Some("3"), "g"));
}

#[test]
fn a_program_is_told_what_was_cut_off() {
    let reward = program(&answers("*'\"truncated\":true'*) echo 0.25;;"), settings());
    let gold = Gold::of(&reward, &Problem::default()).unwrap();
    let worth = |truncated| gold.judge_completion(Completion { text: "t", truncated }).reward();
    assert_eq!((worth(false), worth(true)), (1.0, 0.25));
}

#[test]
fn a_crash_is_tried_once_more_and_is_a_failure_of_its_line_alone() {
    let script = answers("*crash*) echo oh dear >&2; exit 3;;");
    let reward = program(&script, settings());
    assert_eq!(judge(&reward, "fine").reward(), 1.0);
    let crashed = judge(&reward, "crash");
    assert_eq!(
        crashed.failure().unwrap(),
        format!("command:{script}: it ended before it answered: exit status: 3; it said: oh dear")
    );
    assert_eq!(judge(&reward, "fine").reward(), 1.0);
    let wrong = RewardSettings { on_failure: OnFailure::Wrong, ..settings() };
    let reward = program(&script, wrong);
    judge(&reward, "fine");
    let crashed = judge(&reward, "crash");
    assert_eq!((crashed.failure(), crashed.reward()), (None, 0.0));
    assert_eq!(crashed.verdict, Verdict::Unparsable(Reason::Grader));
}

#[test]
fn a_crash_of_what_came_before_costs_nothing() {
    // It answers two lines and ends.
    let reward = program("read -r a; echo 1; read -r b; echo 1; exit 1", settings());
    let rewards: Vec<f64> = (0..7).map(|it| judge(&reward, &it.to_string()).reward()).collect();
    assert_eq!(rewards, [1.0; 7]);
}

#[test]
fn one_that_never_answers_is_an_error_whatever_the_settings_say() {
    let wrong = RewardSettings { on_failure: OnFailure::Wrong, ..settings() };
    let missing = program("/no/such/program", wrong.clone());
    let failure = judge(&missing, "a").failure().unwrap().to_owned();
    assert!(failure.contains("exit status: 127"), "{failure}");
    assert!(failure.ends_with("it has not answered anything yet"), "{failure}");
    let mute = program("exec >&-; cat >/dev/null", wrong.clone());
    let failure = judge(&mute, "a").failure().unwrap().to_owned();
    assert!(failure.contains("it closed its standard output"), "{failure}");
    // And one that fails again and again after its first answer.
    let reward = program(&answers("*bad*) echo nonsense;;"), wrong);
    assert_eq!(judge(&reward, "good").failure(), None);
    let failures: Vec<bool> =
        (0..64).map(|it| judge(&reward, &format!("bad {it}")).failure().is_some()).collect();
    assert_eq!(failures.iter().position(|it| *it), Some(63));
}

/// A function of this process without a reward.
#[derive(Debug)]
struct Raises;

impl Answers for Raises {
    fn answer(&self, _: &str) -> Result<String, String> {
        Err("it raised".to_owned())
    }
}

#[test]
fn one_that_fails_before_its_first_reward_is_wrong_where_the_settings_say_so() {
    let named = r#"while read -r line; do id=${line#*:\"}; id=${id%%\"*}; echo "{\"id\": \"$id\", \"verdict\": null, \"reason\": \"it raised\"}"; done"#;
    for on_failure in [OnFailure::Wrong, OnFailure::Stop] {
        let settings = || RewardSettings { on_failure, wrong: -1.0, ..settings() };
        for (reward, said) in [
            (program(named, settings()), "it raised"),
            (program("while read -r line; do echo NaN; done", settings()), "answer `NaN`"),
            (OwnReward::function("python:here", Arc::new(Raises), settings()), "it raised"),
        ] {
            let first = judge(&reward, "a");
            let expected = (on_failure == OnFailure::Wrong).then_some(-1.0);
            assert_eq!(first.reward, expected, "{}", first.reason);
            assert!(first.reason.contains(said), "{}", first.reason);
            assert!(!first.reason.contains("not answered"), "{}", first.reason);
            // One that never gives a reward still ends the run.
            let rewards: Vec<Option<f64>> =
                (1..64).map(|it| judge(&reward, &it.to_string()).reward).collect();
            assert_eq!((rewards[0], rewards[62]), (expected, None));
        }
    }
}

#[test]
fn one_that_hangs_is_killed_with_all_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("sleeper");
    std::os::unix::fs::symlink("/bin/sleep", &mark).unwrap();
    let script = answers(&format!("*hang*) {} 1000 & {} 1001;;", mark.display(), mark.display()));
    let brief = RewardSettings { timeout: Duration::from_millis(300), ..settings() };
    let reward = program(&script, brief);
    assert_eq!(judge(&reward, "fine").reward(), 1.0);
    let hung = judge(&reward, "hang").failure().unwrap().to_owned();
    assert!(hung.contains("no answer within 0.3 s"), "{hung}");
    wait_until_gone(&mark);
    assert_eq!(judge(&reward, "fine").reward(), 1.0);
}

#[test]
fn processes_end_with_the_grader() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("sleeper");
    std::os::unix::fs::symlink("/bin/sleep", &mark).unwrap();
    let reward = program(&format!("{} 1000 & {}", mark.display(), answers("")), settings());
    assert_eq!(judge(&reward, "fine").reward(), 1.0);
    drop(reward);
    wait_until_gone(&mark);
}

/// True if any process has this path among its arguments.
fn runs(path: &Path) -> bool {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let path = path.to_str().unwrap();
    all.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok())
        .any(|it| it.split(|byte| *byte == 0).next() == Some(path.as_bytes()))
}

fn wait_until_gone(path: &Path) {
    let until = Instant::now() + Duration::from_secs(20);
    while runs(path) {
        assert!(Instant::now() < until, "{} still runs", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_no_answer_is_named() {
    let cases = [
        ("echo NaN", "expected a finite reward, in the answer `NaN`"),
        (
            "echo nonsense",
            "expected a number, or an object with `reward` or `verdict`, as JSON, in the answer `nonsense`",
        ),
        ("echo '{\"reward\": 1'", "as JSON, in the answer `{\"reward\": 1`"),
        ("printf '\\377\\n'", "expected an answer in UTF-8"),
        (
            "head -c 1100000 /dev/zero | tr '\\0' 1; echo",
            "expected an answer of at most 1048576 bytes",
        ),
        (
            "printf 1; exit 0",
            "it ended before it answered: exit status: 0, in the middle of the line `1`",
        ),
        ("echo '{\"id\": \"0\", \"reward\": 1}'", "it answered line \"0\", expected"),
    ];
    for (bad, message) in cases {
        let reward = program(&answers(&format!("*bad*) {bad};;")), settings());
        assert_eq!(judge(&reward, "good").reward(), 1.0);
        let failure = judge(&reward, "bad").failure().unwrap_or_default().to_owned();
        assert!(failure.contains(message), "{bad}: {failure}");
        assert_eq!(judge(&reward, "good").reward(), 1.0, "{bad}");
    }
}

/// The rewards of four lines; an even number is worth 1, an odd one 0.
fn outcome(reward: &OwnReward) -> Result<Vec<f64>, String> {
    let judged = (0..4).map(|number| {
        let judged = judge(reward, &number.to_string());
        judged.failure().map_or(Ok(judged.reward()), |problem| Err(problem.to_owned()))
    });
    let rewards = judged.collect::<Result<Vec<f64>, String>>()?;
    reward.finish()?;
    Ok(rewards)
}

#[test]
fn a_line_too_many_is_an_error_whenever_it_is_printed() {
    const UNASKED: &str = "it printed a line that answers nothing";
    let by_number = "case \"$line\" in *'\"completion\":\"'[02]*) echo 1;; *) echo 0;; esac";
    let honest = format!("while read -r line; do {by_number}; done");
    assert_eq!(outcome(&program(&honest, settings())).unwrap(), [1.0, 0.0, 1.0, 0.0]);
    // At once, a moment later, from a second process behind the last question, at the end, and on every line.
    for script in [
        "while read -r line; do echo 1; echo 0; done".to_owned(),
        "while read -r line; do echo 1; sleep 0.03; echo 0; done".to_owned(),
        format!("(sleep 0.2; echo 1) & while read -r line; do sleep 0.09; {by_number}; done"),
        format!("while read -r line; do {by_number}; done; echo 1"),
        format!("while read -r line; do {by_number}; done; printf 'done'"),
        "exec <&-; while :; do echo 1; sleep 0.01; done".to_owned(),
    ] {
        let wrong = RewardSettings { on_failure: OnFailure::Wrong, ..settings() };
        let problem = outcome(&program(&script, wrong)).expect_err(&script);
        assert!(problem.contains(UNASKED), "{script}: {problem}");
    }
}

#[test]
fn an_answer_without_an_id_behind_answers_with_one_is_an_error() {
    let script = r#"while read -r line; do id=${line#*:\"}; id=${id%%\"*}; case "$line" in
        *bare*) echo 1;;
        *) echo "{\"id\": \"$id\", \"reward\": 1}";; esac; done"#;
    let reward = program(script, settings());
    assert_eq!(judge(&reward, "named").failure(), None);
    let failure = judge(&reward, "bare").failure().unwrap_or_default().to_owned();
    assert!(failure.contains("expected an `id` in this answer"), "{failure}");
}

#[test]
fn long_lines_that_nobody_reads_do_not_hang() {
    let brief = RewardSettings {
        timeout: Duration::from_millis(300),
        start_timeout: Duration::from_millis(100),
        ..settings()
    };
    let reward = program("sleep 1000", brief);
    let failure = judge(&reward, &"x".repeat(1 << 20)).failure().unwrap_or_default().to_owned();
    assert!(failure.contains("no answer within 0.4 s"), "{failure}");
}

#[test]
fn what_is_printed_beside_answers_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("reward.log");
    let script = answers("*bad*) echo why >&2; echo what;;");
    let reward = program(&format!("echo hello >&2; {script}"), settings());
    assert_eq!(judge(&reward, "good").reward(), 1.0);
    // Output before there is a place is not lost.
    reward.log().keep_in(std::fs::File::create(&path).unwrap());
    assert!(judge(&reward, "bad").failure().is_some());
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let kept = ["process 1, error: hello", "process 1, error: why", "unexpected answer: what"];
        if kept.iter().all(|it| lines.contains(it)) {
            break;
        }
        assert!(Instant::now() < until, "{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The limit is of the answer, not of the bytes on the way.
#[test]
fn a_packed_answer_is_as_long_as_what_is_in_it() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(format!("1{}", " ".repeat(2 << 20)).as_bytes()).unwrap();
    let body = packed.finish().unwrap();
    assert!(body.len() < 4096);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let (address, served) = server(vec![[head.as_bytes(), &body].concat()]);
    let reward = OwnReward::new(&address, settings()).unwrap();
    let failure = judge(&reward, "a").failure().unwrap().to_owned();
    assert!(failure.contains("expected an answer of at most 1048576 bytes"), "{failure}");
    served.join().unwrap();
}

/// A server that answers each request in turn; gives its address and the bodies that it was sent.
fn server<B: AsRef<[u8]> + Send + 'static>(
    responses: Vec<B>,
) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/reward", listener.local_addr().unwrap());
    let serve = move || {
        let mut bodies = Vec::new();
        for response in responses {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut length, mut line) = (0, String::new());
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(it) = line.to_lowercase().strip_prefix("content-length:") {
                    length = it.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            bodies.push(String::from_utf8(body).unwrap());
            let mut stream = stream;
            stream.write_all(response.as_ref()).unwrap();
        }
        bodies
    };
    (address, std::thread::spawn(serve))
}

fn response(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

#[test]
fn a_server_is_sent_the_same_line() {
    let responses = vec![
        response("200 OK", "0.5\n"),
        response("200 OK", "{\"reward\": 1, \"parts\": {\"style\": 0.25}}"),
        response("503 Busy", "later"),
        response("200 OK", "1"),
        response("400 Bad Request", "no such model"),
        response("200 OK", "Infinity"),
    ];
    let (address, served) = server(responses);
    let reward = OwnReward::new(&address, settings()).unwrap();
    assert_eq!(judge(&reward, "a").reward(), 0.5);
    assert_eq!(judge(&reward, "b").parts, [("style".to_owned(), 0.25)]);
    // A temporary status is retried.
    let path = std::env::temp_dir().join(format!("hapo-waits-{}.log", std::process::id()));
    reward.log().keep_in(std::fs::File::create(&path).unwrap());
    assert_eq!(judge(&reward, "c").reward(), 1.0);
    let said = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(said, "server: expected status 200, got 503: later; asked again in 0.2 s\n");
    let refused = judge(&reward, "d").failure().unwrap().to_owned();
    assert!(refused.ends_with("expected status 200, got 400: no such model"), "{refused}");
    let infinite = judge(&reward, "e").failure().unwrap().to_owned();
    assert!(infinite.ends_with("expected a finite reward, in the answer `Infinity`"), "{infinite}");
    let bodies = served.join().unwrap();
    assert_eq!(bodies[2], bodies[3]);
    assert!(bodies[0].contains("\"prompt\":\"p\",\"gold\":\"g\""), "{}", bodies[0]);
    // The server is gone.
    let gone = judge(&reward, "f").failure().unwrap().to_owned();
    assert!(gone.contains("the request failed"), "{gone}");
}

#[test]
fn names_are_checked_before_anything_is_started() {
    for (name, expected) in [
        ("command:", "expected a command behind `command:`, got `command:`"),
        ("command: ", "expected a command behind `command:`, got `command: `"),
        (
            "http://",
            "expected `command:` and a command, `python:FILE.py:FUNCTION`, or the http address of a server, got `http://`",
        ),
        (
            "https:///x",
            "expected `command:` and a command, `python:FILE.py:FUNCTION`, or the http address of a server, got `https:///x`",
        ),
    ] {
        assert_eq!(hapo_net::reward::check(name).unwrap_err().to_string(), expected);
    }
    assert!(hapo_net::reward::is_own("command:python reward.py"));
    assert!(!hapo_net::reward::is_own("math"));
}

#[test]
fn functions_in_python_are_called_by_the_names_of_their_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("it's.py");
    let text = "print('loaded')\n\
        def trl(completions, answer, **columns): return [float(a in c) / 2 for a, c in zip(answer, completions)]\n\
        def verl(data_source, solution_str, ground_truth, extra_info=None):\n\
        \x20 return {'score': len(solution_str), 'gold': float(ground_truth)}\n\
        def own(completions, rows): return [rows[0]['bonus']]\n\
        def broken(completions, rows): return [1 / 0]\n\
        def none(completions, rows): return None\n\
        def unclear(completions, rows, prompts): return [1]\n";
    std::fs::write(&file, text).unwrap();
    let judge = |function: &str, settings: RewardSettings| {
        let name = format!("python:{}:{function}", file.display());
        let reward = OwnReward::new(&name, settings).unwrap();
        let problem =
            Problem { text: "1+1", golds: &["2"], row: Some(r#"{"bonus": -3, "id": "r7"}"#) };
        Gold::of(&reward, &problem).unwrap().judge("so 2")
    };
    assert_eq!(judge("trl", settings()).reward, Some(0.5));
    let verl = judge("verl", settings());
    assert_eq!((verl.reward, verl.parts), (Some(4.0), vec![("gold".to_owned(), 2.0)]));
    assert_eq!(judge("own", settings()).reward, Some(-3.0));
    let stopped = |function: &str, expected: &str| {
        let it = judge(function, settings());
        assert_eq!(it.reward, None, "{function}");
        assert!(it.reason.contains(expected), "{function}: {}", it.reason);
    };
    stopped("broken", "ZeroDivisionError: division by zero (row 'r7', completion 'so 2')");
    stopped("none", "expected a list of one reward, got None (row 'r7', completion 'so 2')");
    stopped("unclear", "unclear(completions, rows, prompts): expected f(completions, rows)");
    stopped("absent", "has no function absent");
    let wrong = RewardSettings { on_failure: OnFailure::Wrong, wrong: -1.0, ..settings() };
    // A function that raises was started right; one that is not there was not, whatever the settings say.
    assert_eq!(judge("broken", wrong.clone()).reward, Some(-1.0));
    let absent = judge("absent", wrong);
    assert_eq!(absent.reward, None);
    assert!(absent.reason.ends_with("it has not answered anything yet"), "{}", absent.reason);
    for (name, expected) in [
        (
            "python:reward.py",
            "expected `python:FILE.py:FUNCTION`: a function without a file is given to `hapo.train`, got `python:reward.py`",
        ),
        ("python:none.py:f", "expected a file that is there, got `python:none.py:f`"),
    ] {
        assert_eq!(OwnReward::new(name, settings()).unwrap_err().to_string(), expected);
    }
}
