//! `TensorBoard` event files beside `metrics.jsonl`.
//!
//! An event file is a list of records, each a protobuf `Event` between its length and checksums
//! (`tensorflow/core/lib/io/record_writer.h`, `tensorflow/core/util/event.proto`). Scalars, texts and the recipe as
//! hyperparameters are all that is written, so the messages are encoded by hand; a protobuf crate would be larger
//! than this file. A resumed run begins a file of its own and says from which step it counts, and the reader
//! drops what older files hold of that step and later ones.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::unix_seconds;
use crate::Result;
use hapo_core::Refusal;
use hapo_run::{Metrics, recipe_entries, recipe_value};

#[derive(Debug)]
pub(crate) struct Events {
    file: File,
    path: PathBuf,
}

impl Events {
    /// Begins an event file for a run that has done `steps_done` steps by a resolved recipe.
    pub(crate) fn open(run_dir: &Path, steps_done: u64, recipe: &str) -> Result<Self> {
        let seconds = unix_seconds() as u64;
        // Names sort by age; two starts within a second need different ones.
        let path = (0..1000)
            .map(|n| run_dir.join(format!("events.out.tfevents.{seconds:010}.hapo.{n}")))
            // On EIO the name counts as free, and one that is taken is not opened below.
            .find(|it| !it.exists())
            .unwrap_or_else(|| run_dir.join("events.out.tfevents"));
        let file = OpenOptions::new().create_new(true).append(true).open(&path);
        let file = file.map_err(Refusal::io("create", &path))?;
        let mut it = Self { file, path };
        it.write(0, 3, b"brain.Event:2")?;
        // SessionLog { status: START }: what older files hold from this step on is stale.
        it.write(steps_done + 1, 7, &[0x08, 1])?;
        it.write(0, 5, &hyperparameters(recipe))?;
        Ok(it)
    }

    pub(crate) fn append(&mut self, step: u64, metrics: &Metrics) -> Result<()> {
        let scalar = |(name, value): (&str, f64)| {
            let mut one = message(&[(1, name.as_bytes())]);
            one.push(0x15);
            one.extend((value as f32).to_le_bytes());
            message(&[(1, &one)])
        };
        let summary: Vec<_> = metrics.iter().filter(|it| it.0 != "step").flat_map(scalar).collect();
        self.write(step, 5, &summary)
    }

    pub(crate) fn append_text(&mut self, step: u64, name: &str, text: &str) -> Result<()> {
        // Tensor { dtype: DT_STRING, shape: [1], string_val: [text] }.
        let mut tensor = vec![0x08, 7, 0x12, 4, 0x12, 2, 0x08, 1];
        tensor.extend(message(&[(8, text.as_bytes())]));
        self.write(step, 5, &plugin_value(name, "text", &[], &tensor))
    }

    /// Appends an `Event { wall_time, step, .. }` with one more field.
    fn write(&mut self, step: u64, field: u8, bytes: &[u8]) -> Result<()> {
        let mut event = vec![0x09];
        event.extend(unix_seconds().to_le_bytes());
        event.push(0x10);
        varint(&mut event, step);
        event.extend(message(&[(field, bytes)]));
        self.file.write_all(&record(&event)).map_err(Refusal::io("write", &self.path))
    }
}

/// `Summary { value: [{ tag, metadata: { plugin_data: { plugin_name, content } }, tensor }] }`.
fn plugin_value(tag: &str, plugin: &str, content: &[u8], tensor: &[u8]) -> Vec<u8> {
    let metadata = message(&[(1, &message(&[(1, plugin.as_bytes()), (2, content)]))]);
    message(&[(1, &message(&[(1, tag.as_bytes()), (9, &metadata), (8, tensor)]))])
}

