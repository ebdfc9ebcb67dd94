"""Records what transformers itself writes into config.json: run once with each version, from this folder.

    python -m venv v && v/bin/pip install transformers==4.57.1 && v/bin/python record.py

The defaults of the class that all models share, and those of the three that hapo reads, go into
fields.json under the version. `folders` there are the field sets of published models, written down by
hand: sizes and names as their config.json has them.
"""

import json
import pathlib

import transformers

NAMES = ["PretrainedConfig", "LlamaConfig", "Qwen2Config", "Qwen3Config"]
classes = {name: getattr(transformers, name)() for name in NAMES if hasattr(transformers, name)}
file = pathlib.Path(__file__).with_name("fields.json")
fields = json.loads(file.read_text())
fields["transformers"][transformers.__version__] = {name: it.to_dict() for name, it in classes.items()}
file.write_text(json.dumps(fields, indent=1, sort_keys=True) + "\n")
