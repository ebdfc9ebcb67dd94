"""Flips one bit in Parquet files with page checksums, and cuts and damages files of both versions of pages.

    python scripts/torture/parquet.py [--binary target/debug/hapo] [--count 300]

needs pyarrow. No flipped page may pass as good; nothing may panic, hang or take more than 2 GB.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))


def check(binary, file):
    done = subprocess.run(
        [binary, "--threads", "1", "data", "check", file, "--grader", "none"],
        capture_output=True,
        timeout=60,
        preexec_fn=limited,
    )
    assert done.returncode in (0, 2), (file, done.returncode, done.stderr)
    return done.returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/debug/hapo")
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    draw = random.Random(7)
    rows = [{"problem": f"r{i}" * 8, "answer": str(i), "solution": f"so \\boxed{{{i}}}"} for i in range(200)]
    table = pa.Table.from_pylist(rows)
    refused = passed = other = 0
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "f.parquet")
        for index in range(options.count):
            codec = ["none", "snappy", "gzip", "zstd", "lz4"][index % 5]
            pq.write_table(table, file, compression=codec, write_page_checksum=True)
            before = open(file, "rb").read()
            metadata = pq.read_metadata(file)
            column = metadata.row_group(0).column(draw.randrange(3))
            start = column.dictionary_page_offset or column.data_page_offset
            # Behind the header of the first page.
            at = start + draw.randrange(40, column.total_compressed_size)
            data = bytearray(before)
            data[at] ^= 1 << draw.randrange(8)
            open(file, "wb").write(data)
            if check(options.binary, file) == 2:
                refused += 1
                continue
            # What passes must be the same rows: a bit that means nothing, in a header's statistics for instance.
            rows_read = os.path.join(folder, "read.jsonl")
            subprocess.run([options.binary, "data", "convert", file, "--to", "own", "-o", rows_read], check=True)
            read = [json.loads(line) for line in open(rows_read)]
            same = [(it["problem"], it["answer"], it.get("teacher")) for it in read] == [
                (it["problem"], it["answer"], it["solution"]) for it in rows
            ]
            passed += same
            other += not same
        damaged = 0
        for index in range(options.count):
            pq.write_table(
                table,
                file,
                compression=["none", "zstd", "lz4"][index % 3],
                data_page_version=["1.0", "2.0"][index % 2],
            )
            data = bytearray(open(file, "rb").read())
            for _ in range(draw.randrange(1, 5)):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            open(file, "wb").write(data[: draw.randrange(len(data))] if index % 5 == 0 else data)
            check(options.binary, file)
            damaged += 1
    print(
        f"{options.count} flipped bits under checksums: {refused} refused, {passed} without effect, {other} passed as other text;"
        f" {damaged} damaged files of both versions of pages: no panic, at most 2 GB"
    )
    assert other == 0


if __name__ == "__main__":
    main()
