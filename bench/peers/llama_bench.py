#!/usr/bin/python3
"""Evaluation speed beside llama.cpp: the same ALiBi model, the same weights, the same text.

    bench/peers/llama_bench.py LONGSHOT LLAMA_PERPLEXITY TEXT OUT [LENGTH ..]

LLAMA_PERPLEXITY is llama.cpp's tool of that name; TEXT a plain text file of 1 MB or more. A small model is trained on it for a moment and
exported as GGUF (f32; llama.cpp knows this architecture as MPT), and both programs go through the beginning of TEXT in windows of
each LENGTH (512 2048 8192). llama.cpp scores the second half of each window, Longshot all of it; the perplexities of second
halves are compared before times are. Medians of PEER_ROUNDS (3) interleaved rounds; loading and tokenizing are not counted on
either side. Writes OUT/llama.json.
"""
import json
import math
import os
import re
import statistics
import subprocess
import sys

MODEL = {"layers": 4, "dim": 256, "heads": 8, "ffn": 1024}
ROUNDS = int(os.environ.get("PEER_ROUNDS", "3"))
TRAIN = ["--activation", "gelu", "--no-embed-scale", "--position", "alibi", "--length", "256", "--steps", "30",
         "--batch-tokens", "2048", "--warmup", "10"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"llama_bench.py: {' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def scored(command):
    """What llama-perplexity prints; on a busy machine its last lines are lost now and then."""
    for _ in range(5):
        printed = run(command)
        if "Final estimate" in printed:
            return printed
    sys.exit(f"llama_bench.py: {' '.join(command)}\nprinted no final estimate")


def logged_at(message, printed):
    """Seconds since its start when llama.cpp logged this: minutes.seconds.milliseconds.microseconds stand before it."""
    match = re.search(rf"(\d+)\.(\d+)\.(\d+)\.(\d+) \S+ (?:perplexity: )?{message}", printed)
    minutes, seconds, milli, micro = map(int, match.groups())
    return 60 * minutes + seconds + milli / 1e3 + micro / 1e6


def second_half_perplexity(result, length):
    bins = [b for b in result["per_position"] if b["from"] >= length // 2]
    return math.exp(sum(b["loss"] * b["tokens"] for b in bins) / sum(b["tokens"] for b in bins))


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    longshot, llama, text, out = sys.argv[1:5]
    lengths = [int(a) for a in sys.argv[5:]] or [512, 2048, 8192]
    tokens, checkpoints = os.path.join(out, "llama-tokens"), os.path.join(out, "llama-run")
    if not os.path.isdir(tokens):
        run([longshot, "prepare", "--train", text, "--valid", text, "--format", "text", "--tokenizer", "bpe", "--vocab-size", "8192",
             "--out", tokens])
    if not os.path.isdir(checkpoints):
        shape = [part for key, value in MODEL.items() for part in (f"--{key}", str(value))]
        run([longshot, "train", "--data", tokens, "--out", checkpoints, *shape, *TRAIN])
    model = os.path.join(out, "model.gguf")
    if os.path.exists(model):
        os.remove(model)
    run([longshot, "export", checkpoints, "--format", "gguf", "--out", model])

    rows = []
    print(f"\nllama.cpp beside Longshot, evaluation, {MODEL['layers']}x{MODEL['dim']}")
    print(f"{'L':>6} {'Longshot':>10} {'llama.cpp':>10} {'ratio':>7} {'perplexity':>21}")
    for length in lengths:
        ours, theirs = [], []
        windows = max(4, 16384 // length)
        for _ in range(ROUNDS):
            result = os.path.join(out, "eval.json")
            run([longshot, "eval", checkpoints, "--data", tokens, "--lengths", str(length), "--max-tokens", str(windows * length),
                 "--json", result])
            with open(result) as file:
                evaluated = json.load(file)
            ours.append((evaluated["results"][0]["tokens_per_second"], second_half_perplexity(evaluated, length)))
            printed = scored([llama, "-m", model, "-f", text, "-c", str(length), "-b", str(length), "-ub", "512", "-t", "2", "--chunks",
                           str(windows)])
            seconds = logged_at("Final estimate", printed) - logged_at("calculating perplexity", printed)
            theirs.append((windows * length / seconds, float(re.search(r"PPL = ([\d.]+)", printed)[1])))
        row = {"length": length, "longshot_tokens_per_second": statistics.median(speed for speed, _ in ours),
               "llama_tokens_per_second": statistics.median(speed for speed, _ in theirs),
               "perplexity": [ours[0][1], theirs[0][1]]}
        row["ratio"] = row["longshot_tokens_per_second"] / row["llama_tokens_per_second"]
        rows.append(row)
        same = abs(row["perplexity"][0] / row["perplexity"][1] - 1) < 0.01
        print(f"{length:>6} {row['longshot_tokens_per_second']:>10.0f} {row['llama_tokens_per_second']:>10.0f} {row['ratio']:>6.2f}x"
              f" {row['perplexity'][0]:>10.2f} {row['perplexity'][1]:>10.2f}{'' if same else '  the perplexities differ'}", flush=True)
    with open(os.path.join(out, "llama.json"), "w") as file:
        json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
