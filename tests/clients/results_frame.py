"""The Python snippet of docs/file-formats.md, on the shipped study and on a comparison made here."""
import json
import os
import re
import shutil
import statistics
import sys

import matplotlib

from common import MODEL, ROOT, longshot

matplotlib.use("Agg")


def snippet():
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs/file-formats.md").read_text(), re.DOTALL)
    if len(found) != 1:
        sys.exit(f"docs/file-formats.md has {len(found)} Python snippets, not one")
    return found[0]


def curves_of(results):
    """By hand: perplexity by method and length, the mean over seeds, of the shortest training length."""
    short = min(run["train_length"] for run in results["runs"])
    values = {}
    for run in results["runs"]:
        for e in run["evals"] if run["train_length"] == short else []:
            if e["mode"] == "nonoverlapping":
                method = run.get("label") or run.get("variant") or run["position"]
                values.setdefault(method, {}).setdefault(e["length"], []).append(e["perplexity"])
    return short, {m: {n: statistics.mean(p) for n, p in sorted(curve.items())} for m, curve in values.items()}


def run_snippet(what, folder):
    """In a folder with results.json. The figure must show what is in it, and be written."""
    import matplotlib.pyplot as plt
    results = json.loads((folder / "results.json").read_text())
    plt.close("all")
    here = os.getcwd()
    os.chdir(folder)
    try:
        names = {}
        exec(compile(snippet(), "docs/file-formats.md", "exec"), names)
    finally:
        os.chdir(here)
    if len(names["evals"]) != sum(len(run["evals"]) for run in results["runs"]):
        sys.exit(f"pandas, {what}: {len(names['evals'])} rows")
    short, curves = curves_of(results)
    axes = plt.gcf().axes[0]
    drawn = {line.get_label(): dict(zip(line.get_xdata(), line.get_ydata())) for line in axes.get_lines()}
    marks = [curve for name, curve in drawn.items() if name not in curves]
    if (axes.get_xscale(), axes.get_yscale()) != ("log", "log") or len(marks) != 1 or set(marks[0]) != {short}:
        sys.exit(f"pandas, {what}: not on log axes, or the training length {short} is not marked")
    for method, curve in curves.items():
        if set(drawn.get(method, {})) != set(curve) or any(abs(drawn[method][n] / p - 1) > 1e-9 for n, p in curve.items()):
            sys.exit(f"pandas, {what}: {method} is drawn as {drawn.get(method)}, not as {curve}")
    if not (folder / "perplexity.pdf").read_bytes().startswith(b"%PDF"):
        sys.exit(f"pandas, {what}: no figure")
    print(f"pandas, {what}: {len(names['evals'])} evaluations, {len(curves)} methods drawn")


def check(work, data):
    study = work / "study"
    study.mkdir()
    shutil.copy(ROOT / "docs/reproduction-results.json", study / "results.json")
    run_snippet("the study of docs", study)
    longshot("compare", "--data", data, "--out", work / "compare", *MODEL, "--steps", 5, "--positions", "alibi,sinusoidal,none", "--seeds", "1,2",
             "--test-lengths", "16,32,64")
    run_snippet("a comparison", work / "compare")
