//! Extraction: the text of a completion that a grader is shown.

use hapo_verify::{
    AnswerForm, BENCHMARK, EXACT, Extracting, Extraction, FORMAT, GRADERS, Gold, Grader, MATH, OAT,
    Reason, Verdict, find_answer,
};

fn verdict(grader: &dyn Grader, extraction: Extraction, gold: &str, text: &str) -> Verdict {
    Gold::new(&Extracting::new(grader, extraction), gold).unwrap().judge(text).verdict
}

/// Verdicts of `math` with `boxed` and `announced`.
fn by_rule(gold: &str, text: &str) -> String {
    let rules = [Extraction::Boxed, Extraction::Announced];
    rules.map(|it| verdict(&MATH, it, gold, text).name()).join(" ")
}

#[test]
fn the_last_number_of_a_text_is_no_answer() {
    // What a 135M model was paid for: cut off, no box, the last number happens to be the gold answer.
    for (gold, text) in [
        ("25", "…which brings the total runtime to 25% of a multi"),
        ("90", "it is a shift of 90 because"),
        ("4", "we add 4 + "),
        ("4", "so 2 * 3 = 6. 4. Now we can add"),
        ("5", "the value is 5"),
    ] {
        assert_eq!(by_rule(gold, text), "unparsable unparsable", "{text}");
        assert!(verdict(&MATH, Extraction::Any, gold, text).is_correct(), "{text}");
    }
}

#[test]
fn an_answer_is_a_closed_box_or_announced() {
    for (gold, text, expected) in [
        ("5", r"so \boxed{5}", "correct correct"),
        ("1/2", "The answer is 1/2<|im_end|>", "unparsable correct"),
        ("5", "#### 5</s></s>\n", "unparsable correct"),
        ("5", r"\boxed{4} is too small. Take \boxed{5}. I checked 7 values.", "correct correct"),
        ("5", r"\fbox{5} or \boxed {5}", "correct correct"),
        ("1,2", r"$\boxed{1}$ and $\boxed{2}$", "correct correct"),
        ("5", r"\boxed{4}. The answer is 5.", "wrong wrong"),
        ("5", r"\boxed{5", "unparsable unparsable"),
        ("5", r"so \boxed 5", "correct correct"),
        ("5", "so \\boxed 5\u{a0}cm", "correct correct"),
        ("5", r"The answer is 5, so \boxed{", "unparsable correct"),
        ("5", "The answer is 5. I checked 7 values.", "unparsable correct"),
        ("5", "**Final Answer:** 5", "unparsable correct"),
        ("5", "Final answer:\n\n5 apples", "unparsable correct"),
        ("1/2", "The final answer is $\\frac{1}{2}$. I hope it is correct.", "unparsable correct"),
        (
            "1/2",
            "Therefore the answer is\n\\[\n\\frac{1}{2}\n\\]\nfor 3 of them",
            "unparsable correct",
        ),
        ("7", "The answer to the question of how many is 7.", "unparsable correct"),
        ("7", "answer = 7", "unparsable correct"),
        ("7", "The answer is 6. No: the answer is 7.", "unparsable correct"),
        ("7", "The answer is not 7", "unparsable wrong"),
        ("7", "Answer choices: 5, 6, 7", "unparsable unparsable"),
        ("7", "What is the answer? We see 7", "unparsable unparsable"),
        ("7", "The answer is: ", "unparsable unparsable"),
        ("7", "<answer> 7 </answer>", "unparsable correct"),
        ("7", "<answer> 7", "unparsable unparsable"),
        ("42", "6 times 7\n#### 42\n", "unparsable correct"),
        ("42", "#### 42\nand so on", "unparsable correct"),
        ("1000", "#### 1,000 people in 3 days", "unparsable correct"),
    ] {
        assert_eq!(by_rule(gold, text), expected, "{text:?} against {gold}");
    }
}

