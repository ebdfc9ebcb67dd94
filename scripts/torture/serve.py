"""Attacks `hapo serve` from this machine: idle and half-sent connections, foreign names and pages, readers that leave.

    python scripts/torture/serve.py [--binary target/debug/hapo] [--idle 1200]

Needs nothing but Python. After each attack the same seeded request must get the same answer. Prints counts.
"""

import argparse
import http.client
import json
import re
import socket
import subprocess
import time

BODY = {"prompt": "12*7=?", "max_tokens": 8, "seed": 7, "n": 2}


def ask(port, headers=(), body=BODY, timeout=120):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    sent = {"Content-Type": "application/json", **dict(headers)}
    connection.request("POST", "/v1/completions", json.dumps(body), sent)
    answer = connection.getresponse()
    return answer.status, answer.read()


def canonical(port):
    status, text = ask(port)
    assert status == 200, (status, text)
    return [it["text"] for it in json.loads(text)["choices"]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/debug/hapo")
    parser.add_argument("--idle", type=int, default=1200)
    options = parser.parse_args()
    server = subprocess.Popen(
        [options.binary, "serve", "--model", "builtin:base", "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    port = next(int(m[1]) for line in server.stderr if (m := re.search(r"http://127.0.0.1:(\d+)/", line)))
    expected = canonical(port)
    refused = 0
    for headers in [
        {"Host": "evil.example"},
        {"Host": "localhost:80@evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Content-Type": "text/plain"},
        {"Content-Type": ""},
    ]:
        status, _ = ask(port, headers)
        assert status in (403, 415), (headers, status)
        refused += 1
    assert canonical(port) == expected

    held = []
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    for index in range(options.idle):
        it = socket.create_connection(("127.0.0.1", port))
        it.sendall([b"", head, head + b"content-length: 5000000\r\n\r\n{"][index % 3])
        held.append(it)
    started = time.time()
    # Those with half a body hold the slots until their minute is over.
    while True:
        status, text = ask(port, timeout=300)
        if status == 200:
            break
        assert status in (429, 503), (status, text)
        time.sleep(1)
    waited = time.time() - started
    for it in held:
        it.close()
    assert canonical(port) == expected

    left = 0
    for index in range(200):
        it = socket.create_connection(("127.0.0.1", port))
        body = json.dumps({**BODY, "n": 8, "max_tokens": 200, "stream": True}).encode()
        it.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        if index % 2:
            it.recv(1)
        it.close()
        left += 1
    while True:
        status, _ = ask(port)
        if status == 200:
            break
        time.sleep(0.1)
    assert canonical(port) == expected
    server.terminate()
    assert server.wait(60) == 0
    print(
        f"{refused} foreign requests refused; {options.idle} silent connections, others served after {waited:.0f} s;"
        f" {left} clients left; same answers after each"
    )


if __name__ == "__main__":
    main()
