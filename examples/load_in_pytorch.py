"""A Longshot model in PyTorch: the section "A model from its files" of docs/file-formats.md, as code.

    python3 load_in_pytorch.py RUN DATA LENGTH    the loss on DATA's validation split, as `longshot eval` gives it

or, from a program of yours:

    model = load("run")                           # a torch.nn.Module; of a run, its newest checkpoint
    log_p = model(ids)                            # [B, T] ids of tokens -> [B, T, V] ln p of the token that follows

Needs torch, numpy and safetensors. Left out: dropout, sliding windows, fairseq's data-bin.
B sequences, T tokens, C width, H heads, D = C / H, V vocabulary.
"""
import json
import math
import pathlib
import re
import struct
import sys

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn


def numbers(text):
    return [float(word) for word in text.split(",") if word]


class Norm(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.rms, self.epsilon = o["norm"] == "rmsnorm", float(o["norm-epsilon"])
        self.weight = nn.Parameter(torch.ones(int(o["dim"])))
        self.bias = nn.Parameter(torch.zeros(int(o["dim"]))) if o["bias"] == "true" and not self.rms else None

    def forward(self, x):
        if self.rms:
            return x / torch.sqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * self.weight
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.epsilon)


# ---- positions: what a method adds to the embeddings, does to queries and keys, adds to the scores -----------------

class NoPosition(nn.Module):
    def __init__(self, o):
        super().__init__()

    def vectors(self, T):  # [T, C]
        return 0

    def turn(self, x):  # [B, H, T, D]
        return x

    def score(self, distance, layer):  # [H, T, T] from the distance i - j >= 0 of query i and key j
        return 0


class Alibi(NoPosition):
    def __init__(self, o):
        super().__init__(o)
        slopes = torch.tensor(numbers(o["alibi-slopes"]) or self.papers(int(o["heads"])))
        if o["alibi-learned"] == "true":
            self.slopes = nn.Parameter(slopes)
        else:
            self.register_buffer("slopes", slopes, persistent=False)

    @staticmethod
    def papers(heads):
        def of_power_of_two(n):
            return [2.0 ** (-8 * (h + 1) / n) for h in range(n)]
        c = 2 ** int(math.log2(heads))  # the largest power of two up to H
        return of_power_of_two(c) + of_power_of_two(2 * c)[0::2][:heads - c]

    def score(self, distance, layer):
        return -self.slopes[:, None, None] * distance


class T5(NoPosition):
    def __init__(self, o):
        super().__init__(o)
        self.buckets, self.most = int(o["t5-buckets"]), int(o["t5-max-distance"])
        tables = 1 if o["t5-shared"] == "true" else int(o["layers"])
        self.bias = nn.Parameter(torch.zeros(tables, self.buckets, int(o["heads"])))

    def bucket(self, d):
        exact = self.buckets // 2
        if d < exact:
            return d
        share = math.log(d / exact) / math.log(self.most / exact)
        return min(self.buckets - 1, exact + int(share * (self.buckets - exact)))

    def score(self, distance, layer):
        buckets = torch.tensor([self.bucket(d) for d in range(len(distance))])
        return self.bias[layer % len(self.bias)][buckets[distance]].permute(2, 0, 1)


class Rotary(NoPosition):
    def __init__(self, o):
        super().__init__(o)
        self.base, self.interleaved = float(o["rotary-base"]), o["rotary-style"] == "interleaved"
        self.pairs = int(int(o["dim"]) // int(o["heads"]) * float(o["rotary-fraction"])) // 2

    def turn(self, x):
        n = self.pairs
        frequency = self.base ** (-torch.arange(n, dtype=torch.float64) / n)
        angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequency
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)  # [T, pairs]
        first, second = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if self.interleaved else (slice(0, n), slice(n, 2 * n))
        a, b, turned = x[..., first], x[..., second], x.clone()
        turned[..., first], turned[..., second] = a * cos - b * sin, a * sin + b * cos
        return turned


class Sinusoidal(NoPosition):
    def __init__(self, o):
        super().__init__(o)
        self.width, self.fairseq = int(o["dim"]), o["sinusoidal-variant"] == "fairseq"

    def vectors(self, T):
        half = self.width // 2
        k, p = torch.arange(half, dtype=torch.float64), torch.arange(T, dtype=torch.float64)[:, None]
        e = torch.zeros(T, self.width)
        if self.fairseq:
            angle = (p + 2) * 10000 ** (-k / max(half - 1, 1))
            e[:, :half], e[:, half:2 * half] = angle.sin(), angle.cos()
        else:
            angle = p * 10000 ** (-2 * k / self.width)
            e[:, 0:2 * half:2], e[:, 1:2 * half:2] = angle.sin(), angle.cos()
        return e


