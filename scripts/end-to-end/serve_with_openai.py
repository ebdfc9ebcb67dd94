"""Drives `hapo serve` with the official openai client: chat, stream, n, logprobs, stop, errors.

    cargo build --release
    python scripts/end-to-end/serve_with_openai.py [--binary target/release/hapo] [--model builtin:base]

needs the package openai. Starts a server of its own on a free port, asserts, and prints what it saw.
"""

import argparse
import concurrent.futures
import time
import urllib.request

import openai
from serving import serve


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/release/hapo")
    parser.add_argument("--model", default="builtin:base")
    args = parser.parse_args()
    with serve(args.binary, args.model, "--served-model-name", "tiny", "--max-requests", "64") as address:
        drive(openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0), address)


def drive(client, address):
    assert [it.id for it in client.models.list()] == ["tiny"]
    user = [{"role": "user", "content": "4738*6=?"}]

    chat = client.chat.completions.create(
        model="tiny", messages=user, n=3, seed=7, max_tokens=48, logprobs=True, top_logprobs=2
    )
    assert [it.index for it in chat.choices] == [0, 1, 2]
    assert all(it.finish_reason in ("stop", "length") for it in chat.choices)
    for it in chat.choices:
        tokens = it.logprobs.content
        assert "".join(token.token for token in tokens) == it.message.content
        assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens)
        assert all(token.top_logprobs[0].logprob >= token.logprob for token in tokens)
    usage = chat.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    print("chat:", repr(chat.choices[0].message.content), usage.to_dict())

    texts = [""] * 3
    reasons = [None] * 3
    last = None
    for chunk in client.chat.completions.create(
        model="tiny", messages=user, n=3, seed=7, max_tokens=48, stream=True, stream_options={"include_usage": True}
    ):
        last = chunk
        for it in chunk.choices:
            texts[it.index] += it.delta.content or ""
            reasons[it.index] = it.finish_reason or reasons[it.index]
    assert texts == [it.message.content for it in chat.choices], "streaming equals not streaming"
    assert reasons == [it.finish_reason for it in chat.choices]
    assert last.usage.total_tokens == usage.total_tokens
    print("stream: the same three texts")

    greedy = client.chat.completions.create(model="tiny", messages=user, temperature=0, max_tokens=48)
    whole = greedy.choices[0].message.content
    stop = whole[len(whole) // 2 :][:2]
    cut = client.chat.completions.create(model="tiny", messages=user, temperature=0, max_tokens=48, stop=[stop, "never"])
    assert cut.choices[0].message.content == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    print("stop:", repr(whole), "before", repr(stop), "is", repr(cut.choices[0].message.content))

    legacy = client.completions.create(model="tiny", prompt=["1+1=", "2+2="], max_tokens=8, n=2, seed=1, logprobs=1)
    assert [it.index for it in legacy.choices] == [0, 1, 2, 3]
    assert all(len(it.logprobs.tokens) == len(it.logprobs.token_logprobs) for it in legacy.choices)
    streamed = [""] * 4
    for chunk in client.completions.create(
        model="tiny", prompt=["1+1=", "2+2="], max_tokens=8, n=2, seed=1, stream=True
    ):
        for it in chunk.choices:
            streamed[it.index] += it.text
    assert streamed == [it.text for it in legacy.choices]
    print("completions:", [it.text for it in legacy.choices])

    def one(seed):
        answer = client.chat.completions.create(model="tiny", messages=user, seed=seed, max_tokens=48)
        return answer.choices[0].message.content, answer.usage.completion_tokens

    alone = [one(seed) for seed in range(16)]
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = list(pool.map(one, range(16)))
    seconds = time.perf_counter() - began
    assert together == alone, "an answer does not depend on the others"
    print(f"16 at once: {sum(it[1] for it in together) / seconds:.0f} tokens/s, the same as one by one")

    def refused(kind, **fields):
        try:
            client.chat.completions.create(**{"model": "tiny", "messages": user, **fields})
        except kind as error:
            print("refused:", error.status_code, error.body["message"])
            return error.body
        raise AssertionError(f"{fields} was not refused")

    assert refused(openai.NotFoundError, model="other")["code"] == "model_not_found"
    assert refused(openai.BadRequestError, temperature=-1)["param"] == "temperature"
    assert refused(openai.BadRequestError, messages=[])["param"] == "messages"
    assert refused(openai.BadRequestError, max_tokens=10**6)["code"] == "context_length_exceeded"
    assert refused(openai.BadRequestError, tools=[{"type": "function", "function": {"name": "f"}}])["param"] == "tools"

    stream = client.chat.completions.create(model="tiny", messages=user, n=64, temperature=100, max_tokens=200, stream=True)
    next(iter(stream))
    stream.close()
    for _ in range(200):
        health = urllib.request.urlopen(f"{address}/health").read()
        if b'"running":0' in health and b'"waiting":0' in health:
            break
        time.sleep(0.05)
    else:
        raise AssertionError(f"a client that left is still served: {health}")
    print("disconnect: its places are free again")


if __name__ == "__main__":
    main()
