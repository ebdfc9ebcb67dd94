//! Locks between processes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use hapo_run::{Busy, Lock, RunFolder, is_locked};

const FOLDER: &str = "HAPO_RUN_TEST_FOLDER";

/// The other process of the test below; alone it does nothing.
#[test]
#[expect(clippy::print_stdout, reason = "the test below waits for the line")]
fn holder() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let _lock = Lock::take(RunFolder(Path::new(&folder))).unwrap();
        println!("\nholding");
        std::thread::sleep(std::time::Duration::from_mins(1));
    }
}

#[test]
fn a_lock_goes_with_the_process_that_holds_it_even_when_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunFolder(dir.path());
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder", "--nocapture"])
        .env(FOLDER, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(holder.stdout.take().unwrap());
    assert!(output.lines().any(|it| it.unwrap() == "holding"));
    assert!(Lock::take(run).unwrap_err().cause::<Busy>().is_some());
    assert_eq!(is_locked(&run.lock()), cfg!(target_os = "linux"));
    holder.kill().unwrap();
    holder.wait().unwrap();
    Lock::take(run).unwrap();
}