/// The recipe's entries as the session of the plugin for hyperparameters
/// (`tensorboard/plugins/hparams/plugin_data.proto`): `HParamsPluginData { session_start_info: { hparams } }`.
fn hyperparameters(recipe: &str) -> Vec<u8> {
    let mut session = Vec::new();
    // A resolved recipe can be read; without its entries the numbers are as good.
    for (key, toml) in recipe_entries(recipe).unwrap_or_default() {
        let number = |it: f64| [&[0x11][..], &it.to_le_bytes()].concat();
        let value = match recipe_value(&toml) {
            toml::Value::Integer(it) => number(it as f64),
            toml::Value::Float(it) => number(it),
            toml::Value::Boolean(it) => vec![0x20, u8::from(it)],
            toml::Value::String(it) => message(&[(3, it.as_bytes())]),
            other => message(&[(3, other.to_string().as_bytes())]),
        };
        session.extend(message(&[(1, &message(&[(1, key.as_bytes()), (2, &value)]))]));
    }
    let content = message(&[(3, &session)]);
    // Tensor { dtype: DT_FLOAT, shape: [1], float_val: [0] }: the plugin wants one and reads none.
    let tensor = [0x08, 1, 0x12, 4, 0x12, 2, 0x08, 1, 0x2a, 4, 0, 0, 0, 0];
    plugin_value("_hparams_/session_start_info", "hparams", &content, &tensor)
}

fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, bytes) in fields {
        out.push(field << 3 | 2);
        varint(&mut out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Length, its checksum, the data, their checksum.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = length.to_vec();
    out.extend(masked(crc32c(&length)).to_le_bytes());
    out.extend_from_slice(data);
    out.extend(masked(crc32c(data)).to_le_bytes());
    out
}

fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: a step has a few kilobytes.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_file_is_complete_records_with_the_scalars_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut events = Events::open(dir.path(), 6, "steps = 9\nname = \"a\"\n").unwrap();
        let mut metrics = Metrics::default();
        metrics.set("step", 7.0);
        metrics.set("reward/mean", 0.25);
        metrics.set("grad_norm", 3.0);
        events.append(7, &metrics).unwrap();
        events.append_text(7, "rollout", "**hi**").unwrap();
        let bytes = std::fs::read(&events.path).unwrap();
        let mut at = 0;
        let mut found = Vec::new();
        while at < bytes.len() {
            let word = |i: usize| u32::from_le_bytes(bytes[i..i + 4].try_into().unwrap());
            let n = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
            assert_eq!(word(at + 8), masked(crc32c(&bytes[at..at + 8])));
            let data = &bytes[at + 12..at + 12 + n];
            assert_eq!(word(at + 12 + n), masked(crc32c(data)));
            found.push(data[9..].to_vec());
            at += 16 + n;
        }
        assert_eq!(found[0], b"\x10\x00\x1a\x0dbrain.Event:2");
        assert_eq!(found[1], b"\x10\x07\x3a\x02\x08\x01");
        let mut expected = b"\x10\x07\x2a\x24".to_vec();
        expected.extend(b"\x0a\x12\x0a\x0breward/mean\x15");
        expected.extend(0.25_f32.to_le_bytes());
        expected.extend(b"\x0a\x10\x0a\x09grad_norm\x15");
        expected.extend(3.0_f32.to_le_bytes());
        expected[3] = (expected.len() - 4) as u8;
        assert_eq!(found[3], expected);
        let holds = |found: &[u8], text: &[u8]| found.windows(text.len()).any(|it| it == text);
        assert!(holds(&found[2], b"_hparams_/session_start_info"));
        assert!(holds(&found[2], b"\x0a\x05steps\x12\x09\x11\0\0\0\0\0\0\x22\x40"));
        assert!(holds(&found[2], b"\x0a\x04name\x12\x03\x1a\x01a"));
        assert!(holds(&found[4], b"\x42\x06**hi**"));
        // A second start within the second has a file of its own.
        let other = Events::open(dir.path(), 7, "").unwrap();
        assert_ne!(other.path, events.path);
    }
}
