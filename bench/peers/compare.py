#!/usr/bin/python3
"""Longshot and PyTorch side by side: the same model, the same initial weights, the same batch.

    bench/peers/compare.py LONGSHOT OUT_DIR

Each row runs both programs in turn, PEER_ROUNDS (3) times, and takes the medians. A row whose losses differ by more than 1e-4
relative is reported as such instead of being timed. Where ALIBI_REFERENCE names a checkout of the ALiBi authors' repository, their
own code is a peer as well (rows "fairseq"; see fairseq_step.py). Writes OUT_DIR/peers.json.
"""
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REFERENCE = os.environ.get("ALIBI_REFERENCE")
ROUNDS = int(os.environ.get("PEER_ROUNDS", "3"))
SMALL = {"layers": 4, "dim": 256, "heads": 8, "ffn": 1024, "vocab": 8192}
LARGE = {"layers": 8, "dim": 512, "heads": 8, "ffn": 2048, "vocab": 16384}
ADAPTIVE = {"layers": 6, "dim": 512, "heads": 8, "ffn": 2048, "vocab": 26912, "adaptive-cutoffs": "4000,12000"}
DROPOUT = {"dropout": 0.3, "attention-dropout": 0.1, "activation-dropout": 0.1, "adaptive-dropout": 0.2}  # the paper's
ROWS = [("train", LARGE, 512, 2048), ("train", SMALL, 256, 4096), ("train", SMALL, 1024, 4096), ("train", SMALL, 4096, 4096),
        ("eval", SMALL, 512, 512), ("eval", SMALL, 2048, 2048), ("eval", SMALL, 8192, 8192), ("eval", SMALL, 16384, 16384),
        ("train", ADAPTIVE, 512, 2048), ("train", ADAPTIVE, 2048, 2048), ("eval", ADAPTIVE, 512, 512), ("eval", ADAPTIVE, 4096, 4096)]
if REFERENCE:
    ROWS += [("train", {**ADAPTIVE, **DROPOUT}, 512, 2048), ("train", {**ADAPTIVE, **DROPOUT}, 2048, 2048)]


def run_longshot(program, out, task, model, length, tokens):
    path = os.path.join(out, "row.json")
    weights = os.path.join(out, "weights.safetensors")
    command = [program, "bench", "--json", path, "--length", str(length), "--batch-tokens", str(tokens), "--repeat", "3"]
    command += ["--what", "step", "--save-weights", weights] if task == "train" else ["--what", "eval", "--eval-lengths", str(length)]
    for key, value in model.items():
        command += [f"--{key}", str(value)]
    if "dropout" in model:
        command += ["--embedding-dropout", str(model["dropout"])]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(path) as file:
        record = json.load(file)["step" if task == "train" else "eval"][0]
    return weights, record


def run_torch(task, model, length, tokens, weights):
    command = [os.path.join(HERE, "torch_bench.py"), "--length", str(length), "--tokens", str(tokens), "--position", "alibi",
               "--task", task, "--repeat", "2", "--weights", weights]
    for key, value in model.items():
        command += [f"--{key}", str(value)]
    if REFERENCE and "adaptive-cutoffs" in model:
        command += ["--attention", "fairseq" if "dropout" in model else "reference,sdpa,fairseq", "--fairseq", REFERENCE]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def main():
    program, out = sys.argv[1:3]
    results = []
    print("\nPyTorch beside Longshot; a: adaptive input and softmax, d: the paper's dropouts (then losses cannot be compared)")
    print(f"{'':6}{'model':>12}{'L':>7} {'attention':>10} {'Longshot':>10} {'PyTorch':>10} {'ratio':>7} {'memory':>17}")
    for task, model, length, tokens in ROWS:
        ours, theirs = [], {}
        weights, _ = run_longshot(program, out, "train", model, min(length, 512), min(tokens, 512))
        for _ in range(ROUNDS):
            ours.append(run_longshot(program, out, task, model, length, tokens)[1])
            for line in run_torch(task, model, length, tokens, weights):
                theirs.setdefault(line["attention"], []).append(line)
        for attention, lines in theirs.items():
            name = f"{model['layers']}x{model['dim']}" + ("a" if "adaptive-cutoffs" in model else "") + ("d" if "dropout" in model else "")
            row = {"task": task, "model": model, "length": length, "attention": attention,
                   "longshot_tokens_per_second": statistics.median(r["tokens_per_second"] for r in ours),
                   "longshot_memory_bytes": max(r["peak_memory_bytes"] for r in ours)}
            head = f"{task:6}{name:>12}{length:>7} {attention:>10} {row['longshot_tokens_per_second']:>10.0f}"
            if "skipped" in lines[0]:
                row["skipped"] = lines[0]["skipped"]
                print(f"{head} {row['skipped']}")
            elif "dropout" not in model and abs(lines[0]["loss"] - ours[0]["first_loss"]) > 1e-4 * abs(lines[0]["loss"]):
                row["losses_differ"] = [ours[0]["first_loss"], lines[0]["loss"]]
                print(f"{head} the losses differ: {row['losses_differ']}")
            else:
                row["torch_tokens_per_second"] = statistics.median(r["tokens_per_second"] for r in lines)
                row["torch_memory_bytes"] = max(r["peak_memory_bytes"] for r in lines)
                row["ratio"] = row["longshot_tokens_per_second"] / row["torch_tokens_per_second"]
                row["version"], row["blas"] = lines[0]["version"], lines[0]["blas"]
                memory = f"{row['longshot_memory_bytes'] / 2**20:.0f} / {row['torch_memory_bytes'] / 2**20:.0f} MiB"
                print(f"{head} {row['torch_tokens_per_second']:>10.0f} {row['ratio']:>6.2f}x {memory:>17}", flush=True)
            results.append(row)
    with open(os.path.join(out, "peers.json"), "w") as file:
        json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
