"""Writes the files of this folder as the ecosystem writes them: datasets, pandas and pyarrow, eight problems each.

    python -m venv v && v/bin/pip install datasets==5.2.0 pandas==3.1.1 pyarrow==26.0.1 && v/bin/python make_shapes.py
"""

import os
import shutil

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict

HERE = os.path.dirname(os.path.abspath(__file__))
PROBLEMS = [f"What is {i} + {2 * i + 1}?" for i in range(8)]
ANSWERS = [str(3 * i + 1) for i in range(8)]
SOLUTIONS = [f"Add {i} and {2 * i + 1}: it is \\boxed{{{3 * i + 1}}}." for i in range(8)]
ROWS = [
    {"problem": p, "solution": s, "answer": a} for p, s, a in zip(PROBLEMS, SOLUTIONS, ANSWERS)
]


def path(*parts):
    it = os.path.join(HERE, *parts)
    os.makedirs(os.path.dirname(it), exist_ok=True)
    return it


for it in os.listdir(HERE):
    if it != os.path.basename(__file__):
        full = os.path.join(HERE, it)
        shutil.rmtree(full) if os.path.isdir(full) else os.remove(full)

data = Dataset.from_list(ROWS)
data.save_to_disk(path("save_to_disk"), num_shards=2)
DatasetDict({"train": data.select(range(5)), "test": data.select(range(5, 8))}).save_to_disk(
    path("dataset_dict")
)
for shard in range(2):
    part = data.shard(2, shard, contiguous=True)
    part.to_parquet(path("hub", "data", f"train-0000{shard}-of-00002.parquet"))
data.select(range(2)).to_parquet(path("hub", "data", "test-00000-of-00001.parquet"))

frame = pd.DataFrame(ROWS)
frame.to_csv(path("pandas.csv"), index=False)
frame.to_csv(path("pandas.tsv"), index=False, sep="\t")
data.to_csv(path("datasets.csv"))

table = pa.Table.from_pylist(ROWS)
pq.write_table(table, path("brotli.parquet"), compression="brotli")
pq.write_table(table, path("lz4.parquet"), compression="lz4")
pq.write_table(table, path("checksums.parquet"), write_page_checksum=True, compression="none")
pq.write_table(table, path("pages-2.parquet"), data_page_version="2.0")
pq.write_table(
    table,
    path("delta.parquet"),
    use_dictionary=False,
    column_encoding={name: "DELTA_BYTE_ARRAY" for name in table.column_names},
)
