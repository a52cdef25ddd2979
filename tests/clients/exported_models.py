"""Our models in transformers: a trained run, exported, has the perplexity there that `longshot eval` gives it.

Not part of clients.py, whose PyTorch may be too old: `exported_models.py LONGSHOT TEXT_DIR` with torch and transformers."""
import json
import math
import pathlib
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

from common import ROOT, longshot, prepared

sys.path.insert(0, str(ROOT / "examples"))
from load_in_pytorch import Tokens

LENGTH = 48
MOST = 1e-4  # of the perplexity
SIZE = ["--layers", 2, "--dim", 48, "--heads", 6, "--length", LENGTH, "--batch-tokens", 8 * LENGTH, "--warmup", 5, "--steps", 60,
        "--lr", 0.01, "--seed", 3, "--threads", 1]
ROTARY = ["--position", "rotary", "--rotary-style", "half", "--no-embed-scale"]
MODELS = {
    "bloom": ["--config", ROOT / "configs/portable.toml"],
    "mpt": ["--activation", "gelu-exact", "--no-bias", "--no-embed-scale", "--clip-qkv", 1.5],
    "gpt_neox": [*ROTARY, "--activation", "gelu", "--rotary-fraction", 0.5, "--parallel-residual", "--no-tied", "--ffn", 100],
    "llama": [*ROTARY, "--norm", "rmsnorm", "--activation", "swiglu", "--no-bias", "--kv-heads", 2, "--ffn", 96],
    "gpt2": ["--position", "learned", "--activation", "gelu", "--no-embed-scale"],
}


def their_perplexity(directory, tokens, length):
    """Windows that do not overlap, every token scored, as `eval --score all` does: the first is told of by the start token."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    ids, loss, count = tokens.ids.long(), 0.0, 0
    inputs = torch.cat([torch.tensor([tokens_start(directory)]), ids[:-1]])
    for first in range(0, len(ids), length):
        x, y = inputs[first:first + length], ids[first:first + length]
        with torch.no_grad():
            logits = model(x[None]).logits[0].double()
        loss += torch.nn.functional.cross_entropy(logits, y, reduction="sum").item()
        count += len(y)
    return math.exp(loss / count), count


def tokens_start(directory):
    return json.loads((directory / "config.json").read_text())["bos_token_id"]


def check(work):
    data = prepared(work, "bpe")
    for family, options in MODELS.items():
        run, out, record = work / f"run-{family}", work / f"hf-{family}", work / f"{family}.json"
        longshot("train", "--data", data, "--out", run, *options, *SIZE)
        longshot("export", run, "--format", "hf", "--out", out)
        if json.loads((out / "config.json").read_text())["model_type"] != family:
            sys.exit(f"exported as another family than {family}")
        lengths = [LENGTH] if family in ("gpt2", "mpt") else [LENGTH, 3 * LENGTH]  # where the other program ends
        longshot("eval", run, "--data", data, "--lengths", ",".join(map(str, lengths)), "--score", "all", "--json", record)
        for ours in json.loads(record.read_text())["results"]:
            theirs, count = their_perplexity(out, Tokens(data / "valid.tokens"), ours["length"])
            difference = abs(theirs / ours["perplexity"] - 1)
            print(f"transformers, {family}, length {ours['length']}: {theirs:.6f}, here {ours['perplexity']:.6f}, "
                  f"difference {difference:.1g}, {count} and {ours['tokens']} tokens")
            if count != ours["tokens"] or not difference <= MOST:
                sys.exit("they differ")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        check(pathlib.Path(directory))