#[test]
fn a_thought_holds_no_answer() {
    for (text, expected) in [
        (r"<think>\boxed{4}</think>\boxed{5}", "correct correct"),
        (r"<think>\boxed{5}</think>so it is", "unparsable unparsable"),
        // The prompt opened the thought.
        (r"so \boxed{4}</think>\boxed{5}", "correct correct"),
        (r"so \boxed{5}</think> done", "unparsable unparsable"),
        (r"\boxed{5}<think>is it?</think>", "correct correct"),
        (r"<think>\boxed{5}", "unparsable unparsable"),
        (r"<think>a<think>b</think>\boxed{4}</think>\boxed{5}", "correct correct"),
    ] {
        assert_eq!(by_rule("5", text), expected, "{text}");
    }
    let open = find_answer(r"<think>\boxed{5}", Extraction::Announced);
    assert_eq!(open, Err(Reason::UnclosedThink));
}

#[test]
fn every_grader_sees_the_answer_alone() {
    let announced = |grader: &dyn Grader, gold, text| {
        verdict(grader, Extraction::Announced, gold, text).is_correct()
    };
    assert!(announced(&EXACT, "red", "**Answer:** $red$."));
    assert!(announced(&EXACT, "red", r"\boxed{red}"));
    assert!(!announced(&EXACT, "red", "red"));
    assert!(announced(&OAT, "5", r"<think>\boxed{4}</think>\boxed{5}"));
    // A grader of the shape sees all of it.
    assert!(announced(&FORMAT, "tags", "<think>a</think><answer>b</answer>"));
    for grader in GRADERS.iter().filter(|it| it.reads_answers()) {
        let unread = verdict(*grader, Extraction::Announced, "B", "<think>\\boxed{B}");
        assert_eq!(unread, Verdict::Unparsable(Reason::UnclosedThink), "{}", grader.name());
    }
}

#[test]
fn the_form_of_an_answer_is_told() {
    let form = |text| find_answer(text, Extraction::Announced).map(|it| it.form);
    assert_eq!(form(r"\boxed{1}"), Ok(AnswerForm::Boxed));
    assert_eq!(form("the answer is 1"), Ok(AnswerForm::Announced));
    assert_eq!(form("1"), Err(Reason::NoAnswer));
    assert_eq!(form(r"\boxed{1"), Err(Reason::UnclosedBox));
}

/// Time grows with the text, not with its square.
#[test]
fn long_texts_end() {
    let repeated = [
        "answer",
        "answer:",
        "answer is ",
        "<answer>",
        "\\boxed{",
        "\\boxed{1}",
        "<think>",
        "</think>",
        "####\n",
        "the answer is\n",
    ];
    for it in repeated {
        let text = it.repeat(1_000_000 / it.len());
        for (_, rule) in Extraction::ALL {
            let _ = find_answer(&text, *rule);
        }
    }
}

#[test]
fn a_whole_text_is_the_answer_where_it_states_none() {
    let whole = |gold, text| verdict(&BENCHMARK, Extraction::Whole, gold, text).name();
    assert_eq!(whole("42", "42"), "correct");
    assert_eq!(whole("42", r"\boxed{42}"), "correct");
    assert_eq!(whole("42", r"\boxed{The answer is 42.}"), "correct");
    assert_eq!(whole("5 meters", "5 feet"), "wrong");
    assert_ne!(whole("42", "I cannot solve this. It is certainly not 42, though."), "correct");
}

/// Thoughts of Magistral, Seed and gpt-oss.
#[test]
fn a_thought_has_many_tags() {
    for text in [
        r"[THINK]\boxed{4}[/THINK]\boxed{5}",
        "<thinking>the answer is 4</thinking>The answer is 5.",
        r"<seed:think>\boxed{4}</seed:think>\boxed{5}",
        r"<|channel|>analysis<|message|>\boxed{4}<|end|><|start|>assistant<|channel|>final<|message|>\boxed{5}<|return|>",
    ] {
        assert_eq!(by_rule("5", text).split(' ').next_back(), Some("correct"), "{text}");
    }
    assert_eq!(by_rule("5", r"[THINK]\boxed{5}"), "unparsable unparsable");
}
