#!/usr/bin/python3
"""Longshot and PyTorch side by side: the same model, the same initial weights, the same batch.

    bench/peers/compare.py LONGSHOT OUT_DIR [ROW ..]

Each row runs all programs in turn, PEER_ROUNDS (3) times, and takes the medians, of ratios too. A row whose losses differ by more
than 1e-4 relative is reported as such instead of being timed; in bf16 (rows "b": --precision bf16 beside torch.autocast) by more than
3e-4: the two round different things, PyTorch the logits and the bias of positions as well. TORCH_PYTHON names the Python whose PyTorch is the peer, or several,
separated by commas (/usr/bin/python3, Debian's). PyTorch 1 runs the mask as the ALiBi authors made it; PyTorch 2 runs
scaled_dot_product_attention, the same compiled and, in evaluation, compiled FlexAttention; the fastest of a version is marked * and
counts. Where ALIBI_REFERENCE names a checkout of the ALiBi authors' repository, their own code is a peer as well (rows "fairseq"; see
fairseq_step.py). ROW: names like train-8x512-512; all without. Writes OUT_DIR/peers.json.
"""
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REFERENCE = os.environ.get("ALIBI_REFERENCE")
PYTHONS = os.environ.get("TORCH_PYTHON", "/usr/bin/python3").split(",")
ROUNDS = int(os.environ.get("PEER_ROUNDS", "3"))
SMALL = {"layers": 4, "dim": 256, "heads": 8, "ffn": 1024, "vocab": 8192}
LARGE = {"layers": 8, "dim": 512, "heads": 8, "ffn": 2048, "vocab": 16384}
ADAPTIVE = {"layers": 6, "dim": 512, "heads": 8, "ffn": 2048, "vocab": 26912, "adaptive-cutoffs": "4000,12000"}
DROPOUT = {"dropout": 0.3, "attention-dropout": 0.1, "activation-dropout": 0.1, "adaptive-dropout": 0.2}  # the paper's
BF16 = {"precision": "bf16"}
ROWS = [("train", LARGE, 512, 2048), ("train", SMALL, 256, 4096), ("train", SMALL, 1024, 4096), ("train", SMALL, 4096, 4096),
        ("eval", SMALL, 512, 512), ("eval", SMALL, 2048, 2048), ("eval", SMALL, 8192, 8192), ("eval", SMALL, 16384, 16384),
        ("train", {**LARGE, **BF16}, 512, 2048), ("train", {**SMALL, **BF16}, 1024, 4096), ("eval", {**SMALL, **BF16}, 512, 512),
        ("eval", {**SMALL, **BF16}, 2048, 2048),
        ("train", ADAPTIVE, 512, 2048), ("train", ADAPTIVE, 2048, 2048), ("eval", ADAPTIVE, 512, 512), ("eval", ADAPTIVE, 4096, 4096)]
if REFERENCE:
    ROWS += [("train", {**ADAPTIVE, **DROPOUT}, 512, 2048), ("train", {**ADAPTIVE, **DROPOUT}, 2048, 2048)]


def model_name(model):
    marks = {"a": "adaptive-cutoffs", "b": "precision", "d": "dropout"}
    return f"{model['layers']}x{model['dim']}" + "".join(mark for mark, key in marks.items() if key in model)


def row_name(row):
    task, model, length, _ = row
    return f"{task}-{model_name(model)}-{length}"


def torch_version(python):
    """Its major number, or None where there is no PyTorch."""
    done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True)
    return int(done.stdout.split(".")[0]) if done.returncode == 0 else None


def attentions(major, task, model):
    """The ways in which users of that version would run a row."""
    if "dropout" in model:
        return ["fairseq"]
    ways = ["reference"] if major < 2 else ["sdpa", "compiled"] + (["flex"] if task == "eval" else [])
    return ways + (["fairseq"] if REFERENCE and "adaptive-cutoffs" in model and major < 2 else [])


def run_longshot(program, out, row):
    task, model, length, tokens = row
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


