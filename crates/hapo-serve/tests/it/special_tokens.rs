//! Special tokens: those in front of a prompt, and those in a completion's text.

use hapo_model::Tokenizer;
use hapo_sampler::ChatFormat;
use serde_json::{Value, json};

use crate::server::{COMPLETIONS, folder, load, settings, start_with};

/// A tokenizer that puts a token in front of every text and another one behind it.
fn with_bos(template: &str) -> ChatFormat {
    let path = folder().join("tokenizer.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let special = |text: &str| json!({"SpecialToken": {"id": text, "type_id": 0}});
    let sequence = |it: &str| json!({"Sequence": {"id": it, "type_id": 0}});
    let (bos, eos) = ("<|im_start|>", "<|endoftext|>");
    file["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [special(bos), sequence("A"), special(eos)],
        "pair": [sequence("A"), sequence("B")],
        "special_tokens": {
            bos: {"id": bos, "ids": [382], "tokens": [bos]},
            eos: {"id": eos, "ids": [381], "tokens": [eos]},
        },
    });
    let tokenizer = Tokenizer::from_bytes(&path, file.to_string().as_bytes()).unwrap();
    ChatFormat::new(tokenizer, hapo_data::find_template(template).unwrap(), &[383]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_begins_with_what_the_tokenizer_puts_in_front_once() {
    let plain = with_bos("none").tokenizer.encode("12*7=?").unwrap();
    let whole = [&[382][..], &plain].concat();
    assert_eq!(with_bos("none").prompt("12*7=?").unwrap(), whole);
    // A template that writes it begins with it once.
    let chatml = with_bos("chatml").prompt("1").unwrap();
    assert_eq!((chatml[0], chatml[1] == 382), (382, false));
    let client = start_with((load().0, with_bos("none")), settings()).await;
    let tokens = async |body: Value| client.ok("/tokenize", &body).await["tokens"].clone();
    assert_eq!(tokens(json!({"prompt": "12*7=?"})).await, json!(whole));
    assert_eq!(tokens(json!({"prompt": "<|im_start|>12*7=?"})).await, json!(whole));
    let without = json!({"prompt": "12*7=?", "add_special_tokens": false});
    assert_eq!(tokens(without).await, json!(plain));
    let turn = json!([{"role": "user", "content": "12*7=?"}]);
    assert_eq!(tokens(json!({"messages": turn})).await, json!(whole));
    let without = json!({"messages": turn, "add_special_tokens": false});
    assert_eq!(tokens(without).await, json!(plain));
    for (body, count) in [
        (json!({"prompt": "12*7=?", "max_tokens": 1}), whole.len()),
        (json!({"prompt": "12*7=?", "max_tokens": 1, "add_special_tokens": false}), plain.len()),
        // Tokens are taken as they are.
        (json!({"prompt": plain, "max_tokens": 1}), plain.len()),
    ] {
        assert_eq!(client.ok(COMPLETIONS, &body).await["usage"]["prompt_tokens"], count, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn special_tokens_are_left_out_of_a_text_or_written_out() {
    let client = start_with(load(), settings()).await;
    let hot = |more: Value| {
        let mut body = json!({"prompt": "7", "max_tokens": 120, "temperature": 100, "seed": 1,
            "ignore_eos": true, "logprobs": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let text = |answer: &Value| answer["choices"][0]["text"].as_str().unwrap().to_owned();
    let shown = client.ok(COMPLETIONS, &hot(json!({"skip_special_tokens": false}))).await;
    assert!(text(&shown).contains("<|"), "{shown}");
    // The same tokens, and another text; as elsewhere it is what is given where nothing is said.
    for more in [json!({}), json!({"skip_special_tokens": true})] {
        let answer = client.ok(COMPLETIONS, &hot(more.clone())).await;
        assert_eq!(answer["choices"][0]["logprobs"], shown["choices"][0]["logprobs"]);
        let streamed = client.stream(COMPLETIONS, &hot(json!({"stream": true}))).await;
        let streamed: String = streamed.iter().map(text).collect();
        assert_eq!(streamed, text(&answer));
        assert!(!text(&answer).contains("<|"), "{answer}");
    }
    // A special token that a request names as a stop string ends its text all the same.
    let first = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        .into_iter()
        .filter_map(|it| Some((text(&shown).find(it)?, it)))
        .min()
        .unwrap();
    let stopped = client.ok(COMPLETIONS, &hot(json!({"stop": first.1}))).await;
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert_eq!(text(&stopped), text(&shown)[..first.0]);
    assert!(text(&shown).starts_with(&text(&stopped)));
}
