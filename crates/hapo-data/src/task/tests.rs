use super::*;
use crate::{EndOfTurn, find_template, render};
use expect_test::{Expect, expect};
use hapo_core::{RngCounter, RngStream};
use num_bigint::BigUint;
use std::collections::{BTreeMap, HashSet};
use tokenizers::Tokenizer;

fn check_solutions(family: &str, operands: &[u64], concise: &str, teacher: &str) {
    let family = find_family(family).unwrap();
    let problem = Problem {
        family: family.name,
        level: operands[0].to_string().len() as u32,
        prompt: String::new(),
        answer: String::new(),
        operands: operands.to_vec(),
    };
    assert_eq!(
        (family.concise(&problem), family.teacher(&problem)),
        (concise.to_owned(), teacher.to_owned())
    );
}

#[test]
fn solutions_are_written_as_documented() {
    check_solutions(
        "multiply",
        &[473_829, 6],
        r"4792482;\boxed{2842974}",
        r"9*6+0:54,2*6+5:17,8*6+1:49,3*6+4:22,7*6+2:44,4*6+4:28,\boxed{2842974}",
    );
    check_solutions(
        "multiply",
        &[102, 3],
        r"603;\boxed{306}",
        r"2*3+0:06,0*3+0:00,1*3+0:03,\boxed{306}",
    );
    check_solutions(
        "add",
        &[473, 829, 164],
        r"6641;\boxed{1466}",
        r"3+9+4+0:16,7+2+6+1:16,4+8+1+1:14,\boxed{1466}",
    );
    check_solutions(
        "add",
        &[999, 999, 999],
        r"7992;\boxed{2997}",
        r"9+9+9+0:27,9+9+9+2:29,9+9+9+2:29,\boxed{2997}",
    );
    check_solutions(
        "linear",
        &[6, 7, 28_423],
        r"28416;\boxed{4736}",
        r"28423-7:28416,28/6:4r4,44/6:7r2,21/6:3r3,36/6:6r0,\boxed{4736}",
    );
    // The first column has one digit, and a quotient's digit is 0.
    check_solutions(
        "linear",
        &[4, 9, 829],
        r"820;\boxed{205}",
        r"829-9:820,08/4:2r0,02/4:0r2,20/4:5r0,\boxed{205}",
    );
}

fn rng(number: u64) -> CounterRng {
    CounterRng::new(
        11,
        RngStream::Task,
        RngCounter { step: 99, prompt: number, ..RngCounter::default() },
    )
}

/// Every problem of the tests: some hundreds per level of every family, all levels.
fn many_problems() -> impl Iterator<Item = (&'static Family, Problem)> {
    FAMILIES.iter().flat_map(|family| {
        (family.levels.0..=family.levels.1).flat_map(move |level| {
            let mut rng = rng(u64::from(level));
            (0..600).map(move |_| (family, (family.problem)(level, &mut rng)))
        })
    })
}

fn number(text: &str) -> BigUint {
    assert!(text == "0" || !text.starts_with('0'), "{text:?} has a leading zero");
    text.parse().unwrap()
}

/// The true answer, from the text of the prompt alone.
fn answer_of(prompt: &str) -> BigUint {
    if let Some((left, rest)) = prompt.split_once("*x+") {
        let (constant, rest) = rest.split_once('=').unwrap();
        let right = number(rest.strip_suffix(";x=?").unwrap());
        let solution = (&right - number(constant)) / number(left);
        assert_eq!(&solution * number(left) + number(constant), right, "{prompt}");
        return solution;
    }
    let asked = prompt.strip_suffix("=?").unwrap();
    match asked.split_once('*') {
        Some((a, b)) => number(a) * number(b),
        None => asked.split('+').map(number).sum(),
    }
}

fn in_box(text: &str) -> &str {
    text.rsplit_once("\\boxed{").unwrap().1.strip_suffix('}').unwrap()
}

