//! Every type of Arrow that is read, as the `arrow` crates write it, and types that are not read between them.

use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{
    FixedSizeListBuilder, Int32Builder, LargeListBuilder, ListBuilder, MapBuilder, StringBuilder,
};
use arrow_array::types::{ArrowPrimitiveType, Decimal256Type, Int8Type};
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal32Array,
    Decimal64Array, Decimal128Array, Decimal256Array, DictionaryArray, FixedSizeListArray,
    Float32Array, Float64Array, Int8Array, Int16Array, LargeStringArray, NullArray, RecordBatch,
    StringArray, StringViewArray, StructArray, UInt8Array, UInt32Array, UInt64Array, UnionArray,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field};
use serde_json::{Value, json};

type Wide = <Decimal256Type as ArrowPrimitiveType>::Native;

/// What is read of a file of batches.
fn written<T>(batches: &[RecordBatch], read: impl Fn(&Path) -> T) -> T {
    let mut bytes = Vec::new();
    let schema = batches[0].schema();
    let mut writer = StreamWriter::try_new(&mut bytes, &schema).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.arrow");
    std::fs::write(&path, bytes).unwrap();
    read(&path)
}

fn rows(batches: &[RecordBatch]) -> Vec<Value> {
    written(batches, |path| {
        let rows = hapo_data::json_rows(path).unwrap();
        rows.map(|row| Value::Object(row.unwrap().unwrap())).collect()
    })
}

fn check(column: ArrayRef, expected: &[Value]) {
    // Columns on both sides show that no buffer is left over or taken twice.
    let side: ArrayRef = Arc::new(Int16Array::from_iter_values(0..expected.len() as i16));
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("before", side.clone(), true),
        ("x", column, true),
        ("after", side, true),
    ])
    .unwrap();
    let kind = batch.schema().field(1).data_type().clone();
    // A slice begins within its buffers.
    let found = rows(&[batch.clone(), batch.slice(1, expected.len() - 1)]);
    let all = expected.iter().enumerate().chain(expected.iter().enumerate().skip(1));
    let all: Vec<Value> = all.map(|(n, x)| json!({ "before": n, "x": x, "after": n })).collect();
    assert_eq!(found, all, "{kind}");
}

#[test]
fn numbers_texts_and_truth_values_are_read() {
    check(
        Arc::new(Int8Array::from(vec![Some(-128), None, Some(7)])),
        &[json!(-128), json!(null), json!(7)],
    );
    check(Arc::new(UInt8Array::from(vec![255, 0])), &[json!(255), json!(0)]);
    check(Arc::new(UInt32Array::from(vec![u32::MAX, 1])), &[json!(u32::MAX), json!(1)]);
    check(Arc::new(UInt64Array::from(vec![u64::MAX, 1])), &[json!(u64::MAX), json!(1)]);
    check(Arc::new(Float32Array::from(vec![0.1, -2.0])), &[json!(0.1), json!(-2)]);
    check(Arc::new(Float64Array::from(vec![1.5e-3, f64::NAN])), &[json!(0.0015), json!(null)]);
    let truth = (0..20).map(|n| (n % 5 != 2).then_some(n % 3 == 0));
    let expected: Vec<Value> = truth.clone().map(|it| json!(it)).collect();
    check(Arc::new(truth.collect::<BooleanArray>()), &expected);
    let texts = ["", "é", "a text of more than twelve bytes", "short"];
    let expected = texts.map(|it| json!(it));
    check(Arc::new(StringArray::from_iter_values(texts)), &expected);
    check(Arc::new(LargeStringArray::from_iter_values(texts)), &expected);
    check(Arc::new(StringViewArray::from_iter_values(texts)), &expected);
}

#[test]
fn decimals_keep_their_digits() {
    // JSON has their numbers as f64; the digits are tested with golds, in `numbers.rs`.
    let small = Decimal32Array::from(vec![-12_345, 7]).with_precision_and_scale(9, 2).unwrap();
    check(Arc::new(small), &[json!(-123.45), json!(0.07)]);
    let middle = Decimal64Array::from(vec![-5, 12]).with_precision_and_scale(18, -3).unwrap();
    check(Arc::new(middle), &[json!(-5000), json!(12_000)]);
    let large =
        Decimal128Array::from(vec![i128::from(i64::MIN), 0]).with_precision_and_scale(38, 0);
    check(Arc::new(large.unwrap()), &[json!(i64::MIN), json!(0)]);
    let least = Decimal128Array::from(vec![-256, 1000]).with_precision_and_scale(38, 3);
    check(Arc::new(least.unwrap()), &[json!(-0.256), json!(1.0)]);
}

