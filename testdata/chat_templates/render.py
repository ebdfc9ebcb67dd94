"""Records how transformers renders the templates of this folder, for crates/hapo-data/tests.

    python testdata/chat_templates/render.py

needs transformers 5 and jinja2; writes expected.json next to itself. The templates are written for
this project in the manner of published ones. The clock stands at 26 July 2024, 13:05 UTC.
"""

import datetime
import json
from pathlib import Path

import jinja2
import transformers
from transformers.utils import chat_template_utils

HERE = Path(__file__).parent
UNIX_TIME = 1_721_999_100


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(UNIX_TIME, datetime.timezone.utc)


chat_template_utils.datetime = Clock

TOKENS = {"bos_token": "<bos>", "eos_token": "</s>"}


def turn(role, content):
    return {"role": role, "content": content}


DIALOGUES = {
    "one turn": [turn("user", "What is 1 + 1?")],
    "a system turn": [turn("system", "Answer briefly."), turn("user", "Hi")],
    "several turns": [
        turn("user", "First."),
        turn("assistant", "One."),
        turn("user", "Second."),
        turn("assistant", "<think>\nIt is\ntwo.\n</think>\n\nTwo."),
        turn("user", "Third."),
    ],
    "system and several turns": [
        turn("system", "  Be exact.\n"),
        turn("user", " a b a "),
        turn("assistant", " c \n"),
        turn("user", "d"),
        turn("assistant", "e"),
    ],
    "empty contents": [turn("system", ""), turn("user", ""), turn("assistant", ""), turn("user", "")],
    "unicode and quotes": [
        turn("user", "Größe 🦀 \u202eתורה\u202c \"quoted\" 'single' <b>&amp;</b> \\boxed{½}\t\u2028"),
        turn("assistant", "日本語\r\nline\n\n"),
        turn("user", "{{ messages }} {% raw %} {# no #} %}"),
    ],
    "roles that do not alternate": [turn("user", "a"), turn("user", "b")],
    "an assistant's turn first": [turn("assistant", "a"), turn("user", "b")],
}

VARIABLES = {"qwen3_thinking": [{}, {"enable_thinking": False}, {"enable_thinking": True}]}


def main():
    cases = []
    for file in sorted(HERE.glob("*.jinja")):
        template = file.read_text(encoding="utf-8")
        for name, messages in DIALOGUES.items():
            for add_generation_prompt in (False, True):
                for variables in VARIABLES.get(file.stem, [{}]):
                    case = {
                        "template": file.stem,
                        "dialogue": name,
                        "add_generation_prompt": add_generation_prompt,
                        "variables": variables,
                    }
                    try:
                        [text], _ = chat_template_utils.render_jinja_template(
                            [messages],
                            chat_template=template,
                            add_generation_prompt=add_generation_prompt,
                            **TOKENS,
                            **variables,
                        )
                        case["text"] = text
                    except jinja2.exceptions.TemplateError as error:
                        case["raises"] = str(error)
                    cases.append(case)
    recorded = {
        "transformers": transformers.__version__,
        "jinja2": jinja2.__version__,
        "unix_time": UNIX_TIME,
        "special_tokens": TOKENS,
        "dialogues": DIALOGUES,
        "cases": cases,
    }
    text = json.dumps(recorded, ensure_ascii=True, indent=1)
    (HERE / "expected.json").write_text(text + "\n", encoding="utf-8")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
