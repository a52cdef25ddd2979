"""`longshot serve` under the client that most programs use: the openai package."""
import re
import subprocess
import sys

import openai

from common import MODEL, PROGRAM, longshot, prepared


def expect(ok, what):
    if not ok:
        sys.exit(f"openai: {what}")


def check(work):
    data, run, keys = prepared(work, "byte"), work / "served", work / "keys"
    longshot("train", "--data", data, "--out", run, *MODEL, "--steps", 20)
    keys.write_text("a-key-for-this-test\n")
    server = subprocess.Popen([PROGRAM, "serve", str(run), "--port", "0", "--api-key-file", str(keys)], stderr=subprocess.PIPE, text=True)
    try:
        ask(address_of(server))
    finally:
        server.terminate()
    expect(server.wait(30) == 0, f"the server ended with {server.returncode}")


def address_of(server):
    for line in server.stderr:
        if found := re.search(r"http://\S+/", line):
            address = found.group()
        if "is ready" in line:
            return address
    sys.exit("openai: the server did not come up")


def ask(address):
    client = openai.OpenAI(base_url=address + "v1", api_key="a-key-for-this-test", max_retries=0)
    model = client.models.list().data[0].id
    expect(client.models.retrieve(model).id == "served", "models")

    question = dict(model=model, prompt="The ", max_tokens=40, seed=5, temperature=0.9)
    whole = client.completions.create(**question, n=2, logprobs=3)
    expect([c.finish_reason for c in whole.choices] == ["length", "length"], "finish_reason")
    expect(whole.usage.completion_tokens == 80 and whole.usage.total_tokens == 84, f"usage {whole.usage}")
    expect(len(whole.choices[0].logprobs.tokens) == 40 and len(whole.choices[0].logprobs.top_logprobs[0]) == 3, "logprobs")

    streamed = ["", ""]
    for event in client.completions.create(**question, n=2, stream=True, stream_options={"include_usage": True}):
        for choice in event.choices:
            streamed[choice.index] += choice.text
    expect(event.usage.completion_tokens == 80, "usage of the stream")
    expect(streamed == [c.text for c in whole.choices], "the stream is another text")

    refused(openai.BadRequestError, "'temperature'", lambda: client.completions.create(**{**question, "temperature": -1}))
    refused(openai.BadRequestError, "'echo'", lambda: client.completions.create(**question, echo=True))
    refused(openai.BadRequestError, "no chat template", lambda: client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hello"}]))
    refused(openai.NotFoundError, "'gpt'", lambda: client.completions.create(**{**question, "model": "gpt"}))
    stranger = openai.OpenAI(base_url=address + "v1", api_key="another", max_retries=0)
    refused(openai.AuthenticationError, "none of the keys", lambda: stranger.models.list())
    print("openai: models, completions, streams, logprobs, errors and keys")


def refused(kind, words, call):
    try:
        call()
    except kind as e:
        return expect(words in str(e), f"{e} does not say {words}")
    sys.exit(f"openai: a call that should be refused with {words} was not")
