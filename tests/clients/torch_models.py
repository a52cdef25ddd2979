"""examples/load_in_pytorch.py against the program: the loss of every token, for every kind of model."""
import shutil
import sys

import torch
from safetensors.torch import load_file

from common import ROOT, TEXT, longshot

sys.path.insert(0, str(ROOT / "examples"))
from load_in_pytorch import Tokens, load, score

LENGTH, TESTED = 24, (24, 60)
MOST = 1e-5  # nats; both compute in single precision

POSITIONS = {"alibi": [], "sinusoidal": [], "rotary": [], "t5": ["--t5-max-distance", 40], "learned": [], "none": []}
ACTIVATIONS = ["relu", "gelu", "swiglu", "gelu-exact"]
SPECIAL = {
    "slopes of 8 heads": ["--heads", 8],
    "slopes given": ["--alibi-slopes", "0.7,0.01,-0.02"],
    "slopes learned": ["--alibi-learned"],
    "no biases": ["--no-bias", "--norm-position", "post"],
    "embeddings not scaled": ["--no-embed-scale", "--ffn", 40],
    "documents masked": ["--document-mask"],
    "adaptive": ["--adaptive-cutoffs", "60,110", "--adaptive-factor", 2],
    "adaptive, post": ["--adaptive-cutoffs", "101", "--norm-position", "post", "--no-final-norm"],
    "rotary, halves": ["--position", "rotary", "--rotary-style", "half", "--rotary-fraction", 0.6, "--rotary-base", 100],
    "rotary, a part": ["--position", "rotary", "--rotary-fraction", 0.5],
    "T5 by layer": ["--position", "t5", "--no-t5-shared", "--t5-buckets", 9, "--t5-max-distance", 33],
    "sinusoids, interleaved": ["--position", "sinusoidal", "--sinusoidal-variant", "vaswani"],
    "keys shared": ["--heads", 4, "--kv-heads", 2, "--clip-qkv", 0.7],
    "keys shared, turned": ["--heads", 4, "--kv-heads", 1, "--position", "rotary", "--score-scale", 0.3],
    "embeddings normed": ["--embedding-norm", "--norm-epsilon", 0.01],
    "side by side": ["--parallel-residual", "--position", "learned"],
    "sinusoids, odd width": ["--position", "sinusoidal", "--dim", 21],
}


def cases():
    """Every position method with every activation; the two norms, their places, the two outputs take turns."""
    for p, (position, options) in enumerate(POSITIONS.items()):
        for a, activation in enumerate(ACTIVATIONS):
            n = p + a
            norm, place = ("layernorm", "rmsnorm")[n % 2], ("pre", "post")[(n // 2 + a) % 2]
            tied = ("--tied", "--no-tied")[(p + n // 2) % 2]
            yield (f"{position}, {activation}, {norm}, {place}, {tied[2:]}",
                   ["--position", position, "--activation", activation, "--norm", norm, "--norm-position", place, tied, *options])
    yield from SPECIAL.items()


def documents(work):
    """Bytes of the text, a document a line."""
    for split in ("train", "valid"):
        (work / f"{split}.txt").write_text((TEXT / f"{split}.txt").read_text().replace("\n", "\n----\n"))
    longshot("prepare", "--train", work / "train.txt", "--valid", work / "valid.txt", "--document-separator", "----", "--tokenizer", "byte",
             "--out", work / "documents")
    return work / "documents"


def difference(work, data, name, options):
    """Between the two programs' losses, the largest of all tokens."""
    run, tested = work / "model", TESTED[:1] if "learned" in options else TESTED
    longshot("train", "--data", data, "--out", run, "--layers", 2, "--dim", 24, "--heads", 3, "--length", LENGTH, "--batch-tokens", 12 * LENGTH,
             "--steps", 60, "--lr", 0.01, *options)
    longshot("eval", run, "--data", data, "--lengths", ",".join(map(str, tested)), "--score", "all", "--losses", work / "losses.safetensors")
    theirs = load_file(work / "losses.safetensors")
    model, tokens = load(run), Tokens(data / "valid.tokens")
    most = max((score(model, tokens, n) - theirs[f"nonoverlapping_{n}"]).abs().max().item() for n in tested)
    if not most <= MOST:
        sys.exit(f"PyTorch, {name}: losses differ by {most:.2g}")
    shutil.rmtree(run)
    return most


def check(work):
    torch.set_num_threads(1)
    data = documents(work)
    differences = [difference(work, data, name, options) for name, options in cases()]
    print(f"PyTorch: {len(differences)} models give every token the same loss, to {max(differences):.1g}")
