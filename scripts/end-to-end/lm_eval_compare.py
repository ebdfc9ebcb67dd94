"""lm-eval on local tasks: `hapo serve` (local-completions) against the harness's own `hf` model type.

    python scripts/end-to-end/lm_eval_compare.py [--binary target/release/hapo] [--model DIR] [--problems N]

needs lm_eval, torch and transformers (scripts/end-to-end/lm_eval makes an environment). Nothing is fetched.
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager
from serving import serve

# Sums of log-probabilities in f32, by two orders of addition.
TOLERANCE = 2e-3

CHOICE = """
task: local_choice
dataset_path: json
dataset_kwargs: {data_files: {test: "FOLDER/choice.jsonl"}}
test_split: test
output_type: multiple_choice
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
"""

GENERATE = """
task: local_generate
dataset_path: json
dataset_kwargs: {data_files: {test: "FOLDER/generate.jsonl"}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: answer
generation_kwargs: {until: ["\\n", "Question:"], do_sample: false, max_gen_toks: 24}
metric_list: [{metric: exact_match, ignore_case: true, ignore_punctuation: true}]
"""

ROLLING = """
task: local_rolling
dataset_path: json
dataset_kwargs: {data_files: {test: "FOLDER/rolling.jsonl"}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
"""

FACTS = [
    ("What colour is the sky on a clear day?", ["blue", "green", "red", "brown"]),
    ("Which animal barks?", ["a dog", "a cat", "a fish", "an owl"]),
    ("What is the capital of France?", ["Paris", "Rome", "Madrid", "Berlin"]),
    ("How many days has a week?", ["seven", "five", "nine", "twelve"]),
    ("What do bees make?", ["honey", "milk", "paper", "bread"]),
    ("Where do fish live?", ["in water", "in trees", "on the moon", "in books"]),
    ("Wie heißt „water“ auf Deutsch?", ["Wasser", "Brot", "Straße", "Grün"]),
    ("Which is the largest planet?", ["Jupiter", "Mars", "Venus", "Mercury"]),
]


def write_tasks(folder, problems):
    rng = random.Random(0)
    choice, generate = [], []
    for number in range(problems):
        if number < len(FACTS):
            question, options = FACTS[number]
        else:
            a, b = rng.randint(2, 60), rng.randint(2, 60)
            question = f"What is {a} + {b}?"
            options = [str(a + b), str(a + b + rng.randint(1, 9)), str(a + b + 10), str(a - b)]
        options = list(options)
        right = options[0]
        generate.append({"question": question, "answer": right})
        rng.shuffle(options)
        choice.append({"question": question, "choices": options, "answer": options.index(right)})
    words = "the run ends when every prompt has its answer and the gate is closed for good".split()
    rolling = [
        {"text": " ".join(rng.choices(words, k=40 + 30 * number)) + f" – {number} ✓"} for number in range(4)
    ]
    for name, rows, task in [
        ("choice", choice, CHOICE),
        ("generate", generate, GENERATE),
        ("rolling", rolling, ROLLING),
    ]:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)
        (folder / f"{name}.yaml").write_text(task.replace("FOLDER", str(folder)))


def evaluate(folder, model, arguments):
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return lm_eval.simple_evaluate(
        model=model,
        model_args=arguments,
        tasks=["local_choice", "local_generate", "local_rolling"],
        task_manager=manager,
        bootstrap_iters=0,
        batch_size=1,
        log_samples=True,
    )


def compare(ours, theirs):
    widest = 0.0
    for task, rows in theirs["samples"].items():
        pairs = list(zip(ours["samples"][task], rows, strict=True))
        for mine, own in pairs:
            assert mine["doc_id"] == own["doc_id"]
            for a, b in zip(mine["filtered_resps"], own["filtered_resps"], strict=True):
                if isinstance(b, str):
                    assert a == b, (task, mine["doc"], a, b)
                    continue
                # A choice has its sum and whether it is greedy, a rolling text its sum alone.
                (a, *a_greedy), (b, *b_greedy) = (it if isinstance(it, (list, tuple)) else (it,) for it in (a, b))
                widest = max(widest, abs(float(a) - float(b)))
                assert list(map(str, a_greedy)) == list(map(str, b_greedy)), (task, mine["doc"])
        print(f"{task}: {len(pairs)} samples are the same")
    assert widest < TOLERANCE, widest
    for task, metrics in theirs["results"].items():
        for name, value in metrics.items():
            if not isinstance(value, float) or "stderr" in name:
                continue
            got = ours["results"][task][name]
            exact = name.startswith(("acc", "exact_match"))
            assert got == value if exact else abs(got / value - 1) < 1e-4, (task, name, got, value)
            print(f"  {task} {name}: hapo {got:.6g}, hf {value:.6g}")
    print(f"largest difference of a log-likelihood: {widest:.2g}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/release/hapo")
    parser.add_argument("--model", default="testdata/fixtures/models/tiny-qwen2")
    parser.add_argument("--problems", type=int, default=24)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_tasks(folder, args.problems)
        with serve(args.binary, args.model, "--served-model-name", "local") as address:
            own = f"tokenizer={args.model},tokenizer_backend=huggingface,num_concurrent=4,max_length=512"
            ours = evaluate(folder, "local-completions", f"model=local,base_url={address}/v1/completions,{own}")
        theirs = evaluate(folder, "hf", f"pretrained={args.model},dtype=float32,device=cpu,max_length=512")
    compare(ours, theirs)


if __name__ == "__main__":
    main()
