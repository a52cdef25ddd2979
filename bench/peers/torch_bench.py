#!/usr/bin/python3
"""Speed and memory of the same language model in PyTorch, as a peer to compare with.

    bench/peers/torch_bench.py --layers 4 --dim 256 --heads 8 --ffn 1024 --vocab 8192
        --length 256,1024,4096 --tokens 4096 --position alibi,none --task train,eval

Lists are separated by commas; every combination of position, length, attention, precision and task is one measurement, made in a
fresh process, and prints one JSON line on stdout; a process that dies is a line as well. Errors go to stderr. Exit code 0 also when measurements were
skipped, 1 for a batch file that cannot be read, 2 for wrong usage.

    --layers --dim --heads --ffn --vocab N     the model: pre-norm LayerNorm, ReLU, biases, final norm, output tied to the
                                               embeddings, embeddings times sqrt(dim), float32, no dropout
    --adaptive-cutoffs N,..                    adaptive input and softmax as in fairseq: bands of words begin at 0 and at these,
                                               each with vectors a quarter as long as those of the band before
    --length L,..       tokens of a sequence
    --tokens N          tokens of a step: max(1, N / L) sequences of L
    --position P,..     alibi, none, rotary (interleaved), t5 (32 buckets, 128), sinusoidal (fairseq's)       [alibi]
    --attention A,..    reference: as the ALiBi authors' fairseq runs it. The mask is a tensor [B*H, T, T] of bias plus
                        causal -inf (no bias: [1, T, T]; t5: [1, H, T, T], made in every step), added to the scores.
                        sdpa: torch.nn.functional.scaled_dot_product_attention with the mask as attn_mask, or
                        is_causal without bias. compiled: the same through torch.compile, which wants a C++ compiler.
                        flex: FlexAttention, compiled; alibi and evaluation only, it has no backward pass on CPUs.
                        fairseq: not this program's model but the authors' own code (see fairseq_step.py), its NAG
                        and its scorer; adaptive models with alibi only                              [reference,sdpa]
    --fairseq DIR       a checkout of the authors' repository, for --attention fairseq
    --precision P,..    f32, or bf16: forward and loss under torch.autocast("cpu", dtype=torch.bfloat16), parameters and optimizer in
                        float32. Its attention rounds the mask too, and so a bias of positions                            [f32]
    --dropout P, --attention-dropout P, --activation-dropout P, --adaptive-dropout P
                        in training, with --attention fairseq only; the first also on the embeddings                 [0]
    --task T,..         train: forward, backward, clipping to norm 1, AdamW (fused where PyTorch has it). eval: forward
                        and loss                                                                            [train,eval]
    --weights FILE      initial parameters: a model.safetensors of Longshot or a golden of tests/goldens  [random]
    --batch FILE        safetensors with ids and targets, I32 [B, T]; replaces --length and --tokens
    --seed N            of the random weights, and of the batch without --batch: token n of the stream is
                        random_bits(N, Stream::kTest, n) % vocab of src/base/rng.h; ids are the tokens 0 .. B*T - 1 in
                        rows of T, targets the tokens 1 .. B*T in the same rows                                        [1]
    --threads N                                                                                                        [2]
    --warmup N          steps before the clock starts (compiled: at least 2); the first gives the loss                 [1]
    --repeat N          steps timed, each on its own                                                                   [5]
    --seconds S         no further timed step once S seconds are spent on them (at least one is done)                 [60]
    --memory BYTES      skip what is estimated to need more                                    [90% of what is available]

A line has the fields
    peer "torch", version, blas (the library file that is loaded), task, attention, precision, position, layers, dim, heads, ffn,
    vocab, length, sequences, tokens (= sequences * length), parameters, threads, estimated_bytes, and then either
    skipped (why), or
    loss (mean nats per target of the first step, before any update: equal weights and batch give an equal loss),
    seconds (each timed step), seconds_per_step (median), tokens_per_second (of the median),
    peak_memory_bytes (largest resident set of the process), base_memory_bytes (resident after importing PyTorch).
"""
import argparse
import itertools
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import time

