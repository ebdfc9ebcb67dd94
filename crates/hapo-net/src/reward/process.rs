//! The processes of a program: a line in, a line out, a time limit, and an end.
//!
//! A process leads a group of its own, which is killed with it; a child that leaves the group is its program's own
//! affair. A shell in that group watches for the end of this program, so that the group ends even where it was killed.
//! The price is that shell, which looks once a second.

use crate::reward::{Failure, RewardLog, RewardSettings, locked};
use hapo_core::excerpt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{collections::VecDeque, thread};

const LINE_LIMIT: u64 = 1 << 20;
/// Lines of standard error that a message quotes.
const QUOTED: usize = 3;
/// How long an end is waited for that has begun.
const LINGER: Duration = Duration::from_millis(500);
/// How long a second line is waited for behind each of the first [`WATCHED`] answers.
const SURPLUS: Duration = Duration::from_millis(50);
const WATCHED: usize = 2;

/// Ends the group when the program that started it is gone, whatever ended that.
const WATCH: &str = r#"(while kill -0 "$PPID"; do sleep 1; done; kill -9 0) </dev/null >/dev/null 2>&1 &
"#;

#[derive(Debug)]
pub(crate) struct Pool {
    command: String,
    settings: RewardSettings,
    log: RewardLog,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Process>,
    started: usize,
}

impl Pool {
    pub(crate) fn new(command: &str, settings: &RewardSettings, log: RewardLog) -> Self {
        let (command, settings) = (command.to_owned(), settings.clone());
        Self { command, settings, log, state: Mutex::default() }
    }

    /// The line that answers a line. If the process ends instead, it is started again and gets the line once more:
    /// earlier lines may have caused the end.
    pub(crate) fn ask(&self, line: &str) -> Result<String, Failure> {
        let mut ended = String::new();
        for _ in 0..2 {
            let mut process = self.take()?;
            match process.ask(line, &self.settings) {
                Ok(answer) => {
                    locked(&self.state).idle.push(process);
                    return Ok(answer);
                }
                Err(Ended::Early(how)) => ended = how,
                Err(Ended::Failed(it)) => return Err(it),
            }
        }
        Err(Failure::of_one(format!("it ended before it answered: {ended}")))
    }

    /// Ends the processes: each has answered every line with one.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let idle = std::mem::take(&mut locked(&self.state).idle);
        idle.into_iter().try_for_each(Process::finish)
    }

    /// Memory of the processes and of those that they started; `None` where the system does not say.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let groups: Vec<u32> = locked(&self.state).idle.iter().map(|it| it.child.id()).collect();
        // On EIO nothing is known.
        let all = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        let pages = all.filter_map(|it| {
            // One that ended meanwhile holds nothing, nor does one on EIO.
            let stat = std::fs::read_to_string(it.path().join("stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            let is_ours = groups.contains(&fields.get(2)?.parse().ok()?);
            fields.get(21).filter(|_| is_ours)?.parse::<u64>().ok()
        });
        Some(pages.sum::<u64>() * 4096)
    }

    /// A process that is idle, or a new one: there are as many as lines are asked at once.
    fn take(&self) -> Result<Process, Failure> {
        let mut state = locked(&self.state);
        if let Some(it) = state.idle.pop() {
            return Ok(it);
        }
        state.started += 1;
        let number = state.started;
        drop(state);
        Process::start(&self.command, number, self.log.clone())
            .map_err(|it| Failure::fatal(format!("it cannot be started: {it}")))
    }
}

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    lines: Option<Sender<Vec<u8>>>,
    answers: Receiver<Printed>,
    /// Output after the last answer.
    next: Option<Printed>,
    errors: Arc<Errors>,
    log: RewardLog,
    answered: usize,
}

/// The end of a question without an answer; the process is of no more use.
#[derive(Debug)]
enum Ended {
    Early(String),
    /// It did something else.
    Failed(Failure),
}

#[derive(Debug)]
enum Printed {
    Line(String),
    NoText,
    TooLong,
    /// The end of a line that was not ended.
    Part(String),
    End,
}

#[derive(Debug, Default)]
struct Errors {
    last: Mutex<VecDeque<String>>,
    done: AtomicBool,
}

impl Process {
    fn start(command: &str, number: usize, log: RewardLog) -> std::io::Result<Self> {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("{WATCH}{command}\n")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Python keeps what it prints to itself otherwise.
            .env("PYTHONUNBUFFERED", "1");
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut child = shell.spawn()?;
        let name = format!("process {number}");
        let (lines, to_write) = channel();
        let (to_send, answers) = sync_channel(1);
        let errors = Arc::new(Errors::default());
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let (kept, to, whose) = (Arc::clone(&errors), log.clone(), format!("{name}, error"));
        // Where the system starts no more threads, the process ends with its standard input.
        let thread = thread::Builder::new;
        thread().spawn(move || write_lines(stdin, &to_write))?;
        thread().spawn(move || read_lines(stdout, &to_send))?;
        thread().spawn(move || {
            each_line(stderr, |line| {
                let text = String::from_utf8_lossy(line);
                to.add(&whose, &text);
                let mut last = locked(&kept.last);
                last.truncate(QUOTED - 1);
                last.push_front(excerpt(text.trim_end(), 200));
                true
            });
            kept.done.store(true, Ordering::Relaxed);
        })?;
        let lines = Some(lines);
        Ok(Self { name, child, lines, answers, next: None, errors, log, answered: 0 })
    }