#[test]
fn answers_and_boxes_are_true() {
    let mut count = 0;
    for (family, problem) in many_problems() {
        let truth = answer_of(&problem.prompt);
        assert_eq!(number(&problem.answer), truth, "{problem:?}");
        assert_eq!(number(in_box(&family.concise(&problem))), truth, "{problem:?}");
        assert_eq!(number(in_box(&family.teacher(&problem))), truth, "{problem:?}");
        count += 1;
    }
    assert_eq!(count, 600 * (9 + 7 + 7));
}

#[test]
fn levels_are_numbers_of_digits() {
    for (_, problem) in many_problems() {
        let digits = match problem.family {
            "linear" => problem.answer.len(),
            _ => problem.prompt.find(['*', '+']).unwrap(),
        };
        assert_eq!(digits as u32, problem.level, "{problem:?}");
    }
}

/// The concise style's part before the box, against the answer and the prompt.
#[test]
fn concise_steps_are_true() {
    for (family, problem) in many_problems() {
        let text = family.concise(&problem);
        let (steps, rest) = text.split_once(';').unwrap();
        assert_eq!(rest, format!("\\boxed{{{}}}", problem.answer));
        if problem.family == "linear" {
            let (factor, _) = problem.prompt.split_once('*').unwrap();
            assert_eq!(number(steps), number(factor) * answer_of(&problem.prompt), "{problem:?}");
        } else {
            assert_eq!(steps.chars().rev().collect::<String>(), problem.answer, "{problem:?}");
        }
    }
}

/// Every column: its digits come from the prompt, its carry from the column before, its result is
/// right, and the results make the answer.
#[test]
fn teacher_steps_are_true() {
    for (family, problem) in many_problems() {
        let text = family.teacher(&problem);
        let mut steps: Vec<&str> = text.split(',').collect();
        assert_eq!(steps.pop().unwrap(), format!("\\boxed{{{}}}", problem.answer));
        let result: String = match problem.family {
            "linear" => linear_columns(&problem, &steps),
            _ => upward_columns(&problem, &steps),
        };
        assert_eq!(result, problem.answer, "{problem:?}: {text}");
    }
}

/// Checks the columns of `multiply` and `add` and returns the number they make.
fn upward_columns(problem: &Problem, steps: &[&str]) -> String {
    let asked = problem.prompt.strip_suffix("=?").unwrap();
    let (terms, factor): (Vec<&str>, Option<u32>) = match asked.split_once('*') {
        Some((number, factor)) => (vec![number], Some(factor.parse().unwrap())),
        None => (asked.split('+').collect(), None),
    };
    assert_eq!(steps.len(), terms[0].len(), "{problem:?}");
    let mut carry = 0;
    let mut upwards = String::new();
    for (place, step) in steps.iter().enumerate() {
        let digits: Vec<u32> = terms
            .iter()
            .map(|term| u32::from(term.as_bytes()[term.len() - 1 - place] - b'0'))
            .collect();
        let (left, total) = match factor {
            Some(factor) => (format!("{}*{factor}+{carry}", digits[0]), digits[0] * factor + carry),
            None => (
                format!("{}+{}+{}+{carry}", digits[0], digits[1], digits[2]),
                digits.iter().sum::<u32>() + carry,
            ),
        };
        assert_eq!(*step, format!("{left}:{total:02}"), "{problem:?}");
        carry = total / 10;
        upwards += &(total % 10).to_string();
    }
    if carry > 0 {
        upwards += &carry.to_string();
    }
    upwards.chars().rev().collect()
}