class Learned(NoPosition):
    def __init__(self, o):
        super().__init__(o)
        self.embedding = nn.Parameter(torch.zeros(int(o["length"]), int(o["dim"])))

    def vectors(self, T):
        if T > len(self.embedding):
            raise ValueError(f"learned positions end at {len(self.embedding)}, not {T}")
        return self.embedding[:T]


POSITIONS = {"none": NoPosition, "alibi": Alibi, "t5": T5, "rotary": Rotary, "sinusoidal": Sinusoidal,
             "learned": Learned}


# ---- input and output ----------------------------------------------------------------------------------------------

class Embedding(nn.Module):
    """One matrix, or bands of ids with shorter and shorter vectors: embed.bandK.weight and .projection."""

    def __init__(self, o):
        super().__init__()
        C, V = int(o["dim"]), int(o["vocab"])
        self.scale = math.sqrt(C) if o["embed-scale"] == "true" else 1
        self.first = [0] + [int(c) for c in numbers(o["adaptive-cutoffs"])]
        if len(self.first) == 1:
            self.weight = nn.Parameter(torch.zeros(V, C))
            return
        for k, (first, end) in enumerate(zip(self.first, self.first[1:] + [V])):
            width = int(C / float(o["adaptive-factor"]) ** k)
            self.add_module(f"band{k}", nn.ParameterDict({"weight": nn.Parameter(torch.zeros(end - first, width)),
                                                          "projection": nn.Parameter(torch.zeros(C, width))}))

    def bands(self):
        return list(self.children())

    def forward(self, ids):
        if not self.bands():
            return self.scale * self.weight[ids]
        x = self.band0["weight"].new_zeros(*ids.shape, len(self.band0["projection"]))
        for first, band in zip(self.first, self.bands()):
            inside = (ids >= first) & (ids < first + len(band["weight"]))
            x[inside] = self.scale * band["weight"][ids[inside] - first] @ band["projection"].T
        return x


class Output(nn.Module):
    """ln p of all tokens, from h [.., C]."""

    def __init__(self, o):
        super().__init__()
        bands = len(numbers(o["adaptive-cutoffs"])) + 1
        if bands > 1:
            self.clusters = nn.Parameter(torch.zeros(bands - 1, int(o["dim"])))
        elif o["tied"] == "false":
            self.weight = nn.Parameter(torch.zeros(int(o["vocab"]), int(o["dim"])))

    def forward(self, h, embed):
        if not embed.bands():
            return F.linear(h, getattr(self, "weight", embed.weight)).log_softmax(-1)
        first, *others = embed.bands()
        head = F.linear(h, torch.cat([first["weight"], self.clusters])).log_softmax(-1)
        words = len(first["weight"])
        parts = [head[..., :words]]
        for k, band in enumerate(others):
            inside = F.linear(h @ band["projection"], band["weight"]).log_softmax(-1)
            parts.append(head[..., words + k, None] + inside)
        return torch.cat(parts, dim=-1)


# ---- the model -----------------------------------------------------------------------------------------------------

