//! The chat templates of `testdata/chat_templates` against transformers' rendering of them, which
//! `render.py` there has recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hapo_data::{ChatTemplate, Message, Rendering};
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    unix_time: i64,
    special_tokens: BTreeMap<String, String>,
    dialogues: BTreeMap<String, Vec<Message>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    dialogue: String,
    add_generation_prompt: bool,
    variables: serde_json::Map<String, serde_json::Value>,
    text: Option<String>,
    raises: Option<String>,
}

#[test]
fn renderings_are_those_of_transformers_byte_for_byte() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/chat_templates");
    let recorded = std::fs::read(folder.join("expected.json")).unwrap();
    let recorded: Recorded = serde_json::from_slice(&recorded).unwrap();
    let mut raised = 0;
    let mut templates = BTreeSet::new();
    for case in &recorded.cases {
        let place = format!(
            "{}, {}, {}, {:?}",
            case.template, case.dialogue, case.add_generation_prompt, case.variables
        );
        templates.insert(&case.template);
        let source =
            std::fs::read_to_string(folder.join(format!("{}.jinja", case.template))).unwrap();
        let tokens = recorded.special_tokens.clone();
        let template = ChatTemplate::new(&case.template, &source, tokens).unwrap();
        let rendering = Rendering {
            add_generation_prompt: case.add_generation_prompt,
            variables: case.variables.clone(),
            unix_time: recorded.unix_time,
        };
        let rendered = template.render(&recorded.dialogues[&case.dialogue], &rendering);
        match (&case.text, &case.raises) {
            (Some(text), None) => assert_eq!(&rendered.unwrap(), text, "{place}"),
            (None, Some(raises)) => {
                raised += 1;
                let message = rendered.unwrap_err().to_string();
                assert!(
                    message.ends_with(&format!("the template refuses this dialogue: {raises}")),
                    "{place}: {message}"
                );
                assert!(
                    message.starts_with(&format!("chat template of {}, line ", case.template)),
                    "{place}: {message}"
                );
            }
            _ => panic!("{place}: recorded as neither text nor error"),
        }
    }
    assert!(templates.len() >= 9 && raised >= 8, "{templates:?} {raised}");
}