/// Checks the columns of `linear` and returns the quotient they make.
fn linear_columns(problem: &Problem, steps: &[&str]) -> String {
    let (difference, dividend) = steps[0].split_once(':').unwrap();
    let (right, constant) = difference.split_once('-').unwrap();
    let factor = problem.prompt.split_once('*').unwrap().0;
    assert_eq!(problem.prompt, format!("{factor}*x+{constant}={right};x=?"));
    assert_eq!(number(dividend), number(right) - number(constant));
    assert_eq!(steps.len() - 1, problem.level as usize);
    let mut digits = dividend[dividend.len() - (steps.len() - 1)..].chars();
    let mut head = number(&dividend[..=dividend.len() - (steps.len() - 1)]).to_string();
    head.pop();
    let mut carried: u32 = if head.is_empty() { 0 } else { head.parse().unwrap() };
    let factor: u32 = factor.parse().unwrap();
    let mut quotient = String::new();
    for step in &steps[1..] {
        let value = 10 * carried + digits.next().unwrap().to_digit(10).unwrap();
        carried = value % factor;
        assert_eq!(
            *step,
            format!("{value:02}/{factor}:{}r{carried}", value / factor),
            "{problem:?}"
        );
        quotient += &(value / factor).to_string();
    }
    assert_eq!(carried, 0, "{problem:?}");
    quotient
}

#[test]
fn levels_outside_are_refused() {
    for family in FAMILIES {
        assert!(family.check_level(family.levels.0 - 1).is_err());
        assert!(family.check_level(family.levels.1 + 1).is_err());
        assert!(problems(0, family, 99, Split::Train, 1).is_err());
    }
    let message = find_family("add").unwrap().check_level(8).unwrap_err().to_string();
    assert_eq!(message, "family `add` has no level 8, expected 1 to 7");
    assert_eq!(
        find_family("gcd").unwrap_err().to_string(),
        "unknown family `gcd`, expected one of: multiply, add, linear"
    );
}

// Splits and sets.

#[test]
fn splits_have_their_shares() {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut prompts = HashSet::new();
    for (_, problem) in many_problems().filter(|(_, problem)| problem.level >= 5) {
        if prompts.insert(problem.prompt.clone()) {
            *counts.entry(split_of(&problem.prompt).name()).or_default() += 1;
        }
    }
    let total = prompts.len() as f64;
    for (split, share) in
        [("pretrain", 0.80), ("train", 0.10), ("development", 0.05), ("held-out", 0.05)]
    {
        let measured = f64::from(counts[split]) / total;
        let deviation = (share * (1.0 - share) / total).sqrt();
        assert!((measured - share).abs() < 4.0 * deviation, "{split}: {measured}");
    }
}

