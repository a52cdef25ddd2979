"""The program under test, and what the checks share."""
import pathlib
import subprocess
import sys

PROGRAM, TEXT = sys.argv[1], pathlib.Path(sys.argv[2])
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ["--layers", 1, "--dim", 16, "--heads", 2, "--length", 16, "--batch-tokens", 64, "--warmup", 1]


def longshot(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"longshot {' '.join(map(str, arguments))}\n{done.stderr}")


def prepared(work, tokenizer):
    """A token set of the fixtures' text, made once."""
    out = work / tokenizer
    if out.exists():
        return out
    longshot("prepare", "--train", TEXT / "train.txt", "--valid", TEXT / "valid.txt", "--tokenizer", tokenizer, "--vocab-size", 400, "--out", out)
    return out
