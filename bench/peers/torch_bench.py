#!/usr/bin/python3
"""Speed and memory of the same language model in eager PyTorch, as a peer to compare with.

    bench/peers/torch_bench.py --layers 4 --dim 256 --heads 8 --ffn 1024 --vocab 8192
        --length 256,1024,4096 --tokens 4096 --position alibi,none --task train,eval

Lists are separated by commas; every combination of position, length, attention and task is one measurement, made in a
fresh process, and prints one JSON line on stdout. Errors go to stderr. Exit code 0 also when measurements were
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
                        is_causal without bias. fairseq: not this program's model but the authors' own code (see
                        fairseq_step.py), its NAG and its scorer; adaptive models with alibi only     [reference,sdpa]
    --fairseq DIR       a checkout of the authors' repository, for --attention fairseq
    --dropout P, --attention-dropout P, --activation-dropout P, --adaptive-dropout P
                        in training, with --attention fairseq only; the first also on the embeddings                 [0]
    --task T,..         train: forward, backward, clipping to norm 1, AdamW. eval: forward and loss         [train,eval]
    --weights FILE      initial parameters: a model.safetensors of Longshot or a golden of tests/goldens  [random]
    --batch FILE        safetensors with ids and targets, I32 [B, T]; replaces --length and --tokens
    --seed N            of the random weights, and of the batch without --batch: token n of the stream is
                        random_bits(N, Stream::kTest, n) % vocab of src/base/rng.h; ids are the tokens 0 .. B*T - 1 in
                        rows of T, targets the tokens 1 .. B*T in the same rows                                        [1]
    --threads N                                                                                                        [2]
    --warmup N          steps before the clock starts; the first gives the loss                                        [1]
    --repeat N          steps timed, each on its own                                                                   [5]
    --seconds S         no further timed step once S seconds are spent on them (at least one is done)                 [60]
    --memory BYTES      skip what is estimated to need more                                    [90% of what is available]

A line has the fields
    peer "torch", version, blas (the library file that is loaded), task, attention, position, layers, dim, heads, ffn,
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
import statistics
import subprocess
import sys
import time

from safetensors_file import SafeTensors, Skip

POSITIONS = ("alibi", "none", "rotary", "t5", "sinusoidal")
ATTENTIONS = ("reference", "sdpa", "fairseq")
TASKS = ("train", "eval")
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "adaptive_dropout")
T5_BUCKETS, T5_MAX_DISTANCE = 32, 128
NORM_EPS = 1e-5


# ---- parameters and batch ------------------------------------------------------------------------------------------

def bands(c):
    """[first word, end) of each band; none without cutoffs."""
    edges = [0, *c.adaptive_cutoffs, c.vocab]
    return list(zip(edges, edges[1:])) if c.adaptive_cutoffs else []


def parameter_shapes(c):
    C, F = c.dim, c.ffn
    shapes = {} if c.adaptive_cutoffs else {"embed.weight": (c.vocab, C)}
    for k, (first, end) in enumerate(bands(c)):
        shapes[f"embed.band{k}.weight"] = (end - first, C // 4 ** k)
        shapes[f"embed.band{k}.projection"] = (C, C // 4 ** k)

    def with_bias(name, *shape):
        shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]

    for i in range(c.layers):
        with_bias(f"layers.{i}.attention_norm", C)
        with_bias(f"layers.{i}.attention.qkv", 3 * C, C)
        with_bias(f"layers.{i}.attention.out", C, C)
        with_bias(f"layers.{i}.ffn_norm", C)
        with_bias(f"layers.{i}.ffn.in", F, C)
        with_bias(f"layers.{i}.ffn.out", C, F)
    with_bias("final_norm", C)
    if c.position == "t5":
        shapes["position.bias"] = (1, T5_BUCKETS, c.heads)
    if c.adaptive_cutoffs:
        shapes["output.clusters"] = (len(c.adaptive_cutoffs), C)
    return shapes


def make_parameters(c):
    import torch
    torch.manual_seed(c.seed)
    source = SafeTensors(c.weights) if c.weights else None
    parameters = {}
    for name, shape in parameter_shapes(c).items():
        p = torch.empty(shape)
        if source:
            source.read(name, "F32", p.numpy())
        elif name.endswith("norm.weight"):
            p.fill_(1.0)
        elif name.endswith((".weight", ".projection", ".clusters")) or name.startswith("position."):
            p.normal_(std=0.02)
        else:
            p.zero_()
        parameters[name] = p.requires_grad_()
    return parameters


def mix64(x):
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def make_batch(c):
    """ids, targets [B, T]"""
    import torch
    shape = (c.sequences, c.length)
    if c.batch:
        source = SafeTensors(c.batch)
        ids, targets = (torch.empty(shape, dtype=torch.int32) for _ in range(2))
        source.read("ids", "I32", ids.numpy())
        source.read("targets", "I32", targets.numpy())
        largest = max(ids.max().item(), targets.max().item())
        if largest >= c.vocab or ids.min().item() < 0:
            raise Skip(f"{c.batch}: ids reach from {ids.min().item()} to {largest}, the vocabulary has {c.vocab}")
        return ids.long(), targets.long()
    test_stream = 99
    key = mix64(mix64(c.seed) ^ test_stream)
    stream = torch.tensor([mix64(mix64(key ^ n)) % c.vocab for n in range(c.tokens + 1)])
    return stream[:-1].reshape(shape), stream[1:].reshape(shape)


# ---- positions -----------------------------------------------------------------------------------------------------

def alibi_slopes(heads):
    c = 2 ** int(math.log2(heads))
    return ([2.0 ** (-8.0 * (h + 1) / c) for h in range(c)] +
            [2.0 ** (-4.0 * (2 * h + 1) / c) for h in range(heads - c)])


def t5_buckets(length):
    exact = T5_BUCKETS // 2
    share = [math.log(max(d, exact) / exact) / math.log(T5_MAX_DISTANCE / exact) for d in range(length)]
    return [d if d < exact else min(T5_BUCKETS - 1, exact + int(s * (T5_BUCKETS - exact))) for d, s in enumerate(share)]


class Positions:
    """What the method needs at one length, made once; `mask` and `rotate` are what a step uses."""

    def __init__(self, c):
        import torch
        self.c, T, C, D = c, c.length, c.dim, c.dim // c.heads
        causal = torch.triu(torch.full((T, T), -math.inf), 1)
        self.causal, self.fixed_mask, self.sinusoids = causal[None], causal[None], None
        if c.position == "alibi":
            # A bias by key position, as the reference has it: it differs from -slope * distance by a constant per query.
            bias = torch.tensor(alibi_slopes(c.heads))[:, None, None] * torch.arange(T)[None, None, :]
            sequences = c.sequences if c.attention == "reference" else 1
            self.fixed_mask = causal + bias.repeat(sequences, 1, 1)
        elif c.position == "t5":
            distance = (torch.arange(T)[:, None] - torch.arange(T)[None, :]).clamp(min=0)
            self.bucket = torch.tensor(t5_buckets(T))[distance]
        elif c.position == "rotary":
            angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(0, D, 2) / D)
            self.cos, self.sin = (f.repeat_interleave(2, dim=1) for f in (angle.cos(), angle.sin()))
        elif c.position == "sinusoidal":
            half = C // 2
            angle = torch.arange(2, T + 2)[:, None] * torch.exp(torch.arange(half) * (-math.log(10000.0) / (half - 1)))
            self.sinusoids = torch.cat([angle.sin(), angle.cos()], dim=1)

    def mask(self, parameters):
        """[B*H, T, T], [1, T, T] or, for t5, [1, H, T, T]"""
        if self.c.position != "t5":
            return self.fixed_mask
        return parameters["position.bias"][0][self.bucket].permute(2, 0, 1)[None] + self.causal

    def rotate(self, x):
        """x [.., T, D]: x cos + (-x1, x0, -x3, x2, ..) sin"""
        import torch
        if self.c.position != "rotary":
            return x
        turned = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).reshape(x.shape)
        return x * self.cos + turned * self.sin


# ---- the model -----------------------------------------------------------------------------------------------------

def attend_reference(c, q, k, v, mask):
    """q, k, v [B*H, T, D]"""
    import torch
    q = q * (q.shape[-1] ** -0.5)
    if mask.dim() == 3:
        score = torch.baddbmm(mask, q, k.transpose(1, 2))
    else:
        score = (torch.bmm(q, k.transpose(1, 2)).view(c.sequences, c.heads, c.length, c.length) + mask).flatten(0, 1)
    return torch.bmm(score.softmax(-1), v)


def attend_sdpa(c, q, k, v, mask):
    from torch.nn import functional
    shape = (c.sequences, c.heads, c.length, -1)
    q, k, v = (x.view(shape) for x in (q, k, v))
    if c.position in ("alibi", "t5"):
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.view(1, c.heads, c.length, c.length))
    else:
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.flatten(0, 1)


def embed(c, p, ids):
    """[B, T, C]"""
    import torch
    from torch.nn import functional
    if not c.adaptive_cutoffs:
        return functional.embedding(ids, p["embed.weight"]) * math.sqrt(c.dim)
    x = torch.zeros(*ids.shape, c.dim)
    for k, (first, end) in enumerate(bands(c)):
        mask = (ids >= first) & (ids < end)
        words = functional.embedding(ids[mask] - first, p[f"embed.band{k}.weight"])
        x[mask] = functional.linear(words, p[f"embed.band{k}.projection"])
    return x * math.sqrt(c.dim)


def output_loss(c, p, hidden, targets):
    """Mean over targets; hidden [N, C], targets [N]."""
    import torch
    from torch.nn import functional
    if not c.adaptive_cutoffs:
        return functional.cross_entropy(functional.linear(hidden, p["embed.weight"]), targets, ignore_index=-1)
    head_targets, total = targets.clone(), 0
    for k, (first, end) in enumerate(bands(c)):
        if k == 0:
            continue
        rows = ((targets >= first) & (targets < end)).nonzero().squeeze(1)
        head_targets[rows] = c.adaptive_cutoffs[0] + k - 1
        reduced = hidden.index_select(0, rows) @ p[f"embed.band{k}.projection"]
        logits = functional.linear(reduced, p[f"embed.band{k}.weight"])
        total = total + functional.cross_entropy(logits, targets[rows] - first, reduction="sum")
    head = functional.linear(hidden, torch.cat([p["embed.band0.weight"], p["output.clusters"]]))
    return (total + functional.cross_entropy(head, head_targets, reduction="sum")) / len(targets)


def mean_loss(c, p, positions, ids, targets):
    from torch.nn import functional
    B, T, C, H = c.sequences, c.length, c.dim, c.heads
    attend = attend_reference if c.attention == "reference" else attend_sdpa

    def norm(name, x):
        return functional.layer_norm(x, (C,), p[name + ".weight"], p[name + ".bias"], NORM_EPS)

    def linear(name, x):
        return functional.linear(x, p[name + ".weight"], p[name + ".bias"])

    x = embed(c, p, ids)
    if positions.sinusoids is not None:
        x = x + positions.sinusoids
    mask = positions.mask(p)
    for i in range(c.layers):
        qkv = linear(f"layers.{i}.attention.qkv", norm(f"layers.{i}.attention_norm", x))
        q, k, v = qkv.view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4).reshape(3, B * H, T, C // H).unbind()
        y = attend(c, positions.rotate(q), positions.rotate(k), v, mask)
        y = y.view(B, H, T, C // H).transpose(1, 2).reshape(B, T, C)
        x = x + linear(f"layers.{i}.attention.out", y)
        h = functional.relu(linear(f"layers.{i}.ffn.in", norm(f"layers.{i}.ffn_norm", x)))
        x = x + linear(f"layers.{i}.ffn.out", h)
    return output_loss(c, p, norm("final_norm", x).flatten(0, 1), targets.flatten())


def make_step(c):
    """A function that does one step and returns the loss."""
    import torch
    p, positions = make_parameters(c), Positions(c)
    ids, targets = make_batch(c)
    if c.task == "eval":
        def evaluate():
            with torch.no_grad():
                return mean_loss(c, p, positions, ids, targets).item()
        return evaluate

    decayed = [t for name, t in p.items() if t.dim() >= 2 and not name.startswith("position.")]
    others = [t for name, t in p.items() if t.dim() < 2 or name.startswith("position.")]
    groups = [dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)]
    try:
        optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), foreach=True)
    except TypeError:  # before PyTorch 1.12
        optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95))

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss = mean_loss(c, p, positions, ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decayed + others, 1.0)
        optimizer.step()
        return loss.item()
    return train


# ---- one measurement -----------------------------------------------------------------------------------------------

def estimated_bytes(c):
    """Float counts of what eager PyTorch holds at its peak: scores, logits, activations, parameters."""
    rows, vocab = c.sequences * c.length, max([end - first for first, end in bands(c)], default=c.vocab)
    square = c.sequences * c.heads * c.length ** 2
    mask = {"alibi": square, "t5": 2 * c.heads * c.length ** 2}.get(c.position, c.length ** 2)
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


def loaded_blas():
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
    report = dict(version=torch.__version__, blas=loaded_blas(), base_memory_bytes=peak_bytes())
    if c.attention == "sdpa" and not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        raise Skip(f"PyTorch {torch.__version__} has no scaled_dot_product_attention")
    if c.attention == "fairseq":
        import fairseq_step
        step = fairseq_step.make_step(c, make_parameters(c), *make_batch(c))
    else:
        step = make_step(c)
    losses = [step() for _ in range(c.warmup)]
    seconds = []
    while len(seconds) < c.repeat and (not seconds or sum(seconds) < c.seconds):
        begin = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    return dict(report, loss=losses[0], seconds=[round(s, 6) for s in seconds], seconds_per_step=round(median, 6),
                tokens_per_second=round(c.tokens / median, 1), peak_memory_bytes=peak_bytes())


def run_apart(c):
    """measure(c) in a process of its own. This process stays small: Linux hands its peak memory on to its children."""
    threads = str(c.threads)
    environment = dict(os.environ, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
    done = subprocess.run([sys.executable, __file__, "--measure", json.dumps(vars(c))], env=environment,
                          stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        cause = f"signal {-done.returncode} (9: out of memory?)" if done.returncode < 0 else f"code {done.returncode}"
        raise Skip(f"PyTorch's process ended with {cause}")
    return json.loads(done.stdout)


def line_of(c):
    line = {key: getattr(c, key) for key in ("task", "attention", "position", "layers", "dim", "heads", "ffn", "vocab",
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
    for position, (sequences, length), attention, task in itertools.product(options.position, shapes, options.attention,
                                                                            options.task):
        yield argparse.Namespace(**{**vars(options), "position": position, "length": length, "sequences": sequences,
                                    "tokens": sequences * length, "attention": attention, "task": task})


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
