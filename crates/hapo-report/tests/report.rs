//! Pages of run folders, whole and broken.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use expect_test::expect;
use hapo_report::{figures, growing_report, report};
use hapo_run::{EarlyEnd, RunFolder};

const HOSTILE: &str = "</script><script>alert(1)</script>";

/// A run of a few steps, with rollouts of its last.
fn run_in(folder: &Path, seed: u64, steps: u64) -> PathBuf {
    fs::create_dir_all(folder.join("rollouts")).unwrap();
    let recipe = format!(
        "name = \"{HOSTILE}\"\nmethod = \"trapo\"\nseed = {seed}\nsteps = 8\n[data]\ngrader = \"math\"\nextraction = \"any\"\ntruncated = \"grade\"\n"
    );
    fs::write(folder.join("recipe.toml"), recipe).unwrap();
    let gate = r#"{"gate":"confidence","group_size":8,"success_limit":0,"gamma0":0.15,"turn_off_epoch":1.5,"steepness":10,
        "steps_per_epoch":3,"extinct_at_step":5,"rungs":[{"successes":0,"closes_at_epoch":1.5,"first_closed_step":5}],"steps":[]}"#;
    fs::write(folder.join("gate.json"), gate).unwrap();
    let lines: String = (1..=steps).map(|it| line(it) + "\n").collect();
    fs::write(folder.join("metrics.jsonl"), lines).unwrap();
    let rollout = |role: &str, text: &str, verdict: &str| {
        serde_json::json!({ "step": steps, "prompt_id": 1, "id": "one", "problem": HOSTILE, "prompt_tokens": [], "answer": "5", "role": role, "slot": 0,
            "injected": true, "completion": text, "tokens": [1, 2], "log_probs": [-1.0, -2.0], "ended": true, "verdict": verdict })
        .to_string()
    };
    let text = format!(
        "{}\n{}\n",
        rollout("replaced", HOSTILE, "wrong"),
        rollout("teacher", "\\boxed{5}", "correct")
    );
    let packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
    fs::write(folder.join("rollouts").join(format!("step-{steps:06}.jsonl.zst")), packed).unwrap();
    folder.to_owned()
}

fn line(step: u64) -> String {
    let t = step as f64;
    serde_json::json!({ "step": step, "reward/policy_only": t / 10.0, "reward/mean": t / 8.0, "gate/beta": 1.0 / t, "gate/success_limit": if step < 5 { 0 } else { -1 },
        "gate/threshold": 0.1, "grad_norm": 1.0, "time/step": 2.0, "time/sample": 1.0, "time/train": 0.5, "time/verify": 0.25 })
    .to_string()
}

/// The block of data of a page.
fn stored_data(page: &str) -> (serde_json::Value, Vec<f64>) {
    unpacked(&block_of(page, "data"))
}

/// The bytes of a block of a page.
fn block_of(page: &str, id: &str) -> Vec<u8> {
    let (_, rest) = page.split_once(&format!("id=\"{id}\">")).unwrap();
    let (text, _) = rest.split_once('<').unwrap();
    let packed = base64::prelude::BASE64_STANDARD.decode(text).unwrap();
    let mut block = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut block).unwrap();
    block
}

fn unpacked(body: &[u8]) -> (serde_json::Value, Vec<f64>) {
    let length = u32::from_le_bytes(body[..4].try_into().unwrap()) as usize;
    let manifest = serde_json::from_slice(&body[4..4 + length]).unwrap();
    let numbers = body[4 + length..].chunks(8);
    let numbers = numbers.map(|it| f64::from_le_bytes(it.try_into().unwrap()));
    (manifest, numbers.collect())
}

#[test]
fn nothing_of_a_run_is_markup() {
    let dir = tempfile::tempdir().unwrap();
    let page = report(&[run_in(&dir.path().join("a"), 0, 8)]).unwrap();
    assert!(!page.contains("alert(1)"));
    // The page's own scripts: the data, one step's rollouts, the program.
    assert_eq!(page.matches("<script").count(), 3);
    assert!(page.contains("default-src 'none'; script-src 'sha256-"));
    // Nothing is fetched.
    assert_eq!(page.matches("://").count(), 0);
}