def run_torch(python, ways, row, weights):
    task, model, length, tokens = row
    command = [python, os.path.join(HERE, "torch_bench.py"), "--length", str(length), "--tokens", str(tokens), "--position", "alibi",
               "--task", task, "--repeat", "3", "--weights", weights, "--attention", ",".join(ways)]
    for key, value in model.items():
        command += [f"--{key}", str(value)]
    if "fairseq" in ways:
        command += ["--fairseq", REFERENCE]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def summary(row, ours, lines):
    """What the rounds of one row and one way of running it in PyTorch say."""
    task, model, length, _ = row
    found = {"task": task, "model": model, "length": length, "attention": lines[0]["attention"],
             "longshot_tokens_per_second": statistics.median(r["tokens_per_second"] for r in ours),
             "longshot_memory_bytes": max(r["peak_memory_bytes"] for r in ours)}
    skipped = [line["skipped"] for line in lines if "skipped" in line]
    if skipped:
        return {**found, "skipped": skipped[0]}
    most = (3e-4 if "precision" in model else 1e-4) * abs(lines[0]["loss"])
    if "dropout" not in model and abs(lines[0]["loss"] - ours[0]["first_loss"]) > most:
        return {**found, "losses_differ": [ours[0]["first_loss"], lines[0]["loss"]]}
    ratios = [a["tokens_per_second"] / b["tokens_per_second"] for a, b in zip(ours, lines)]
    return {**found, "torch_tokens_per_second": statistics.median(r["tokens_per_second"] for r in lines),
            "torch_memory_bytes": max(r["peak_memory_bytes"] for r in lines), "ratio": statistics.median(ratios), "ratios": ratios,
            "version": lines[0]["version"], "blas": lines[0]["blas"]}


def show(found, best):
    head = (f"{found['task']:6}{model_name(found['model']):>8}{found['length']:>7} {found.get('version', ''):>12} {found['attention']:>10}"
            f" {found['longshot_tokens_per_second']:>10.0f}")
    if "ratio" not in found:
        print(f"{head} {found.get('skipped') or 'the losses differ: ' + str(found['losses_differ'])}", flush=True)
        return
    memory = f"{found['longshot_memory_bytes'] / 2**20:.0f} / {found['torch_memory_bytes'] / 2**20:.0f} MiB"
    print(f"{head} {found['torch_tokens_per_second']:>10.0f} {found['ratio']:>6.2f}x{'*' if best else ' '} {memory:>17}", flush=True)


def measure(program, out, row, peers):
    """The summaries of a row: one for each Python and way."""
    task, model, length, tokens = row
    ours, theirs = [], {}
    weights, _ = run_longshot(program, out, ("train", model, min(length, 512), min(tokens, 512)))
    for _ in range(ROUNDS):
        ours.append(run_longshot(program, out, row)[1])
        for python, major in peers.items():
            for line in run_torch(python, attentions(major, task, model), row, weights):
                theirs.setdefault((python, line["attention"]), []).append(line)
    found = []
    for python in peers:
        mine = [summary(row, ours, lines) for (of, _), lines in theirs.items() if of == python]
        timed = [f for f in mine if "ratio" in f]
        best = max(timed, key=lambda f: f["torch_tokens_per_second"]) if timed else None
        for f in mine:
            f["best"] = f is best
            show(f, f["best"])
        found += mine
    return found


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, out, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    unknown = set(wanted) - {row_name(row) for row in ROWS}
    if unknown:
        sys.exit(f"compare.py: no row {', '.join(sorted(unknown))}; there are {', '.join(row_name(row) for row in ROWS)}")
    peers = {python: torch_version(python) for python in PYTHONS}
    for python in [p for p, major in peers.items() if major is None]:
        print(f"\nPyTorch: not installed for {python}, skipped")
        del peers[python]
    if not peers:
        return
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, "peers.json")
    results = []
    print("\nPyTorch beside Longshot; a: adaptive input and softmax, b: in bf16 (losses within 3e-4, not 1e-4), d: the paper's dropouts "
          "(then losses cannot be compared)")
    print(f"{'':6}{'model':>8}{'L':>7} {'version':>12} {'attention':>10} {'Longshot':>10} {'PyTorch':>10} {'ratio':>7}  {'memory':>17}")
    for row in ROWS:
        if not wanted or row_name(row) in wanted:
            results += measure(program, out, row, peers)
            with open(path, "w") as file:
                json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
