//! Gold answers that are numbers: the row holds what a person would put into the box.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Decimal128Array, Float32Array, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use hapo_data::{Reading, Row, json_lines, open_all, open_reader};
use serde_json::json;

/// The answers of the rows of a file.
fn answers(bytes: impl Into<Vec<u8>>, name: &str) -> Vec<Result<String, String>> {
    let rows = open_reader(Cursor::new(bytes.into()), Path::new(name)).unwrap();
    let answer = |row| match row {
        Row::Good(example) => Ok(example.answer),
        Row::Bad(bad) => Err(bad.got),
    };
    rows.map(|row| answer(row.unwrap())).collect()
}

fn answer(json: &str) -> Result<String, String> {
    let line = format!("{{\"problem\": \"p\", \"answer\": {json}}}\n");
    answers(line, "rows.jsonl").remove(0)
}

#[test]
fn json_numbers_keep_their_digits_and_have_no_exponent() {
    for (json, expected) in [
        ("0.00001", "0.00001"),
        ("1e-05", "0.00001"),
        ("0.0000123", "0.0000123"),
        ("1e16", "10000000000000000"),
        ("1e22", "10000000000000000000000"),
        ("6.02e23", "602000000000000000000000"),
        ("100000000000000000000.0", "100000000000000000000"),
        ("18446744073709551616", "18446744073709551616"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("12345678901234567890123", "12345678901234567890123"),
        (
            "1234567890123456789012345678901234567890123",
            "1234567890123456789012345678901234567890123",
        ),
        ("142.0", "142"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0.1", "0.1"),
        ("-0.50", "-0.5"),
        ("0.12345678901234567890123", "0.12345678901234567890123"),
        ("123456789012345678901234.5e-2", "1234567890123456789012.345"),
        // Texts that are one number.
        ("\"1e-5\"", "0.00001"),
        ("\"6.02E23\"", "602000000000000000000000"),
        ("\"-1.50e+1\"", "-15"),
        ("\"12.5e-1\"", "1.25"),
        // Formulas stay as they are.
        ("\"2e-x\"", "2e-x"),
        ("\"e-5\"", "e-5"),
        ("\"3e\"", "3e"),
        ("\"1e99999\"", "1e99999"),
    ] {
        assert_eq!(answer(json).as_deref(), Ok(expected), "{json}");
    }
    assert!(answer("1e400").is_err(), "beyond every double");
}

#[test]
fn numbers_read_back_as_themselves() {
    // A linear congruence through the bit patterns of doubles.
    let mut bits = 1_u64;
    for _ in 0..10_000 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = f64::from_bits(bits);
        if !number.is_finite() {
            continue;
        }
        let digits = answer(&format!("{number:e}")).unwrap();
        assert!(!digits.contains(['e', 'E']), "{digits}");
        assert_eq!(digits.parse::<f64>().unwrap(), number);
    }
}

/// serde's numbers have 64 bits: what a double cannot say is a text of its digits.
#[test]
fn rows_as_json_keep_digits_beyond_doubles() {
    for (number, expected) in [
        ("12345678901234567890123", json!("12345678901234567890123")),
        ("0.12345678901234567890123", json!("0.12345678901234567890123")),
        ("18446744073709551615", json!(u64::MAX)),
        ("1e22", json!(1e22)),
        ("6.02e23", json!(6.02e23)),
        ("0.1", json!(0.1)),
        ("-2.50", json!(-2.5)),
        ("1e-7", json!(1e-7)),
        // A double in more decimals than it needs.
        ("0.10000000000000001", json!(0.1)),
        ("0.10000000000000000555", json!(0.1)),
    ] {
        let line = format!("{{\"x\": [{number}]}}");
        let row = json_lines(Cursor::new(line), "rows").next().unwrap().unwrap().unwrap();
        assert_eq!(row["x"], json!([expected]), "{number}");
    }
}

#[test]
fn a_custom_reward_gets_all_digits_of_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.jsonl");
    std::fs::write(&file, "{\"problem\": \"p\", \"answer\": 12345678901234567890123}\n").unwrap();
    let reading = Reading { keeps_fields: true, ..Reading::default() };
    let row = open_all(&[file], &reading).unwrap().next().unwrap().unwrap();
    let Row::Good(example) = row else { panic!("the row is good") };
    let fields: serde_json::Value = serde_json::from_str(&example.fields.unwrap()).unwrap();
    assert_eq!(fields, json!({"problem": "p", "answer": "12345678901234567890123"}));
}

#[test]
fn deep_nesting_is_a_bad_row() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(answer(&deep).is_err());
}

#[test]
fn a_csv_number_in_e_notation_is_that_number() {
    let read = answers("problem,answer\np,1e-5\nq,1e5\n", "rows.csv");
    assert_eq!(read, [Ok("0.00001".to_owned()), Ok("100000".to_owned())]);
}

#[test]
fn columns_of_floats_and_decimals_have_the_digits_of_their_own_width() {
    let columns: [(&str, ArrayRef); 2] = [
        ("f32", Arc::new(Float32Array::from(vec![0.1, 1e-5, 1e20, f32::NAN]))),
        (
            "decimal",
            Arc::new(
                Decimal128Array::from(vec![350, -5, 12_345_678_901_234_567_890_123_456_i128, 0])
                    .with_precision_and_scale(38, 2)
                    .unwrap(),
            ),
        ),
    ];
    let expected = [
        [Some("0.1"), Some("0.00001"), Some("100000000000000000000"), None],
        [Some("3.50"), Some("-0.05"), Some("123456789012345678901234.56"), Some("0.00")],
    ];
    for ((name, column), expected) in columns.into_iter().zip(expected) {
        let problems = StringArray::from(vec!["a", "b", "c", "d"]);
        let columns = [("problem", Arc::new(problems) as ArrayRef), ("answer", column)];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        let read = answers(writer.into_inner().unwrap(), "rows.arrow");
        let read: Vec<_> = read.iter().map(|it| it.as_deref().ok()).collect();
        assert_eq!(read, expected, "{name}");
    }
}