/// The split of these prompts never changes: published base models hang on it.
#[test]
fn splits_never_move() {
    let prompts = (0..24)
        .map(|number| format!("{}*7=?", 100_000 + number))
        .chain(["473+829+164=?".to_owned()]);
    let table: String =
        prompts.map(|prompt| [&prompt, " ", split_of(&prompt).name(), "\n"].concat()).collect();
    expect![[r"
        100000*7=? train
        100001*7=? pretrain
        100002*7=? pretrain
        100003*7=? pretrain
        100004*7=? held-out
        100005*7=? pretrain
        100006*7=? pretrain
        100007*7=? train
        100008*7=? pretrain
        100009*7=? pretrain
        100010*7=? pretrain
        100011*7=? pretrain
        100012*7=? pretrain
        100013*7=? pretrain
        100014*7=? pretrain
        100015*7=? train
        100016*7=? pretrain
        100017*7=? train
        100018*7=? pretrain
        100019*7=? pretrain
        100020*7=? pretrain
        100021*7=? train
        100022*7=? pretrain
        100023*7=? pretrain
        473+829+164=? pretrain
    "]]
    .assert_eq(&table);
}

#[test]
fn every_level_has_pretraining_problems() {
    for family in FAMILIES {
        for level in family.levels.0..=family.levels.1 {
            assert_eq!(problems(0, family, level, Split::Pretrain, 40).unwrap().len(), 40);
        }
    }
}

#[test]
fn problems_are_distinct_of_their_split_and_a_prefix_of_more() {
    let family = find_family("multiply").unwrap();
    let more = problems(3, family, 6, Split::Train, 300).unwrap();
    let distinct: HashSet<&str> = more.iter().map(|problem| problem.prompt.as_str()).collect();
    assert_eq!(distinct.len(), 300);
    assert!(more.iter().all(|problem| split_of(&problem.prompt) == Split::Train));
    assert_eq!(problems(3, family, 6, Split::Train, 100).unwrap(), more[..100]);
    assert_ne!(problems(4, family, 6, Split::Train, 100).unwrap(), more[..100]);
}

#[test]
fn a_level_that_is_used_up_is_an_error_not_a_loop() {
    let family = find_family("multiply").unwrap();
    let all = (1..10).flat_map(|a| (2..10).map(move |b| format!("{a}*{b}=?")));
    let held_out = all.filter(|prompt| split_of(prompt) == Split::HeldOut).count();
    let message = problems(0, family, 1, Split::HeldOut, 73).unwrap_err().to_string();
    assert_eq!(
        message,
        format!(
            "family `multiply` level 1: expected 73 distinct held-out problems, found {held_out}"
        )
    );
}

fn hard_set(teacher_coverage: f64) -> TaskSet {
    TaskSet {
        seed: 5,
        levels: vec![("multiply".into(), 6), ("add".into(), 5), ("linear".into(), 5)],
        split: Split::Train,
        count: 640,
        teacher_coverage,
        teacher_steps: TeacherSteps::Exact,
    }
}

#[test]
fn teachers_cover_the_share_that_was_asked_for() {
    let with_teacher = |coverage: f64| -> Vec<String> {
        let set = make_set(&hard_set(coverage)).unwrap();
        assert_eq!(set.examples.len(), 640);
        let covered = set.examples.into_iter().filter(|example| !example.teachers.is_empty());
        covered.map(|example| example.id).collect()
    };
    assert_eq!(with_teacher(0.0).len(), 0);
    assert_eq!(with_teacher(1.0).len(), 640);
    let quarter = with_teacher(0.25);
    // 214, 213 and 213 problems: 53.5, 53.25 and 53.25, each rounded.
    assert_eq!(quarter.len(), 54 + 53 + 53);
    let half: HashSet<String> = with_teacher(0.5).into_iter().collect();
    assert!(
        quarter.iter().all(|id| half.contains(id)),
        "more coverage keeps the solutions of less"
    );
}

/// A style that few problems can be finished in is on as many problems as any other.
#[test]
fn imperfect_teachers_cover_as_many_problems() {
    let count = |teacher_steps, teacher_coverage| {
        let mut set = TaskSet { teacher_steps, ..hard_set(teacher_coverage) };
        set.levels[2].1 = 4;
        let set = make_set(&set).unwrap();
        set.examples.iter().filter(|it| !it.teachers.is_empty()).count()
    };
    assert_eq!(count(TeacherSteps::Repeated, 0.25), 54 + 53 + 53);
    assert_eq!(count(TeacherSteps::Flawed, 0.25), 54 + 53 + 53);
    let two = make_set(&TaskSet { teacher_steps: TeacherSteps::Two, ..hard_set(0.25) }).unwrap();
    let both = two.examples.iter().filter(|it| it.teachers.len() == 2);
    assert!(both.clone().all(|it| it.teachers[0] != it.teachers[1]));
    assert_eq!(both.count(), 54 + 53 + 53);
    // 652, 526 and 560 of a thousand, of 214, 213 and 213.
    let all = count(TeacherSteps::Repeated, 1.0);
    assert!((340..=400).contains(&all), "{all}");
}

#[test]
fn sets_take_turns_and_name_their_examples() {
    let set = make_set(&hard_set(0.25)).unwrap();
    let ids: Vec<&str> = set.examples[..4].iter().map(|example| example.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "multiply-6-train-00000",
            "add-5-train-00000",
            "linear-5-train-00000",
            "multiply-6-train-00001"
        ]
    );
    let distinct: HashSet<&str> = set.examples.iter().map(|example| example.id.as_str()).collect();
    assert_eq!(distinct.len(), 640);
    assert_eq!(set, make_set(&hard_set(0.25)).unwrap());
    for coverage in [-0.1, 1.1, f64::NAN] {
        assert!(make_set(&hard_set(coverage)).is_err(), "{coverage}");
    }
    let nothing = TaskSet { levels: vec![], ..hard_set(0.0) };
    assert_eq!(make_set(&nothing).unwrap().examples.len(), 0);
}

#[test]
fn mini6_is_the_trained_level_and_the_one_below_and_disjoint_from_everything_trained_on() {
    let levels: Vec<(&str, u32)> = MINI6.iter().map(|set| (set.family, set.level)).collect();
    let asked = FAMILIES.iter().flat_map(|family| {
        let [trained, _] = family.hard_levels;
        [(family.name, trained - 1), (family.name, trained)]
    });
    assert_eq!(levels, asked.collect::<Vec<_>>());

    let mut trained: HashSet<String> = HashSet::new();
    let corpus = Corpus::new(1, &recommended_mixture()).unwrap();
    trained.extend((0..20_000).map(|index| corpus.document(index).problem.prompt));
    for seed in 0..3 {
        let set = TaskSet { seed, ..hard_set(0.0) };
        trained.extend(make_set(&set).unwrap().examples.into_iter().map(|example| example.problem));
    }
    for set in MINI6 {
        let examples = set_of(set.family, set.level, Split::HeldOut, 192).unwrap().examples;
        assert_eq!(examples.len(), 192);
        for example in examples {
            assert_eq!(split_of(&example.problem), Split::HeldOut);
            assert!(!trained.contains(&example.problem), "{}", example.problem);
        }
    }
}

// The corpus.

#[test]
fn documents_are_pure_functions_of_seed_and_index() {
    let corpus = Corpus::new(1, &recommended_mixture()).unwrap();
    let show = |document: Document| format!("{}{}\n", document.prompt, document.response);
    let first: String = (0..4).map(|index| show(corpus.document(index))).collect();
    expect![[r"
        <|im_start|>user
        6*x+1=343;x=?<|im_end|>
        <|im_start|>assistant
        342;\boxed{57}<|im_end|>
        <|im_start|>user
        7+2+8=?<|im_end|>
        <|im_start|>assistant
        7+2+8+0:17,\boxed{17}<|im_end|>
        <|im_start|>user
        39*6=?<|im_end|>
        <|im_start|>assistant
        9*6+0:54,3*6+5:23,\boxed{234}<|im_end|>
        <|im_start|>user
        120+908+318=?<|im_end|>
        <|im_start|>assistant
        0+8+8+0:16,2+0+1+1:04,1+9+3+0:13,\boxed{1346}<|im_end|>
    "]]
    .assert_eq(&first);
    assert_eq!(corpus.document(3), Corpus::new(1, &recommended_mixture()).unwrap().document(3));
    assert_ne!(corpus.document(3), Corpus::new(2, &recommended_mixture()).unwrap().document(3));
}

#[test]
fn corpus_follows_its_mixture() {
    let mixture = recommended_mixture();
    let corpus = Corpus::new(9, &mixture).unwrap();
    let mut counts: BTreeMap<(&str, u32), (f64, f64)> = BTreeMap::new();
    let total = 40_000;
    for index in 0..total {
        let Document { problem, style, .. } = corpus.document(index);
        assert_eq!(split_of(&problem.prompt), Split::Pretrain);
        let (documents, teachers) = counts.entry((problem.family, problem.level)).or_default();
        *documents += 1.0;
        *teachers += f64::from(u8::from(style == Style::Teacher));
    }
    let levels: usize = mixture.families.iter().map(|part| part.level_weights.len()).sum();
    assert_eq!(counts.len(), levels);
    let shares: f64 = mixture.families.iter().map(|part| part.share).sum();
    for part in &mixture.families {
        let weights: f64 = part.level_weights.iter().sum();
        for (level, (weight, teacher_share)) in
            (1..).zip(part.level_weights.iter().zip(&part.teacher_shares))
        {
            let (documents, teachers) = counts[&(part.family.as_str(), level)];
            let weight = part.share / shares * weight / weights;
            let within = |got: f64, share: f64, n: f64| {
                (got - share * n).abs() < 4.5 * (n * share * (1.0 - share)).sqrt()
            };
            assert!(
                within(documents, weight, total as f64),
                "{} {level}: {documents}",
                part.family
            );
            assert!(
                within(teachers, *teacher_share, documents),
                "{} {level}: {teachers} of {documents}",
                part.family
            );
        }
    }
}

#[test]
fn mixtures_that_cannot_be_are_refused() {
    let part = |family: &str, share, level_weights: &[f64], teacher_shares: &[f64]| FamilyMixture {
        family: family.to_owned(),
        share,
        level_weights: level_weights.to_vec(),
        teacher_shares: teacher_shares.to_vec(),
    };
    let refused = |families: Vec<FamilyMixture>| {
        Corpus::new(0, &Mixture { families }).unwrap_err().to_string()
    };
    let nothing = "sum of the shares in the mixture: expected a positive finite number, got 0";
    let cases = [
        (vec![], nothing),
        (vec![part("add", 0.0, &[1.0], &[0.5])], nothing),
        (
            vec![part("add", -1.0, &[1.0], &[0.5])],
            "share of `add` in the mixture: expected a finite number ≥ 0, got -1",
        ),
        (
            vec![part("add", 1.0, &[1.0, 1.0], &[0.5])],
            "number of teacher_shares of `add` in the mixture: expected as many as level_weights, got 1",
        ),
        (
            vec![part("add", 1.0, &[1.0, f64::NAN], &[0.5, 0.5])],
            "level_weights of `add` in the mixture: expected finite numbers ≥ 0, got NaN",
        ),
        (
            vec![part("add", 1.0, &[0.0], &[0.5])],
            "sum of level_weights of `add` in the mixture: expected a positive finite number, got 0",
        ),
        (
            vec![part("add", 1.0, &[1.0], &[1.5])],
            "teacher_shares of `add` in the mixture: expected numbers from 0 to 1, got 1.5",
        ),
        (vec![part("add", 1.0, &[], &[])], "family `add` has no level 0, expected 1 to 7"),
        (
            vec![part("add", 1.0, &[1.0; 8], &[0.5; 8])],
            "family `add` has no level 8, expected 1 to 7",
        ),
        (
            vec![part("gcd", 1.0, &[1.0], &[0.5])],
            "unknown family `gcd`, expected one of: multiply, add, linear",
        ),
    ];
    for (families, message) in cases {
        assert_eq!(refused(families), message);
    }
}

#[test]
fn mixtures_of_recipes_know_their_keys() {
    let text = r#"{"families": [{"family": "add", "share": 1, "level_weights": [0, 1], "teacher_shares": [0, 1]}]}"#;
    let mixture: Mixture = serde_json::from_str(text).unwrap();
    let document = Corpus::new(0, &mixture).unwrap().document(0);
    assert_eq!(
        (document.problem.family, document.problem.level, document.style),
        ("add", 2, Style::Teacher)
    );
    let misspelt = text.replace("teacher_shares", "teacher_share");
    assert!(serde_json::from_str::<Mixture>(&misspelt).is_err());
    assert_eq!(serde_json::from_str::<Split>("\"held-out\"").unwrap(), Split::HeldOut);
}

// The tokenizer.

fn tokenizer() -> Tokenizer {
    Tokenizer::from_file(hapo_testing::repository("models/base/tokenizer.json")).unwrap()
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec()
}

#[test]
fn vocabulary_is_what_the_file_says() {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.get_vocab_size(true), 64);
    for id in 0..64 {
        let token = tokenizer.decode(&[id], false).unwrap();
        assert_eq!(encode(&tokenizer, &token), [id], "{token:?}");
    }
}

#[test]
fn chatml_words_and_the_box_are_single_tokens() {
    let tokenizer = tokenizer();
    let text = "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n4*6=?<|im_end|>\n<|im_start|>assistant\n\\boxed{24}";
    let tokens = encode(&tokenizer, text);
    assert_eq!(tokens, [1, 4, 8, 2, 8, 1, 5, 8, 14, 22, 16, 24, 25, 2, 8, 1, 6, 8, 7, 12, 14, 31],);
    assert_eq!(tokenizer.decode(&tokens, false).unwrap(), text);
    assert_eq!(tokenizer.decode(&tokens[18..], true).unwrap(), "\\boxed{24}");
}

#[test]
fn every_generated_text_comes_back() {
    let tokenizer = tokenizer();
    let template = find_template("chatml").unwrap();
    for (family, problem) in many_problems() {
        for solution in [family.concise(&problem), family.teacher(&problem)] {
            let text = render(template, &problem.prompt) + &solution + "<|im_end|>";
            let tokens = encode(&tokenizer, &text);
            assert!(!tokens.contains(&3), "{text}");
            assert_eq!(tokenizer.decode(&tokens, false).unwrap(), text);
        }
    }
}

#[test]
fn bytes_outside_become_unk() {
    let tokenizer = tokenizer();
    assert_eq!(
        encode(&tokenizer, "aÄ✓\u{0}b😀\\box"),
        [38, 3, 3, 3, 3, 3, 3, 39, 3, 3, 3, 3, 37, 39, 52, 61]
    );
    assert_eq!(encode(&tokenizer, ""), [] as [u32; 0]);
}

#[test]
fn files_of_the_tokenizer_are_valid_json_with_the_template_of_chatml() {
    let read = |name: &str| -> serde_json::Value {
        let text = std::fs::read(hapo_testing::repository(&format!("models/base/{name}")));
        serde_json::from_slice(&text.unwrap()).unwrap()
    };
    let config = read("tokenizer_config.json");
    assert_eq!(config["eos_token"], "<|im_end|>");
    assert!(
        config["chat_template"]
            .as_str()
            .unwrap()
            .ends_with("'<|im_start|>assistant\n' }}{% endif %}")
    );
    let file = read("tokenizer.json");
    assert_eq!(file["model"]["vocab"].as_object().unwrap().len(), 64);
    assert_eq!(find_template("chatml").unwrap().end_of_turn, EndOfTurn::Token("<|im_end|>"));
}

fn check_lengths(family: &str, expected: &Expect) {
    let tokenizer = tokenizer();
    let template = find_template("chatml").unwrap();
    let mut table = String::new();
    for (family, problem) in many_problems().filter(|(it, _)| it.name == family) {
        let length = |text: &str| encode(&tokenizer, text).len() as u32;
        let prompt = length(&render(template, &problem.prompt));
        let concise = length(&(family.concise(&problem) + "<|im_end|>"));
        let teacher = length(&(family.teacher(&problem) + "<|im_end|>"));
        let n = problem.level;
        let most = match family.name {
            "multiply" => [n + 12, 2 * n + 6, 10 * n + 4],
            "add" => [3 * n + 12, 2 * n + 6, 12 * n + 4],
            _ => [n + 19, 2 * n + 5, 12 * n + 9],
        };
        assert!(
            prompt <= most[0] && concise <= most[1] && teacher <= most[2],
            "{problem:?}: {prompt} {concise} {teacher}"
        );
        if family.hard_levels.contains(&n) {
            assert!(teacher as usize <= RESPONSE_LIMIT && prompt + teacher <= 128);
            let line =
                format!("level {n}: prompt {} concise {} teacher {}\n", most[0], most[1], most[2]);
            if [prompt, concise, teacher] == most && !table.contains(&line) {
                table += &line;
            }
        }
    }
    expected.assert_eq(&table);
}

/// The table in the module's documentation: upper bounds at every level, reached at the hard ones.
#[test]
fn token_budget_is_as_documented() {
    check_lengths(
        "multiply",
        &expect![[r"
        level 6: prompt 18 concise 18 teacher 64
        level 7: prompt 19 concise 20 teacher 74
    "]],
    );
    check_lengths(
        "add",
        &expect![[r"
        level 5: prompt 27 concise 16 teacher 64
        level 6: prompt 30 concise 18 teacher 76
    "]],
    );
    check_lengths(
        "linear",
        &expect![[r#"
            level 4: prompt 23 concise 13 teacher 57
            level 5: prompt 24 concise 15 teacher 69
        "#]],
    );
}