    /// The line that answers a line.
    fn ask(&mut self, line: &str, settings: &RewardSettings) -> Result<String, Ended> {
        let failed = |message: String| Err(Ended::Failed(Failure::of_one(message)));
        match self.next.take().or_else(|| self.answers.try_recv().ok()) {
            Some(Printed::Line(it) | Printed::Part(it)) => {
                return Err(Ended::Failed(self.unasked(&it)));
            }
            // It ended after its last answer.
            Some(_) => return Err(Ended::Early(self.how_it_ended())),
            None => {}
        }
        let limit = settings.timeout
            + if self.answered > 0 { Duration::ZERO } else { settings.start_timeout };
        let begun = Instant::now();
        // One that has ended says so on its standard output.
        let _ = self.lines.as_ref().map(|lines| lines.send(line.as_bytes().to_vec()));
        match self.answers.recv_timeout(limit) {
            Ok(Printed::Line(answer)) => {
                self.answered += 1;
                if self.answered <= WATCHED {
                    self.next = self.answers.recv_timeout(SURPLUS).ok();
                }
                match &self.next {
                    Some(Printed::Line(more)) => Err(Ended::Failed(self.unasked(more))),
                    _ => Ok(answer),
                }
            }
            Ok(Printed::Part(it)) => {
                self.log.add(&format!("{}, unfinished", self.name), &it);
                let (how, line) = (self.how_it_ended(), excerpt(&it, 120));
                Err(Ended::Early(format!("{how}, in the middle of the line `{line}`")))
            }
            Ok(Printed::End) | Err(RecvTimeoutError::Disconnected) => {
                Err(Ended::Early(self.how_it_ended()))
            }
            Ok(Printed::NoText) => failed("expected an answer in UTF-8".to_owned()),
            Ok(Printed::TooLong) => {
                failed(format!("expected an answer of at most {LINE_LIMIT} bytes"))
            }
            Err(RecvTimeoutError::Timeout) => {
                let said = self.said();
                let (waited, limit) = (begun.elapsed(), limit.as_secs_f64());
                self.log.add(&self.name, &format!("killed after {:.1} s", waited.as_secs_f64()));
                failed(format!("no answer within {limit} s{said}"))
            }
        }
    }

    /// Ends the input and reads the remaining output, which answers nothing.
    fn finish(mut self) -> Result<(), Failure> {
        self.lines = None;
        match self.next.take().or_else(|| self.answers.recv_timeout(LINGER).ok()) {
            Some(Printed::Line(it) | Printed::Part(it)) => Err(self.unasked(&it)),
            Some(Printed::NoText | Printed::TooLong) => Err(self.unasked("…")),
            Some(Printed::End) | None => Ok(()),
        }
    }

    /// An unrequested line: any answer may belong to another question.
    fn unasked(&self, line: &str) -> Failure {
        self.log.add(&format!("{}, unasked", self.name), line);
        let line = excerpt(line.trim_end(), 120);
        Failure::fatal(format!(
            "it printed a line that answers nothing, `{line}`, so rewards may have gone to other completions: print one line for each line of input, with its `id`, and everything else on standard error"
        ))
    }

    /// The exit status, and the last that was printed on standard error.
    fn how_it_ended(&mut self) -> String {
        let until = Instant::now() + LINGER;
        let mut status = None;
        while Instant::now() < until {
            status = self.child.try_wait().ok().flatten();
            if status.is_some() && self.errors.done.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let how =
            status.map_or_else(|| "it closed its standard output".to_owned(), |it| it.to_string());
        self.log.add(&self.name, &how);
        how + &self.said()
    }

    fn said(&self) -> String {
        let last = locked(&self.errors.last);
        let lines: Vec<&str> = last.iter().rev().map(String::as_str).collect();
        if lines.is_empty() { String::new() } else { format!("; it said: {}", lines.join(" / ")) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        #[cfg(unix)]
        // SAFETY: a system call without pointers. The process was not waited for, or only just now, and its group holds
        // the watching shell, so the number is still its group's.
        unsafe {
            libc::kill(-(self.child.id() as i32), libc::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_lines(mut to: ChildStdin, lines: &Receiver<Vec<u8>>) {
    for line in lines {
        if to.write_all(&line).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

fn read_lines(from: ChildStdout, to: &SyncSender<Printed>) {
    let mut open = true;
    each_line(from, |bytes| {
        let printed = match std::str::from_utf8(bytes) {
            _ if bytes.len() as u64 > LINE_LIMIT => Printed::TooLong,
            Ok(text) if text.ends_with('\n') => Printed::Line(text.to_owned()),
            Ok(text) => Printed::Part(text.to_owned()),
            Err(_) => Printed::NoText,
        };
        open = to.send(printed).is_ok();
        open
    });
    if open {
        // The receiver may be gone.
        let _ = to.send(Printed::End);
    }
}

/// Hands over each line, its newline included, at most one byte more than [`LINE_LIMIT`] at a time.
fn each_line(from: impl Read, mut take: impl FnMut(&[u8]) -> bool) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut from).take(LINE_LIMIT + 1).read_until(b'\n', &mut line) {
            Ok(1..) if take(&line) => {}
            _ => return,
        }
    }
}
