"""What clients/run calls: `clients.py LONGSHOT TEXT_DIR`."""
import json
import pathlib
import sys
import tempfile

import numpy
import sentencepiece
import tokenizers
from safetensors.numpy import load_file

import event_files
import openai_server
import results_frame
import torch_models
from common import MODEL, TEXT, longshot, prepared
from torch_models import Tokens


def same(what, ours, theirs):
    if list(ours) != list(theirs):
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        sys.exit(f"{what}: id {at} of {len(ours)} and {len(theirs)} differs: {list(ours[at:at + 5])}, {list(theirs[at:at + 5])}")
    print(f"{what}: {len(ours)} ids equal")


def main():
    with tempfile.TemporaryDirectory() as directory:
        check(pathlib.Path(directory))


def check(work):
    text = (TEXT / "valid.txt").read_text()

    bpe = prepared(work, "bpe")
    theirs = tokenizers.Tokenizer.from_file(str(bpe / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    same("tokenizers, BPE", Tokens(bpe / "valid.tokens").ids.tolist()[:len(theirs)], theirs)

    pieces = prepared(work, "sentencepiece")
    model = sentencepiece.SentencePieceProcessor(model_file=str(pieces / "tokenizer.model"))
    ours = Tokens(pieces / "valid.tokens").ids.tolist()
    if model.decode([i for i in ours if i < model.vocab_size()]).split() != text.split():
        sys.exit("sentencepiece: its own decoder does not give the text back")
    print(f"sentencepiece: {len(ours)} ids decoded to the text")

    run = work / "run"
    longshot("train", "--data", bpe, "--out", run, *MODEL, "--steps", 5)
    checkpoint = run / "checkpoints/step-00000005"
    weights = load_file(checkpoint / "model.safetensors")
    parameters = sum(w.size for w in weights.values())
    vocab = json.loads((bpe / "tokenizer.json").read_text())["model"]["vocab"]
    if weights["embed.weight"].shape != (len(vocab), 16) or not all(numpy.isfinite(w).all() for w in weights.values()):
        sys.exit(f"safetensors: embed.weight {weights['embed.weight'].shape}, vocabulary {len(vocab)}")
    print(f"safetensors: {len(weights)} tensors, {parameters} parameters, all finite")

    openai_server.check(work)
    event_files.check(work)
    results_frame.check(work, bpe)
    torch_models.check(work)


main()
