"""Hostile chat templates: texts without end, towers of signs, doublings, widths. Each ends with exit code 2 or a text.

    python scripts/torture/chat_templates.py [--binary target/debug/hapo]

Needs nothing but Python. No template may end the program by a signal, take a minute, or 3 GB.
"""

import argparse
import os
import shutil
import subprocess
import tempfile

DOUBLE = "{% set ns = namespace(x=START) %}{% for i in range(COUNT) %}{% set ns.x = EXPRESSION %}{% endfor %}{{ ns.x }}"


def double(start, count, expression):
    return DOUBLE.replace("START", start).replace("COUNT", str(count)).replace("EXPRESSION", expression)


TEMPLATES = {
    "not, 200,000 times": "{{ " + "not " * 200_000 + "1 }}",
    "minus, 200,000 times": "{{ " + "-" * 200_000 + "1 }}",
    "not, 101 times": "{{ " + "not " * 101 + "1 }}",
    "a list and itself, 40 times": double("[1]", 40, "ns.x + ns.x"),
    "a text and itself, 60 times": double("'ab'", 60, "ns.x ~ ns.x"),
    "a text and itself by plus": double("'ab'", 60, "ns.x + ns.x"),
    "replace": "{{ ('x' * 9999) | replace('x', 'b' * 100000) }}",
    "width": "{{ '%10000000000d' | format(1) }}",
    "width of a method": "{{ '{:>10000000000}'.format(1) }}",
    "indent": "{{ ('a\n' * 9999) | indent(100000) }}",
    "join": "{{ (['a' * 9999] * 99999) | join('b' * 9999) }}",
    "a tree of lists": double("[1]", 60, "[ns.x, ns.x]"),
    "a tower of lists": "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% for j in range(9) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}{{ 1 }}",
    "repetition": "{{ 'x' * 99999999 * 99999999 }}",
    "a million brackets": "{{ " + "(" * 1_000_000,
    "half a megabyte of blanks": " " * 500_000,
    "sums": "{{ 1" + "+1" * 130_000 + " }}",
    "elif": "{% if 0 %}" + "{% elif 0 %}" * 20_000 + "{% endif %}",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/debug/hapo")
    options = parser.parse_args()
    refused = rendered = 0
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        shutil.copytree("models/base", model)
        for name, template in TEMPLATES.items():
            with open(os.path.join(model, "chat_template.jinja"), "w") as file:
                file.write(template)
            command = [options.binary, "generate", "--model", model, "--template", "chat"]
            done = subprocess.run(
                [*command, "1+1=?", "--max-tokens", "2"], capture_output=True, text=True, timeout=60
            )
            assert done.returncode in (0, 2), (name, done.returncode, done.stderr[-400:])
            refused += done.returncode == 2
            rendered += done.returncode == 0
            print(f"{name}: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else 'a text'}"[:140])
    print(f"{refused} refused, {rendered} rendered, none ended the program")


if __name__ == "__main__":
    main()