#[test]
fn lists_and_structures_are_read() {
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value([Some("a"), None]);
    lists.append_null();
    lists.append_value([Some("b"); 0]);
    check(Arc::new(lists.finish()), &[json!(["a", null]), json!(null), json!([])]);
    let mut lists = LargeListBuilder::new(Int32Builder::new());
    lists.append_value([Some(1)]);
    lists.append_value([Some(2), Some(3)]);
    check(Arc::new(lists.finish()), &[json!([1]), json!([2, 3])]);
    let mut pairs = FixedSizeListBuilder::new(Int32Builder::new(), 2);
    for it in [1, 3] {
        pairs.values().append_slice(&[it, it + 1]);
        pairs.append(true);
    }
    check(Arc::new(pairs.finish()), &[json!([1, 2]), json!([3, 4])]);
    let role = Field::new("role", DataType::Utf8, false);
    let roles: ArrayRef = Arc::new(StringArray::from(vec!["user", "system"]));
    let turns =
        StructArray::try_new(vec![role].into(), vec![roles], Some(vec![true, false].into()));
    check(Arc::new(turns.unwrap()), &[json!({ "role": "user" }), json!(null)]);
}

#[test]
fn columns_that_are_not_read_are_passed_over() {
    let none = [json!(null), json!(null)];
    check(Arc::new(NullArray::new(2)), &none);
    check(Arc::new(Date32Array::from(vec![1, 2])), &none);
    check(Arc::new(BinaryArray::from_iter_values([b"a", b"b"])), &none);
    check(Arc::new(BinaryViewArray::from_iter_values([b"a", b"b"])), &none);
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for it in [1, 2] {
        maps.keys().append_value("k");
        maps.values().append_value(it);
        maps.append(true).unwrap();
    }
    check(Arc::new(maps.finish()), &none);
    // The digits of a number of 256 bits.
    let wide = Decimal256Array::from_iter_values([-256, 1000].map(Wide::from_i128));
    check(Arc::new(wide.with_precision_and_scale(76, 3).unwrap()), &none);
}

fn refusal(path: &Path) -> String {
    hapo_data::json_rows(path).unwrap().next().unwrap().unwrap_err().to_string()
}

#[test]
fn few_bytes_cannot_claim_columns_without_end() {
    // Tables of FlatBuffers, in words: where the message is; the fields of a message, of a schema and of a column; the
    // message; the schema and the list of its column.
    let pair = |low: u32, high: u32| low | high << 16;
    let mut words = vec![40];
    words.extend([pair(10, 12), pair(0, 4), pair(8, 0), pair(8, 8), pair(0, 4)]);
    words.extend([pair(16, 12), pair(0, 0), pair(4, 0), pair(0, 8)]);
    words.extend([36, 1, 4, 36, 4, 1, 4]);
    // Each is a structure with two columns, which are the next table; the last is a null.
    for _ in 0..60 {
        words.extend([4 * words.len() as u32 - 24, 13, 4, 2, 8, 4]);
    }
    words.extend([4 * words.len() as u32 - 24, 1, 4, 0]);
    words.splice(0..0, [u32::MAX, 4 * words.len() as u32]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.arrow");
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, bytes).unwrap();
    let error = refusal(&path);
    assert!(error.ends_with("row 1: the schema has too many columns"), "{error}");
}

#[test]
fn few_bytes_cannot_claim_nulls_without_end() {
    let one: ArrayRef = Arc::new(Int16Array::from(vec![1]));
    let mut nulls: ArrayRef = Arc::new(NullArray::new(500 * 500 * 500));
    for _ in 0..3 {
        let field = Arc::new(Field::new("item", nulls.data_type().clone(), true));
        nulls = Arc::new(FixedSizeListArray::new(field, 500, nulls, None));
    }
    let columns = [("one", one, true), ("nulls", nulls, true)];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let error = written(&[batch], refusal);
    assert!(error.ends_with("row 1: a batch has fewer bytes than its rows need"), "{error}");
}

#[test]
fn categories_and_unions_are_refused_by_name() {
    let words: DictionaryArray<Int8Type> = [Some("one"), None].into_iter().collect();
    let fields = [(0, Arc::new(Field::new("n", DataType::Int16, false)))].into_iter().collect();
    let numbers: ArrayRef = Arc::new(Int16Array::from(vec![1, 2]));
    let union = UnionArray::try_new(fields, vec![0_i8, 0].into(), None, vec![numbers]).unwrap();
    for (column, name) in [(Arc::new(words) as ArrayRef, "categories"), (Arc::new(union), "unions")]
    {
        let batch = RecordBatch::try_from_iter_with_nullable([("x", column, true)]).unwrap();
        let error = written(&[batch], refusal);
        let expected = format!("columns of {name} are not read: write the file as Parquet");
        assert!(error.ends_with(&expected), "{error}");
    }
}
