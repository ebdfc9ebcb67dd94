//! One question and how its answer is sampled.

use serde_json::{Map, Value, json};

/// One question and how to draw its answer.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The model's name at the server.
    pub model: &'a str,
    /// The system turn, if any.
    pub system: Option<&'a str>,
    /// The user's turn.
    pub user: &'a str,
    /// Sampling temperature.
    pub temperature: f64,
    /// Nucleus mass; left out of the request at 1.
    pub top_p: f64,
    /// Longest answer in tokens; the server's own limit if `None`.
    pub max_tokens: Option<u64>,
    /// The seed that is sent along: a server that heeds it answers the same question the same way.
    pub seed: u64,
    /// Fields that are added to the request or replace those above; null removes a field.
    pub extra: &'a Map<String, Value>,
}

impl Question<'_> {
    /// The request's body.
    pub fn body(&self) -> Value {
        let mut messages = Vec::new();
        if let Some(it) = self.system {
            messages.push(json!({ "role": "system", "content": it }));
        }
        messages.push(json!({ "role": "user", "content": self.user }));
        let mut body = json!({
            "model": self.model, "messages": messages, "temperature": self.temperature, "seed": self.seed,
        });
        if self.top_p < 1.0 {
            body["top_p"] = json!(self.top_p);
        }
        if let Some(it) = self.max_tokens {
            body["max_tokens"] = json!(it);
        }
        for (field, value) in self.extra {
            match value {
                Value::Null => {
                    body.as_object_mut().expect("it was made as an object").remove(field);
                }
                _ => body[field] = value.clone(),
            }
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_fields_add_replace_and_remove() {
        let extra = json!({ "seed": null, "max_tokens": null, "max_completion_tokens": 9, "temperature": 0.1 });
        let question = Question {
            model: "m",
            system: Some("s"),
            user: "u",
            temperature: 0.7,
            top_p: 0.9,
            max_tokens: Some(5),
            seed: 3,
            extra: extra.as_object().unwrap(),
        };
        let expected = json!({
            "model": "m", "temperature": 0.1, "top_p": 0.9, "max_completion_tokens": 9,
            "messages": [{ "role": "system", "content": "s" }, { "role": "user", "content": "u" }],
        });
        assert_eq!(question.body(), expected);
    }
}
