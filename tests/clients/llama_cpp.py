"""Our models in llama.cpp: a trained run, exported, has the perplexity in llama-perplexity that `longshot eval` gives it, and its
tokenizer the ids. LLAMA_PERPLEXITY names the tool; llama-tokenize is taken from beside it.

    LLAMA_PERPLEXITY=TOOL llama_cpp.py LONGSHOT TEXT_DIR

llama-perplexity cuts the ids of a text into chunks of n and scores the ids from n / 2 + 1 to n - 1 of each, with what stands before
them in the chunk. A window of ours begins with the id before its first target. So its text is ours with a line end in front, one id;
then chunk k has the inputs of our window k, and its scores are those of the window's targets n / 2 to n - 2:

    longshot eval RUN --data DIR --lengths n --score all --losses FILE

The first window's first input is the start id in ours, the line end in theirs: the same for bytes; for other tokenizers the first
chunk is taken out of both.
"""
import csv
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from common import PROGRAM, ROOT, TEXT, longshot
from torch_models import Tokens

LENGTH = 48
MOST = 1e-4  # of the perplexity, in f32
# Beside weights of 16 and 8 bits llama.cpp rounds what it multiplies them with, and Longshot does not.
ROUNDED = {"f16": 1e-4, "bf16": 1e-3, "q8_0": 2e-3}
SIZE = ["--layers", 2, "--dim", 96, "--heads", 6, "--length", LENGTH, "--batch-tokens", 8 * LENGTH, "--warmup", 5, "--steps", 40,
        "--lr", 0.01, "--seed", 3, "--threads", 1]
GELU = ["--activation", "gelu", "--no-embed-scale"]
ROTARY = [*GELU, "--position", "rotary", "--rotary-style", "half"]
GATED = ["--no-embed-scale", "--position", "rotary", "--rotary-style", "half", "--norm", "rmsnorm", "--activation", "swiglu", "--no-bias"]
MODELS = {  # name: architecture, tokenizer, options, lengths
    "portable": ("bloom", "bpe", ["--config", ROOT / "configs/portable.toml"], [LENGTH, 4 * LENGTH]),
    "bloom-shared": ("bloom", "byte", ["--config", ROOT / "configs/portable.toml", "--kv-heads", 2, "--ffn", 100, "--no-tied"], [LENGTH]),
    "mpt": ("mpt", "bpe", GELU, [LENGTH, 4 * LENGTH]),
    "mpt-clipped": ("mpt", "byte", [*GELU, "--no-bias", "--clip-qkv", 1.5, "--norm-epsilon", 1e-3], [LENGTH]),
    "mpt-shared": ("mpt", "byte", [*GELU, "--kv-heads", 3, "--no-tied", "--ffn", 200], [LENGTH]),
    "mpt-slopes": ("mpt", "byte", [*GELU, "--alibi-slopes", "0.5,0.25,0.125,0.0625,0.70710678,0.35355339"], [4 * LENGTH]),
    "gptneox": ("gptneox", "bpe", [*ROTARY, "--rotary-fraction", 0.5, "--parallel-residual", "--ffn", 100], [LENGTH]),
    "gptneox-serial": ("gptneox", "byte", [*ROTARY, "--no-tied", "--rotary-base", 500, "--kv-heads", 2], [LENGTH, 2 * LENGTH]),
    "llama": ("llama", "bpe", [*GATED, "--kv-heads", 2, "--ffn", 160], [LENGTH]),
    "llama-untied": ("llama", "byte", [*GATED, "--no-tied", "--rotary-base", 50000, "--norm-epsilon", 1e-6], [LENGTH, 2 * LENGTH]),
    "gpt2": ("gpt2", "bpe", [*GELU, "--position", "learned"], [LENGTH]),
    "gpt2-untied": ("gpt2", "byte", [*GELU, "--position", "learned", "--no-tied", "--ffn", 100], [LENGTH]),
}
HOSTILE = ROOT / "tests/fixtures/tokenizers/texts.json"


def printed(tool, *arguments):
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{tool} {' '.join(map(str, arguments))}\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


class Tools:
    def __init__(self, perplexity):
        self.perplexity, self.tokenize = perplexity, pathlib.Path(perplexity).with_name("llama-tokenize")

    def chunks(self, model, text, length):
        """Mean losses over the first 1, 2, .. chunks."""
        for _ in range(5):  # on a busy machine the last of its lines are lost now and then
            out = printed(self.perplexity, "-m", model, "-f", text, "-c", length, "-b", length, "-ub", length, "-t", 1, "--no-warmup",
                          "-fa", "off", "-ctk", "f32", "-ctv", "f32")
            count = int(re.search(r"perplexity over (\d+) chunks", out)[1])
            means = {int(k): float(p) for k, p in re.findall(r"\[(\d+)\]([\d.]+),", out)}
            if len(means) == count:
                return [math.log(means[k + 1]) for k in range(count)]
        sys.exit(f"llama-perplexity printed {len(means)} of {count} perplexities:\n{out[-3000:]}")

    def ids(self, model, text):
        with tempfile.NamedTemporaryFile() as file:
            pathlib.Path(file.name).write_bytes(text.encode())
            return json.loads(subprocess.run([self.tokenize, "-m", model, "-f", file.name, "--ids", "--no-bos", "--no-escape",
                                              "--no-parse-special", "--log-disable"], check=True, capture_output=True, text=True).stdout)


