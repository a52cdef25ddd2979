"""A run's event file in TensorBoard's own reader, next to metrics.jsonl."""
import json
import subprocess
import sys
import time

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from common import MODEL, PROGRAM, longshot, prepared

LENGTHS = (8, 48)  # of further validations
TAGS = {"loss/train": "loss", "loss/valid": "valid_loss", "schedule/lr": "lr", "gradient_norm": "gradient_norm",
        "tokens_per_second": "tokens_per_second"}


def expect_same(what, reader, run, but=()):
    """What TensorBoard shows: for every tag the steps and values of the records."""
    reader.Reload()
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    tags = {**TAGS, **{f"loss/valid at {n}": n for n in LENGTHS}}
    if set(reader.Tags()["scalars"]) != set(tags):
        sys.exit(f"TensorBoard, {what}: tags {reader.Tags()['scalars']}")
    for r in records:
        r.update({at["length"]: at["loss"] for at in r.get("valid_losses", [])})
    for tag, field in tags.items():
        if tag in but:
            continue
        shown = reader.Scalars(tag)
        wanted = [(r["step"], float(numpy.float32(r[field]))) for r in records if field in r]
        if [(s.step, s.value) for s in shown] != wanted:
            sys.exit(f"TensorBoard, {what}: {tag} has {len(shown)} values, metrics.jsonl {len(wanted)}, or they differ")
    return records


def expect_training_time(reader, records):
    shown = reader.Scalars("loss/train")
    seconds = [r["seconds"] for r in records if "loss" in r]
    if not numpy.allclose([s.wall_time - shown[0].wall_time for s in shown], numpy.subtract(seconds, seconds[0]), atol=1e-5):
        sys.exit("TensorBoard: relative time is not the time of training")


def kill_at(command, run, records):
    """Starts the command and kills it behind that many records."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        metrics = run / "metrics.jsonl"
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < records:
            if child.poll() is not None:
                sys.exit("TensorBoard: the training that was to be killed has ended")
            time.sleep(0.001)
        child.kill()


def check(work):
    run = work / "events"
    options = ["train", "--data", prepared(work, "byte"), "--out", run, *MODEL, "--log-every", 1, "--save-every", 40, "--keep", 5,
               "--eval-every", 20, "--eval-lengths", ",".join(map(str, LENGTHS)), "--schedule", "constant"]
    kill_at([PROGRAM, *map(str, options), "--steps", "1000000"], run, 100)
    open_all_the_time = EventAccumulator(str(run))
    open_all_the_time.Reload()
    longshot("train", "--resume", "--out", run, "--steps", 2000)
    # Steps that were done again have the same values; the speed it shows is that of the first time.
    expect_same("open while the run was killed and resumed", open_all_the_time, run, but=["tokens_per_second"])
    reader = EventAccumulator(str(run))
    records = expect_same("killed and resumed", reader, run)
    expect_training_time(reader, records)
    longshot("train", "--resume-step", 1960, "--out", run, "--steps", 1980)
    expect_same("gone back", EventAccumulator(str(run)), run)
    expect_same("given up", EventAccumulator(str(run / "abandoned-1")), run / "abandoned-1")
    print(f"TensorBoard: {len(records)} records of a run that was killed and resumed")