from safetensors_file import SafeTensors, Skip
from torch_model import bands, make_batch, make_parameters, make_step, parameter_shapes

POSITIONS = ("alibi", "none", "rotary", "t5", "sinusoidal")
ATTENTIONS = ("reference", "sdpa", "compiled", "flex", "fairseq")
PRECISIONS = ("f32", "bf16")
TASKS = ("train", "eval")
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "adaptive_dropout")


# ---- one measurement -----------------------------------------------------------------------------------------------

def estimated_bytes(c):
    """Float counts of what PyTorch holds at its peak: mask, scores (where attention stores them), logits, activations, parameters."""
    rows, vocab = c.sequences * c.length, max([end - first for first, end in bands(c)], default=c.vocab)
    one_mask = c.heads * c.length ** 2
    square = 0 if c.attention in ("sdpa", "compiled", "flex") and c.position != "t5" else c.sequences * one_mask
    mask = {"alibi": square or one_mask, "t5": 2 * one_mask}.get(c.position, c.length ** 2) if c.attention != "flex" else 0
    parameters = sum(math.prod(shape) for shape in parameter_shapes(c).values())
    if c.task == "eval":
        floats = mask + 2 * square + 2 * rows * vocab + rows * (8 * c.dim + 2 * c.ffn) + parameters
    else:
        activations = c.layers * rows * (14 * c.dim + 2 * c.ffn)
        floats = mask + (c.layers + 2) * square + 3 * rows * vocab + activations + 5 * parameters
    return 4 * floats + (250 << 20)


def available_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def loaded_blas(config):
    if "USE_MKL=ON" in config:
        return "MKL, inside PyTorch"
    with open("/proc/self/maps") as file:
        paths = {line.split()[-1] for line in file if "blas" in line.rsplit("/", 1)[-1]}
    return ", ".join(sorted(paths)) or "inside PyTorch"


def measure(c):
    """Everything of the line that needs PyTorch."""
    try:
        import torch
    except ImportError as error:
        raise Skip(f"PyTorch is not installed for {sys.executable} ({error})")
    torch.set_num_threads(c.threads)
    report = dict(version=torch.__version__, blas=loaded_blas(torch.__config__.show()), base_memory_bytes=peak_bytes())
    if c.attention in ("sdpa", "compiled", "flex") and not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        raise Skip(f"PyTorch {torch.__version__} has no scaled_dot_product_attention")
    if c.attention == "flex" and (c.task == "train" or c.position != "alibi"):
        raise Skip("FlexAttention is for evaluation with alibi here")
    if c.attention == "fairseq":
        import fairseq_step
        step = fairseq_step.make_step(c, make_parameters(c), *make_batch(c))
    else:
        step = make_step(c)
    losses = [step() for _ in range(max(c.warmup, 2) if c.attention in ("compiled", "flex") else c.warmup)]
    seconds = []
    while len(seconds) < c.repeat and (not seconds or sum(seconds) < c.seconds):
        begin = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    return dict(report, loss=losses[0], seconds=[round(s, 6) for s in seconds], seconds_per_step=round(median, 6),
                tokens_per_second=round(c.tokens / median, 1), peak_memory_bytes=peak_bytes())


def cause_of(code):
    if code >= 0:
        return f"code {code}"
    meanings = {signal.SIGKILL: "out of memory?", signal.SIGILL: "an instruction that this machine does not let it run"}
    name = signal.Signals(-code).name
    return f"{name} ({meanings[-code]})" if -code in meanings else name