def data_of(work, tokenizer):
    """Trained and scored on the same text, as one document: what counts is that both programs compute the same."""
    out = work / f"llama-{tokenizer}"
    if not out.exists():
        longshot("prepare", "--train", TEXT / "train.txt", "--valid", TEXT / "train.txt", "--format", "text", "--tokenizer", tokenizer,
                 "--vocab-size", 400, "--out", out)
    return out


def losses_of(work, run, data, length):
    """Of every target, and its id."""
    file = work / "losses.csv"
    longshot("eval", run, "--data", data, "--lengths", length, "--score", "all", "--losses", file)
    rows = list(csv.reader(file.open()))[1:]
    return [float(row[2]) for row in rows], [int(row[1]) for row in rows]


def second_halves(losses, length, count):
    """Mean losses over the first 1, 2, .. count windows, of their targets n / 2 to n - 2."""
    total, means = 0.0, []
    for k in range(count):
        total += sum(losses[k * length + length // 2:(k + 1) * length - 1])
        means.append(total / ((k + 1) * (length - 1 - length // 2)))
    return means


def without_first(means):
    return (len(means) * means[-1] - means[0]) / (len(means) - 1)


def compare(tools, work, name, model, run, length, most):
    architecture, tokenizer = MODELS[name][:2]
    losses, ids = losses_of(work, run, data_of(work, tokenizer), length)
    text = work / "text.txt"
    text.write_bytes(b"\n" + (TEXT / "train.txt").read_bytes())
    theirs_ids = tools.ids(model, text.read_text())
    if theirs_ids[1:] != ids[:len(theirs_ids) - 1]:
        sys.exit(f"llama.cpp, {name}: the ids of the text differ: {theirs_ids[:9]}, {ids[:9]}")
    theirs = tools.chunks(model, text, length)
    ours = second_halves(losses, length, len(theirs))
    a, b = (ours[-1], theirs[-1]) if tokenizer == "byte" else (without_first(ours), without_first(theirs))
    difference = abs(math.exp(b - a) - 1)
    print(f"llama.cpp, {name} as {architecture}, length {length}: {math.exp(b):.4f}, here {math.exp(a):.4f}, difference {difference:.1g} "
          f"over {len(theirs)} chunks")
    if not difference <= most:
        sys.exit(f"they differ by more than {most}")


def same_ids(tools, work, name, model, tokenizer):
    """Texts of many kinds of difficulties, each a document, by `longshot prepare` and by llama.cpp."""
    texts = [text for text in json.loads(HOSTILE.read_text()) if text]
    file, out = work / "hostile.jsonl", work / f"hostile-{name}"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    longshot("prepare", "--train", file, "--valid", file, "--tokenizer", tokenizer, "--out", out)
    found = Tokens(out / "valid.tokens")
    begins = [*found.documents.tolist(), len(found.ids)]
    assert len(begins) == len(texts) + 1
    for text, first, last in zip(texts, begins, begins[1:]):
        ours, theirs = found.ids[first:last].tolist(), tools.ids(model, text)
        if ours[:len(theirs)] != theirs or len(ours) - len(theirs) > 1:  # one ends the document
            sys.exit(f"llama.cpp, {name}, ids of {text!r}: {theirs[:12]}, here {ours[:12]}")
    print(f"llama.cpp, {name}: the ids of {len(texts)} texts are equal")


def check_types(tools, work, name):
    """The same weights, rounded alike, in both programs: what was exported is imported again."""
    run = work / f"llama-run-{name}"
    for kind, most in ROUNDED.items():
        model, again = work / f"{name}-{kind}.gguf", work / f"{name}-{kind}"
        longshot("export", run, "--format", "gguf", "--type", kind, "--out", model)
        longshot("import", model, "--out", again)
        print(kind, end=": ")
        compare(tools, work, name, model, again, LENGTH, most)


def check_pieces(tools, work):
    """Pieces with scores, which none of ours has: those of a fixture, imported and exported again."""
    run, model = work / "pieces", work / "pieces.gguf"
    longshot("import", ROOT / "tests/fixtures/gguf/models/llama.gguf", "--out", run)
    longshot("export", run, "--format", "gguf", "--out", model)
    same_ids(tools, work, "pieces", model, run / "checkpoints/step-00000000/tokenizer.json")


def check(tools, work):
    for name, (architecture, tokenizer, options, lengths) in MODELS.items():
        run, model = work / f"llama-run-{name}", work / f"{name}.gguf"
        longshot("train", "--data", data_of(work, tokenizer), "--out", run, *options, *SIZE)
        longshot("export", run, "--format", "gguf", "--out", model)
        found = re.search(r"general.architecture *= *(\S+)", printed(PROGRAM, "info", model))[1]
        if found != architecture:
            sys.exit(f"{name} was exported as {found}, not as {architecture}")
        for length in lengths:
            compare(tools, work, name, model, run, length, MOST)
        if name in ("portable", "mpt-clipped"):
            same_ids(tools, work, name, model, data_of(work, tokenizer))
    check_types(tools, work, "portable")
    check_pieces(tools, work)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        check(Tools(os.environ["LLAMA_PERPLEXITY"]), pathlib.Path(directory))
