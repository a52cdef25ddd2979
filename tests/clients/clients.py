"""What clients/run calls: `clients.py LONGSHOT TEXT_DIR`."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy
import sentencepiece
import tokenizers
from safetensors.numpy import load_file

PROGRAM, TEXT = sys.argv[1], pathlib.Path(sys.argv[2])


def longshot(*arguments):
    subprocess.run([PROGRAM, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tokens(path):
    """Ids of a token file: docs/file-formats.md."""
    data = path.read_bytes()
    width, count = struct.unpack_from("<4xIQ", data, 8)
    return numpy.frombuffer(data, f"<u{width}", count, 64)


def prepared(work, tokenizer):
    out = work / tokenizer
    longshot("prepare", "--train", TEXT / "train.txt", "--valid", TEXT / "valid.txt", "--tokenizer", tokenizer, "--vocab-size", 400, "--out", out)
    return out


def same(what, ours, theirs):
    if list(ours) != list(theirs):
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        sys.exit(f"{what}: id {at} of {len(ours)} and {len(theirs)} differs: {list(ours[at:at + 5])}, {list(theirs[at:at + 5])}")
    print(f"{what}: {len(ours)} ids equal")


def main():
    work = pathlib.Path(tempfile.mkdtemp())
    text = (TEXT / "valid.txt").read_text()

    bpe = prepared(work, "bpe")
    theirs = tokenizers.Tokenizer.from_file(str(bpe / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    same("tokenizers, BPE", tokens(bpe / "valid.tokens")[:len(theirs)], theirs)

    pieces = prepared(work, "sentencepiece")
    model = sentencepiece.SentencePieceProcessor(model_file=str(pieces / "tokenizer.model"))
    ours = tokens(pieces / "valid.tokens")
    if model.decode([int(i) for i in ours if i < model.vocab_size()]).split() != text.split():
        sys.exit("sentencepiece: its own decoder does not give the text back")
    print(f"sentencepiece: {len(ours)} ids decoded to the text")

    run = work / "run"
    longshot("train", "--data", bpe, "--out", run, "--layers", 1, "--dim", 16, "--heads", 2, "--length", 16, "--batch-tokens", 64, "--steps", 5,
             "--warmup", 1)
    checkpoint = run / "checkpoints/step-00000005"
    weights = load_file(checkpoint / "model.safetensors")
    parameters = sum(w.size for w in weights.values())
    vocab = json.loads((bpe / "tokenizer.json").read_text())["model"]["vocab"]
    if weights["embed.weight"].shape != (len(vocab), 16) or not all(numpy.isfinite(w).all() for w in weights.values()):
        sys.exit(f"safetensors: embed.weight {weights['embed.weight'].shape}, vocabulary {len(vocab)}")
    print(f"safetensors: {len(weights)} tensors, {parameters} parameters, all finite")


main()