def run_apart(c):
    """measure(c) in a process of its own. This process stays small: Linux hands its peak memory on to its children."""
    threads = str(c.threads)
    environment = dict(os.environ, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
    done = subprocess.run([sys.executable, __file__, "--measure", json.dumps(vars(c))], env=environment,
                          stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Skip(f"PyTorch's process ended with {cause_of(done.returncode)}")
    return json.loads(done.stdout)


def line_of(c):
    line = {key: getattr(c, key) for key in ("task", "attention", "precision", "position", "layers", "dim", "heads", "ffn", "vocab",
                                             "length", "sequences", "tokens", "threads")}
    line = dict(peer="torch", **line, parameters=sum(math.prod(s) for s in parameter_shapes(c).values()),
                estimated_bytes=estimated_bytes(c))
    limit = c.memory or int(0.9 * available_bytes())
    try:
        if line["estimated_bytes"] > limit:
            raise Skip(f"needs about {line['estimated_bytes'] / 2**30:.1f} GiB, the limit is {limit / 2**30:.1f} GiB")
        return {**line, **run_apart(c)}
    except Skip as reason:
        return {**line, "skipped": str(reason)}


# ---- command line --------------------------------------------------------------------------------------------------

def parse(arguments):
    def positive(text):
        value = int(text)
        if value < 1:
            raise argparse.ArgumentTypeError(f"{value} is not positive")
        return value

    def list_of(item, choices=None):
        def convert(text):
            values = [item(part) for part in text.split(",")]
            for value in values:
                if choices and value not in choices:
                    raise argparse.ArgumentTypeError(f"'{value}' is none of {', '.join(choices)}")
            return values
        return convert

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="torch_bench.py OPTIONS", allow_abbrev=False)
    for name in ("layers", "dim", "heads", "ffn", "vocab"):
        parser.add_argument("--" + name, type=positive, required=True)
    parser.add_argument("--adaptive-cutoffs", type=list_of(positive), default=[])
    parser.add_argument("--length", type=list_of(positive))
    parser.add_argument("--tokens", type=positive)
    parser.add_argument("--position", type=list_of(str, POSITIONS), default=["alibi"])
    parser.add_argument("--attention", type=list_of(str, ATTENTIONS), default=["reference", "sdpa"])
    parser.add_argument("--fairseq")
    parser.add_argument("--precision", type=list_of(str, PRECISIONS), default=["f32"])
    parser.add_argument("--task", type=list_of(str, TASKS), default=list(TASKS))
    for name in DROPOUTS:
        parser.add_argument("--" + name.replace("_", "-"), type=float, default=0.0)
    parser.add_argument("--weights")
    parser.add_argument("--batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument("--warmup", type=positive, default=1)
    parser.add_argument("--repeat", type=positive, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--memory", type=positive)
    options = parser.parse_args(arguments)
    if options.dim % (2 * options.heads):
        parser.error(f"--dim {options.dim} is not an even multiple of --heads {options.heads}")
    if bool(options.batch) == bool(options.length and options.tokens):
        parser.error("give either --batch or both --length and --tokens")
    if "fairseq" in options.attention and not (options.fairseq and options.adaptive_cutoffs and options.position == ["alibi"]):
        parser.error("--attention fairseq wants --fairseq DIR, --adaptive-cutoffs and --position alibi")
    if options.attention != ["fairseq"] and any(getattr(options, name) for name in DROPOUTS):
        parser.error("dropout wants --attention fairseq")
    if "fairseq" in options.attention and options.precision != ["f32"]:
        parser.error("--attention fairseq has --precision f32")
    for path in filter(None, (options.weights, options.batch)):
        if not os.path.isfile(path):
            parser.error(f"{path} is not a file")
    return options


def measurements(options):
    """The options of each single measurement."""
    if options.batch:
        shapes = [SafeTensors(options.batch).shape("ids")]
    else:
        shapes = [(max(1, options.tokens // length), length) for length in options.length]
    for position, (sequences, length), attention, precision, task in itertools.product(
            options.position, shapes, options.attention, options.precision, options.task):
        yield argparse.Namespace(**{**vars(options), "position": position, "length": length, "sequences": sequences,
                                    "tokens": sequences * length, "attention": attention, "precision": precision, "task": task})


def main():
    if sys.argv[1:2] == ["--measure"]:
        try:
            report = measure(argparse.Namespace(**json.loads(sys.argv[2])))
        except Skip as reason:
            report = dict(skipped=str(reason))
        print(json.dumps(report))
        return
    try:
        for c in measurements(parse(sys.argv[1:])):
            print(json.dumps(line_of(c)), flush=True)
    except Skip as reason:  # the batch file cannot be read: there is no length to report on
        sys.exit(f"torch_bench.py: {reason}")


if __name__ == "__main__":
    main()