/// Four of eight steps: without a word of why the run is not finished.
#[test]
fn a_run_that_ended_early_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(&dir.path().join("a"), 0, 4);
    let steps_of = || {
        let (manifest, _) = stored_data(&report(std::slice::from_ref(&run)).unwrap());
        let run = &manifest["runs"][0];
        assert_eq!(run["facts"][0]["label"], "steps");
        let text = |it: &serde_json::Value| it.as_str().unwrap().to_owned();
        (text(&run["state"]), text(&run["facts"][0]["text"]))
    };
    let unfinished = "4 of 8, not finished, no process trains here".to_owned();
    assert_eq!(steps_of(), ("unfinished".to_owned(), unfinished.clone()));
    let end = |step| EarlyEnd { step, because: "no better for 2 evaluations".to_owned() };
    end(4).write(RunFolder(&run)).unwrap();
    let ended = "4 of 8, ended early: no better for 2 evaluations".to_owned();
    assert_eq!(steps_of(), ("finished".to_owned(), ended));
    // An early end at another step is not this run's.
    end(3).write(RunFolder(&run)).unwrap();
    assert_eq!(steps_of(), ("unfinished".to_owned(), unfinished));
}

#[test]
fn each_set_of_an_evaluation_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(&dir.path().join("a"), 0, 8);
    let lines = "{\"step\":1,\"eval/avg@k\":0.15,\"eval/avg@k/one\":0.1,\"eval/avg@k/two\":0.2}\n{\"step\":2}\n\
        {\"step\":3,\"eval/avg@k\":0.5,\"eval/avg@k/one\":0.3,\"eval/avg@k/two\":0.7}\n";
    fs::write(run.join("metrics.jsonl"), lines).unwrap();
    let (manifest, _) = stored_data(&report(&[run]).unwrap());
    let facts = manifest["runs"][0]["facts"].as_array().unwrap();
    let fact = facts.iter().find(|it| it["label"] == "by set").unwrap();
    assert_eq!(fact["text"], "one 0.100 → 0.300; two 0.200 → 0.700");
}

#[test]
fn the_first_sentence_compares_the_start_with_the_last_look_and_writes_rewards_out() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(&dir.path().join("a"), 0, 8);
    let headline = |lines: &str| {
        fs::write(run.join("metrics.jsonl"), lines).unwrap();
        stored_data(&report(std::slice::from_ref(&run)).unwrap()).0["headline"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let rewards =
        "{\"step\":1,\"reward/policy_only\":0.000953}\n{\"step\":2,\"reward/policy_only\":0.5}\n";
    assert_eq!(headline(rewards), "Reward 0.001 → 0.500 (first and last step).");
    fs::write(RunFolder(&run).start(), r#"{"model":"m","metrics":{"eval/avg@k":0.105}}"#).unwrap();
    let looked = "{\"step\":1,\"reward/policy_only\":0.1}\n{\"step\":2,\"reward/policy_only\":0.5,\"eval/avg@k\":0.97}\n";
    assert_eq!(headline(looked), "Held-out success 0.105 → 0.970.");
}

#[test]
fn a_page_is_the_same_twice() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(&dir.path().join("a"), 0, 8);
    assert_eq!(report(std::slice::from_ref(&run)).unwrap(), report(&[run]).unwrap());
}

#[test]
fn a_folder_without_a_run_is_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    let error = report(&[dir.path().to_owned()]).unwrap_err();
    assert!(error.to_string().contains("holds no run: expected recipe.toml"), "{error}");
    assert!(error.is_bad_input() && error.how_to_mend().is_some());
    assert!(report(&[dir.path().join("absent")]).is_err());
}