class Layer(nn.Module):
    def __init__(self, o):
        super().__init__()
        C, self.heads, self.activation = int(o["dim"]), int(o["heads"]), o["activation"]
        self.key_heads, self.clip = int(o["kv-heads"]) or self.heads, float(o["clip-qkv"])
        D, hidden, bias = C // self.heads, int(o["ffn"]) or 4 * C, o["bias"] == "true"
        self.scale = float(o["score-scale"]) or 1 / math.sqrt(D)
        self.pre, self.parallel = o["norm-position"] == "pre", o["parallel-residual"] == "true"
        self.attention_norm, self.ffn_norm = Norm(o), Norm(o)
        self.attention = nn.ModuleDict({"qkv": nn.Linear(C, C + 2 * self.key_heads * D, bias), "out": nn.Linear(C, C, bias)})
        wide = 2 * hidden if self.activation == "swiglu" else hidden
        self.ffn = nn.ModuleDict({"in": nn.Linear(C, wide, bias), "out": nn.Linear(hidden, C, bias)})

    def attend(self, x, position, score, seen):
        B, T, C = x.shape
        qkv = self.attention["qkv"](x)
        if self.clip:
            qkv = qkv.clamp(-self.clip, self.clip)
        heads = qkv.reshape(B, T, self.heads + 2 * self.key_heads, -1).transpose(1, 2)
        q, k, v = heads.split([self.heads, self.key_heads, self.key_heads], 1)
        k, v = (part.repeat_interleave(self.heads // self.key_heads, 1) for part in (k, v))
        q, k = position.turn(q), position.turn(k)
        s = (q @ k.transpose(-1, -2) * self.scale + score).masked_fill(~seen, -math.inf)
        return self.attention["out"]((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))

    def feed_forward(self, x):
        h = self.ffn["in"](x)
        if self.activation == "swiglu":
            gate, up = h.chunk(2, -1)
            h = F.silu(gate) * up
        elif self.activation == "relu":
            h = F.relu(h)
        else:
            h = F.gelu(h, approximate="none" if self.activation == "gelu-exact" else "tanh")
        return self.ffn["out"](h)

    def forward(self, x, *attention):
        if self.parallel:
            return x + self.attend(self.attention_norm(x), *attention) + self.feed_forward(self.ffn_norm(x))
        if self.pre:
            x = x + self.attend(self.attention_norm(x), *attention)
            return x + self.feed_forward(self.ffn_norm(x))
        x = self.attention_norm(x + self.attend(x, *attention))
        return self.ffn_norm(x + self.feed_forward(x))


class Model(nn.Module):
    """Parameters have the names they have in model.safetensors."""

    def __init__(self, o):
        super().__init__()
        self.options = o
        self.embed, self.output, self.position = Embedding(o), Output(o), POSITIONS[o["position"]](o)
        self.layers = nn.ModuleList(Layer(o) for _ in range(int(o["layers"])))
        self.embed_norm = Norm(o) if o["embedding-norm"] == "true" else nn.Identity()
        self.final_norm = Norm(o) if o["final-norm"] == "true" else nn.Identity()

    def forward(self, ids, first_key=None):
        """ids [B, T]; first_key [T]: the first position each one sees, for models with document-mask."""
        T = ids.shape[1]
        query, key = torch.arange(T)[:, None], torch.arange(T)
        seen = (key <= query) if first_key is None else (key <= query) & (key >= first_key[:, None])
        x = self.embed_norm(self.embed(ids) + self.position.vectors(T))
        for i, layer in enumerate(self.layers):
            x = layer(x, self.position, self.position.score((query - key).clamp(min=0), i), seen)
        return self.output(self.final_norm(x), self.embed)


def load(path):
    """The model of a run or of a checkpoint."""
    path = pathlib.Path(path)
    if not (path / "state.json").exists():
        path = max(p for p in (path / "checkpoints").iterdir() if re.fullmatch(r"step-\d{8,}", p.name))
    model = Model(json.loads((path / "state.json").read_text())["model"])
    weights = {name: t.float() for name, t in load_file(path / "model.safetensors").items()}  # imports may hold 16 bits
    model.load_state_dict(weights)  # names and shapes must agree, all of them
    return model.eval()


# ---- evaluation ----------------------------------------------------------------------------------------------------

class Tokens:
    """A *.tokens file."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        version, width, count, documents = struct.unpack_from("<IIQQ", data, 8)
        begin = 72 if version == 2 else 64
        self.ids = torch.from_numpy(numpy.frombuffer(data, f"<u{width}", count, begin).astype(numpy.int64))
        self.start = struct.unpack_from("<I", data, 60)[0]
        table = begin + -(-count * width // 8) * 8  # behind the ids and their padding
        self.documents = numpy.frombuffer(data, "<u8", documents, table).astype(numpy.int64)

    def first_keys(self, first, T):
        """Of the inputs of the window whose first target is `first`: where the document of each begins in it."""
        place = numpy.maximum(numpy.arange(first - 1, first - 1 + T), 0)
        begin = self.documents[numpy.searchsorted(self.documents, place, side="right") - 1]
        return torch.from_numpy(numpy.maximum(begin - (first - 1), 0) * (begin > 0))


@torch.no_grad()
def score(model, tokens, length, count=None):
    """Loss of the first `count` tokens, in nats, in windows of `length` that do not overlap (docs/evaluation.md)."""
    targets = tokens.ids[:count]
    inputs = torch.cat([torch.tensor([tokens.start]), targets[:-1]])
    losses = []
    for first in range(0, len(targets), length):
        x, y = inputs[first:first + length], targets[first:first + length]
        mask = tokens.first_keys(first, len(x)) if model.options["document-mask"] == "true" else None
        losses.append(-model(x[None], mask)[0].gather(-1, y[:, None])[:, 0])
    return torch.cat(losses)


if __name__ == "__main__":
    run, data, length = sys.argv[1:]
    loss = score(load(run), Tokens(pathlib.Path(data) / "valid.tokens"), int(length)).mean().item()
    print(f"loss {loss:.5f}, perplexity {math.exp(loss):.4f}")