#[test]
fn a_broken_run_is_shown_with_notes() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("broken");
    fs::create_dir_all(run.join("rollouts")).unwrap();
    fs::write(run.join("recipe.toml"), "steps = [").unwrap();
    fs::write(run.join("gate.json"), "{").unwrap();
    fs::write(run.join("eval.json"), "no table").unwrap();
    fs::write(run.join("rollouts/step-000003.jsonl.zst"), b"no zstd").unwrap();
    fs::write(run.join("metrics.jsonl"), format!("{}\n\u{0}\u{1}\n{{\"st", line(1))).unwrap();
    let (manifest, _) = stored_data(&report(&[run]).unwrap());
    let notes = manifest["runs"][0]["notes"].as_array().unwrap().iter();
    let notes: Vec<String> = notes
        .map(|it| it.as_str().unwrap().replace(&*dir.path().to_string_lossy(), "DIR"))
        .collect();
    expect![[r#"
        The last line of metrics.jsonl (3) is incomplete and left out.
        Left out of metrics.jsonl: 1 line without a step, the first is line 2.
        recipe.toml cannot be read: unclosed array, expected `]`.
        gate.json cannot be read: EOF while parsing an object at line 1 column 1.
        DIR/broken/eval.json is no table of an evaluation.
        Rollouts of 1 steps cannot be read, the first: the rollouts of step 3 cannot be read: Unknown frame descriptor (DIR/broken/rollouts/step-000003.jsonl.zst)."#]]
    .assert_eq(&notes.join("\n"));
}

#[test]
fn a_page_follows_a_run_that_is_cut_and_goes_on_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(&dir.path().join("a"), 0, 6);
    let shown = || growing_report(std::slice::from_ref(&run), 5).unwrap();
    let (manifest, numbers) = stored_data(&shown().unwrap());
    assert_eq!(manifest["every"], 5);
    let of = &manifest["runs"][0];
    assert_eq!(of["rows"], 6);
    assert_eq!(numbers[..6], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let reward =
        of["columns"].as_array().unwrap().iter().position(|it| it == "reward/policy_only").unwrap();
    assert_eq!(
        numbers[reward * 6..][..6],
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        "the numbers of metrics.jsonl, bit for bit"
    );
    // Resumed from step 3: the file is cut, then continues to the end.
    let cut: String = (1..=3).map(|it| line(it) + "\n").collect();
    fs::write(run.join("metrics.jsonl"), &cut).unwrap();
    assert_eq!(stored_data(&shown().unwrap()).0["runs"][0]["rows"], 3);
    let whole: String = (1..=8).map(|it| line(it) + "\n").collect();
    fs::write(run.join("metrics.jsonl"), whole).unwrap();
    assert_eq!(shown(), None);
    let (manifest, _) = stored_data(&report(std::slice::from_ref(&run)).unwrap());
    assert_eq!(manifest["every"], serde_json::Value::Null);
    assert_eq!(manifest["runs"][0]["rows"], 8);
    assert_eq!(manifest["runs"][0]["state"], "finished");
    let facts = manifest["runs"][0]["facts"].as_array().unwrap().iter();
    let facts: Vec<&str> = facts.map(|it| it["text"].as_str().unwrap()).collect();
    expect![[r#"
        8 of 8, finished
        0.100 → 0.800 (first and last step)
        closed for good since step 5; the teacher helps up to step 4 of 8
        16 s in all, 2 s a step, sampling 50 %, training 25 %, grading 12 %"#]]
    .assert_eq(&facts.join("\n"));
}

#[test]
fn rollouts_are_carried_with_the_graders_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let page = report(&[run_in(&dir.path().join("a"), 0, 8)]).unwrap();
    let rollouts: serde_json::Value =
        serde_json::from_slice(&block_of(&page, "rollouts-0-8")).unwrap();
    let members = &rollouts["groups"][0]["members"];
    assert_eq!(members[0]["completion"], HOSTILE);
    assert_eq!(members[0]["mean_log_prob"], -1.5);
    assert_eq!(members[1]["why"]["verdict"], "correct");
    assert_eq!(members[1]["why"]["answer_read"], "5");
}

#[test]
fn seeds_of_a_recipe_are_one_set_and_differences_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (name, seed) in [("a", 0), ("b", 1), ("c", 0)] {
        run_in(&dir.path().join(name), seed, 8);
    }
    let other = dir.path().join("c/recipe.toml");
    let text = fs::read_to_string(&other).unwrap();
    fs::write(other, text.replace("trapo", "luffy")).unwrap();
    let (manifest, _) = stored_data(&report(&[dir.path().to_owned()]).unwrap());
    assert_eq!(manifest["lines"], serde_json::json!([[0, 1], [2]]));
    assert_eq!(
        manifest["differences"],
        serde_json::json!([
            { "key": "method", "values": ["\"trapo\"", "\"trapo\"", "\"luffy\""] },
            { "key": "seed", "values": ["0", "1", "0"] },
        ])
    );
}

/// Two seeds, the first of them under three names.
#[cfg(unix)]
#[test]
fn links_and_copies_of_a_run_are_no_further_seeds() {
    let dir = tempfile::tempdir().unwrap();
    for (name, seed) in [("a", 0), ("copy", 0), ("other", 1)] {
        run_in(&dir.path().join(name), seed, 8);
    }
    std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
    let shown = |folders: &[PathBuf]| {
        let (manifest, _) = stored_data(&report(folders).unwrap());
        let runs = manifest["runs"].as_array().unwrap().iter();
        let names: Vec<String> = runs.map(|it| it["name"].as_str().unwrap().to_owned()).collect();
        (names, manifest["lines"].clone())
    };
    let (names, groups) = shown(&[dir.path().to_owned()]);
    assert_eq!(names, ["a", "copy", "other"]);
    assert_eq!(groups, serde_json::json!([[0, 2], [1]]));
    let spelled = ["a", "./a", "link", "link/../a"].map(|it| dir.path().join(it));
    assert_eq!(shown(&spelled), (vec!["a".to_owned()], serde_json::json!([[0]])));
}

#[test]
fn a_file_that_cannot_be_read_is_a_note_of_its_run() {
    let dir = tempfile::tempdir().unwrap();
    for (name, seed) in [("a", 0), ("b", 1)] {
        run_in(&dir.path().join(name), seed, 8);
    }
    for name in ["metrics.jsonl", "gate.json"] {
        fs::remove_file(dir.path().join("b").join(name)).unwrap();
        fs::create_dir(dir.path().join("b").join(name)).unwrap();
    }
    let (manifest, _) = stored_data(&report(&[dir.path().to_owned()]).unwrap());
    assert_eq!(manifest["runs"][0]["notes"], serde_json::json!([]));
    let notes = manifest["runs"][1]["notes"].as_array().unwrap().iter();
    let notes: Vec<String> = notes
        .map(|it| it.as_str().unwrap().replace(&*dir.path().to_string_lossy(), "DIR"))
        .collect();
    expect![[r#"
        Left out: cannot read DIR/b/metrics.jsonl: Is a directory (os error 21).
        Left out: cannot read DIR/b/gate.json: Is a directory (os error 21)."#]]
    .assert_eq(&notes.join("\n"));
}

#[test]
fn figures_are_written_as_svg() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(&dir.path().join("a"), 0, 8);
    let out = dir.path().join("figures");
    let written = figures(&[run], &out).unwrap();
    let names: Vec<String> =
        written.iter().map(|it| it.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(names, ["reward.svg", "gate.svg", "gradient.svg", "step-time.svg"]);
    let svg = fs::read_to_string(out.join("reward.svg")).unwrap();
    // Policy-only reward at the last step, 0.8, under an axis that ends at 1.05 (8/8 and a twentieth).
    let (x, y) = ends(&svg)[0];
    assert!((x - 704.0).abs() < 0.05, "{x}");
    assert!((y - (36.0 + 338.0 * (1.0 - 0.8 / 1.05))).abs() < 0.05, "{y}");
    assert!(svg.contains("teacher gone from step 5"));
    // A name is text.
    let named = run_in(&dir.path().join("a<b>&"), 0, 8);
    fs::write(named.join("recipe.toml"), "steps = 8\n").unwrap();
    let again = figures(&[dir.path().join("a"), named], &out).unwrap();
    let svg = fs::read_to_string(&again[0]).unwrap();
    assert!(svg.contains(">a&lt;b&gt;&amp;: mixed</text>"), "{svg}");
}

/// Where the lines of a figure end, in the order of the legend.
fn ends(svg: &str) -> Vec<(f64, f64)> {
    let lines = svg.split("<path class='line ").skip(1);
    let paths = lines.map(|it| it.split_once(" d='").unwrap().1.split_once('\'').unwrap().0);
    // A file's marks of its legend are no lines of it.
    paths.filter(|it| !it.ends_with("h28")).map(|it| places(it)[places(it).len() - 1]).collect()
}

/// The points of a path of absolute moves and relative lines.
fn places(path: &str) -> Vec<(f64, f64)> {
    let spaced = path.replace('-', " -").replace('M', " M ").replace('l', " l ");
    let mut words = spaced.split_whitespace();
    let (mut at, mut is_move, mut all) = ((0.0, 0.0), false, Vec::new());
    while let Some(word) = words.next() {
        match word {
            "M" => is_move = true,
            "l" => is_move = false,
            x => {
                let (x, y): (f64, f64) =
                    (x.parse().unwrap(), words.next().unwrap().parse().unwrap());
                at = if is_move { (x, y) } else { (at.0 + x, at.1 + y) };
                all.push(at);
            }
        }
    }
    all
}

/// Eight steps of 2 s; the reward 0.1 × step under an axis to 1.05. The page's grid is 1000 by 500.
#[test]
fn a_page_has_the_figures_that_its_runs_can_show() {
    let dir = tempfile::tempdir().unwrap();
    for (name, seed) in [("a", 0), ("b<b>&", 1)] {
        run_in(&dir.path().join(name), seed, if seed == 0 { 8 } else { 6 });
    }
    let (stored, _) = stored_data(&report(&[dir.path().to_owned()]).unwrap());
    let drawn = &stored["drawn"];
    assert_eq!(drawn["ends"], serde_json::json!([1.0, 8.0]));
    let ids: Vec<&str> =
        drawn["figures"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["reward", "gate", "gradient", "step-time", "metric-gate/success_limit"]);
    let labels = |figure: &serde_json::Value| -> Vec<String> {
        let lines = figure["curves"].as_array().unwrap().iter();
        lines.map(|it| it["label"].as_str().unwrap().to_owned()).collect()
    };
    let up = |value: f64| (500.0 * (1.0 - value / 1.05)).round();
    let reward = &drawn["figures"][0];
    assert_eq!(labels(reward), ["policy only", "mixed"], "two seeds are one band");
    let svg = reward["svg"].as_str().unwrap();
    assert_eq!(ends(svg), [(1000.0, up(0.8)), (1000.0, up(1.0))]);
    assert!(svg.contains("teacher gone from step 5"));

    // Of two recipes each run has its own line.
    let recipe = dir.path().join("b<b>&/recipe.toml");
    let other = fs::read_to_string(&recipe).unwrap().replace("trapo", "luffy");
    fs::write(&recipe, other).unwrap();
    let (stored, _) = stored_data(&report(&[dir.path().to_owned()]).unwrap());
    let reward = &stored["drawn"]["figures"][0];
    let expected = ["a: policy only", "a: mixed", "b<b>&: policy only", "b<b>&: mixed"];
    assert_eq!(labels(reward), expected);
    let at = (1000.0_f64 * 5.0 / 7.0).round();
    let ends = ends(reward["svg"].as_str().unwrap());
    assert_eq!(ends[2..], [(at, up(0.6)), (at, up(0.75))]);
}

/// GRPO that never succeeds, and imitation with GRPO after it, with rewards between 0 and 1.
#[test]
fn stages_are_one_line_and_runs_at_zero_are_drawn_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, path: &str, start: f64, lines: &[serde_json::Value]| {
        let run = dir.path().join(name);
        fs::create_dir_all(&run).unwrap();
        let recipe =
            format!("method = \"grpo\"\nseed = 0\nsteps = 2\n[model]\npath = \"{path}\"\n");
        fs::write(run.join("recipe.toml"), recipe).unwrap();
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        fs::write(run.join("metrics.jsonl"), text.join("\n") + "\n").unwrap();
        let start =
            serde_json::json!({"model": "m", "metrics": {"eval/avg@k": 0.0, "eval/reward": start}});
        fs::write(RunFolder(&run).start(), start.to_string()).unwrap();
    };
    let step = |step: u64, reward: f64, look: Option<f64>| {
        serde_json::json!({"step": step, "reward/policy_only": reward, "reward/mean": reward, "verify/correct": 0,
            "verify/wrong": 8, "verify/unparsable": 0, "gate/beta": 0, "gate/threshold": -1, "eval/avg@k": look.map(|_| 0.0), "eval/reward": look})
    };
    let imitation = |n: u64, look: Option<f64>| serde_json::json!({"step": n, "loss": 1.0, "eval/avg@k": look.map(|_| 0.0), "eval/reward": look});
    write("grpo", "m", 0.0, &[step(1, 0.0, None), step(2, 0.0, Some(0.0))]);
    write("two/sft", "m", 0.1, &[imitation(1, None), imitation(2, Some(0.5))]);
    write("two/rl", "stage:sft", 0.5, &[step(1, 0.6, None), step(2, 0.7, Some(0.8))]);
    let (stored, _) = stored_data(&report(&[dir.path().to_owned()]).unwrap());
    assert_eq!(stored["headline"], "Held-out reward at the end: two/rl 0.800, grpo 0.000.");
    let drawn = &stored["drawn"];
    assert_eq!(drawn["ends"], serde_json::json!([0.0, 4.0]));
    let figures = drawn["figures"].as_array().unwrap();
    let figure = |id: &str| figures.iter().find(|it| it["id"] == id);
    assert!(figure("gate").is_none(), "no run has one");
    let labels = |id: &str| -> Vec<String> {
        let curves = figure(id).unwrap()["curves"].as_array().unwrap().iter();
        curves.map(|it| it["label"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(labels("reward"), ["grpo: policy only", "two: policy only"]);
    assert_eq!(labels("eval"), ["grpo: avg@k", "two: avg@k", "two: mean reward"]);
    let svg = figure("eval").unwrap()["svg"].as_str().unwrap();
    assert!(svg.contains("next stage"), "{svg}");
    let up = |value: f64| (500.0 * (1.0 - value / 0.84)).round();
    assert_eq!(ends(svg), [(500.0, up(0.0)), (1000.0, up(0.0)), (1000.0, up(0.8))]);
    let tables = stored["tables"].as_array().unwrap();
    let rows = tables[0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "each run with an evaluation");
    assert!(
        rows.contains(&serde_json::json!(["two/sft", "eval/reward", 0.1, 0.5, 0.5, 2.0])),
        "{rows:?}"
    );
}

/// Twenty thousand steps of noise with one spike at step 7777.
#[test]
fn a_long_run_is_drawn_in_what_its_figure_can_show() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(&dir.path().join("a"), 0, 1);
    let line = |step: u64| {
        let value = if step == 7777 { 5.0 } else { (step * 7919 % 101) as f64 / 101.0 };
        format!(
            "{{\"step\":{step},\"loss\":{value},\"zero\":0,\"grad_norm\":{}}}\n",
            u64::from(step > 10)
        )
    };
    fs::write(run.join("metrics.jsonl"), (1..=20_000).map(line).collect::<String>()).unwrap();
    let (stored, _) = stored_data(&report(&[run]).unwrap());
    let drawn = &stored["drawn"];
    assert_eq!(drawn["ends"], serde_json::json!([1.0, 20_000.0]));
    let figure = |id: &str| {
        let all = drawn["figures"].as_array().unwrap();
        all.iter().find(|it| it["id"] == id).unwrap()["svg"].as_str().unwrap().to_owned()
    };
    // The values lie behind their means.
    let values = |svg: &str| {
        let path = svg.split("<path class='raw ").nth(1).unwrap().split_once(" d='").unwrap().1;
        places(path.split_once('\'').unwrap().0)
    };
    let loss = figure("loss");
    let points = values(&loss);
    assert!((700..=802).contains(&points.len()), "{}", points.len());
    let highest = points.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    // 5 under an axis from 0 to 5.25.
    assert_eq!(
        highest,
        ((1000.0_f64 * 7776.0 / 19_999.0).round(), (500.0_f64 * 0.25 / 5.25).round())
    );
    let (mean_x, mean_y) = ends(&loss)[0];
    assert!(
        mean_x == 1000.0 && (440.0..=470.0).contains(&mean_y),
        "means are about a half: {mean_y}"
    );
    // A logarithm has no place for the zeros of the first ten steps. The mean of eleven, 1/11, begins the axis at .01.
    assert_eq!(values(&figure("gradient"))[0], (1.0, 0.0));
    assert!(drawn.to_string().len() < 100_000, "{}", drawn.to_string().len());
}

#[test]
fn the_pages_script_draws_nothing() {
    let script = include_str!("../assets/page.js");
    for it in [
        "createElementNS",
        "\"path\"",
        "\"line\"",
        "\"rect\"",
        "viewBox",
        "Math.log",
        "toPrecision(12)",
    ] {
        assert!(!script.contains(it), "{it}");
    }
}

#[test]
fn a_gate_that_is_no_table_says_when_it_last_opened() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(&dir.path().join("thompson"), 1, 6);
    fs::remove_file(run.join("gate.json")).unwrap();
    let recipe = "method = \"luffy\"\nsteps = 6\n[hapo]\ngate = \"thompson\"\n";
    fs::write(run.join("recipe.toml"), recipe).unwrap();
    let shown = |open: [u32; 6]| {
        let lines = open.iter().zip(1..).map(|(open, step)| {
            format!("{{\"step\":{step},\"gate/open\":{open},\"reward/policy_only\":0.5}}\n")
        });
        fs::write(run.join("metrics.jsonl"), lines.collect::<String>()).unwrap();
        stored_data(&report(std::slice::from_ref(&run)).unwrap()).0["runs"][0].to_string()
    };
    let opened = shown([2, 0, 1, 3, 0, 0]);
    assert!(opened.contains("`thompson` has opened for 6 groups, the last time in step 4"));
    assert!(shown([0; 6]).contains("`thompson` has opened for no group"));
}
