#!/usr/bin/python3
"""Golden values of tiny language models, computed with PyTorch in double precision.

    tests/goldens/make_goldens.py [--out DIR]

needs Debian's python3-torch and rewrites every file of the table. Building and testing need neither.

B sequences, T tokens, C width, H heads, D = C / H, F feed-forward width, V vocabulary.

    file                     what it adds to a pre-norm LayerNorm ReLU model with biases and tied output
    alibi.safetensors        D = 8
    rotary.safetensors       interleaved pairs, base 10000, D = 8
    sinusoidal.safetensors   fairseq's variant, D = 4
    t5.safetensors           32 buckets, max distance 128, one table for all layers, T reaches the last bucket, D = 4
    rms_swiglu.safetensors   alibi, RMSNorm, SwiGLU, no biases, untied output, embeddings not scaled, D = 4
    post_gelu.safetensors    alibi, post-norm without final norm, GELU (tanh), one target of -1 (not scored), D = 4
    nag.safetensors          alibi, trained with fairseq's NAG, D = 4

Tensors of a file: F32, except ids and targets (I32).

    <parameter>              before the first step; multiples of 1/256, so exact in any precision
    ids, targets   [B, T]
    logits         [B, T, V] of the initial parameters
    grad.<parameter>         of the mean loss (nats per scored target), before clipping
    grad_norm      [1]       global norm of those gradients
    losses         [N]       losses[n] is the mean loss on the batch before update n
    final.<parameter>        after N updates
    lrs            [N]       learning rate of each update

nag.safetensors has neither logits nor gradients. N = 10 AdamW updates (betas 0.9, 0.95, eps 1e-8, weight
decay 0.1 on tensors of two and more dimensions except position.*, clip 1.0), or 3 NAG updates (momentum 0.99, no
weight decay, clip 0.1). Clipping multiplies the gradients by min(1, clip / (norm + 1e-6)).

The metadata entry `config` is the model as JSON; `float32_deviation` is JSON too: how far the same program in single
precision lands from the stored values (largest |difference| of any element, per group), as a measure for tolerances. Adding a
constant to all keys of a head changes no softmax, so the key rows [C, 2C) of `attention.qkv.bias` have no gradient but
rounding, except under rotary. Adam magnifies that rounding: those rows of final.* carry no information and are left
out of float32_deviation.

Parameters, weights as [out, in]:

    embed.weight [V, C]
    layers.i.attention_norm.weight, .bias [C]
    layers.i.attention.qkv.weight [3C, C], .bias [3C]     rows: queries, keys, values; head h has rows hD .. hD + D - 1
    layers.i.attention.out.weight [C, C], .bias [C]
    layers.i.ffn_norm.weight, .bias [C]
    layers.i.ffn.in.weight [F, C], .bias [F]              SwiGLU: [2F, C], gate rows, then up rows
    layers.i.ffn.out.weight [C, F], .bias [C]
    final_norm.weight, .bias [C]                          with final_norm
    output.weight [V, C]                                  untied
    position.bias [1, 32, H]                              t5

    x = embed[ids] * sqrt(C) (embed_scale), + sinusoids
    pre-norm    x = x + attention(norm(x));  x = x + ffn(norm(x))
    post-norm   x = norm(x + attention(x));  x = norm(x + ffn(x))
    logits = final_norm(x) output^T
    score(i, j) = q_i . k_j / sqrt(D) + bias_h(i - j),  j <= i
"""
import argparse
import json
import math
import pathlib
import random
import struct

import torch
import torch.nn.functional as F

NORM_EPS = 1e-5
NO_TARGET = -1

MODEL = dict(position="alibi", layers=2, dim=12, heads=3, ffn=16, vocab=23, norm="layer", norm_position="pre",
             activation="relu", bias=True, tied=True, final_norm=True, embed_scale=True)
WIDE = dict(MODEL, dim=24)
GOLDENS = {
    "alibi": WIDE,
    "rotary": dict(WIDE, position="rotary"),
    "sinusoidal": dict(MODEL, position="sinusoidal"),
    "t5": dict(MODEL, position="t5"),
    "rms_swiglu": dict(MODEL, norm="rms", activation="swiglu", bias=False, tied=False, embed_scale=False),
    "post_gelu": dict(MODEL, norm_position="post", activation="gelu", final_norm=False),
    "nag": MODEL,
}
BATCH_SHAPE = {"t5": (1, 131)}  # otherwise (2, 19)


# ---- parameters ----------------------------------------------------------------------------------------------------

def parameter_shapes(c):
    """Name -> shape, in the order of the file."""
    C, Fw, V = c["dim"], c["ffn"], c["vocab"]
    shapes = {"embed.weight": (V, C)}

    def norm(name):
        shapes[name + ".weight"] = (C,)
        if c["norm"] == "layer":
            shapes[name + ".bias"] = (C,)

    def linear(name, rows, columns):
        shapes[name + ".weight"] = (rows, columns)
        if c["bias"]:
            shapes[name + ".bias"] = (rows,)

    for i in range(c["layers"]):
        norm(f"layers.{i}.attention_norm")
        linear(f"layers.{i}.attention.qkv", 3 * C, C)
        linear(f"layers.{i}.attention.out", C, C)
        norm(f"layers.{i}.ffn_norm")
        linear(f"layers.{i}.ffn.in", 2 * Fw if c["activation"] == "swiglu" else Fw, C)
        linear(f"layers.{i}.ffn.out", C, Fw)
    if c["final_norm"]:
        norm("final_norm")
    if not c["tied"]:
        shapes["output.weight"] = (V, C)
    if c["position"] == "t5":
        shapes["position.bias"] = (1, 32, c["heads"])
    return shapes


def initial_parameters(c, generator):
    """Nothing is zero or one exactly, so that no wrong use of a parameter stays unseen."""
    def values(name, shape):
        is_norm_weight = "norm.weight" in name
        scale = 0.25 if len(shape) > 1 else 0.125
        draw = (generator.gauss(1.0 if is_norm_weight else 0.0, scale) for _ in range(math.prod(shape)))
        return torch.tensor([round(256 * x) / 256 for x in draw], dtype=torch.float64).reshape(shape)
    return {name: values(name, shape) for name, shape in parameter_shapes(c).items()}


# ---- position methods ----------------------------------------------------------------------------------------------

def alibi_slopes(heads):
    def power_of_two(n):
        return [2.0 ** (-8.0 * (h + 1) / n) for h in range(n)]
    c = 2 ** int(math.log2(heads))
    return power_of_two(c) + power_of_two(2 * c)[0::2][:heads - c]


def t5_bucket(distance, buckets=32, max_distance=128):
    exact = buckets // 2
    if distance < exact:
        return distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return min(buckets - 1, exact + int(share * (buckets - exact)))


def distance_bias(c, p, T, like):
    """[H, T, T]: what is added to the scaled score of query i and key j, for j <= i; zero elsewhere."""
    distance = (torch.arange(T)[:, None] - torch.arange(T)[None, :]).clamp(min=0)
    if c["position"] == "alibi":
        slopes = torch.tensor(alibi_slopes(c["heads"])).to(like)
        return -slopes[:, None, None] * distance.to(like)
    if c["position"] == "t5":
        buckets = torch.tensor([t5_bucket(d) for d in range(T)])
        return p["position.bias"][0][buckets[distance]].permute(2, 0, 1)
    return torch.zeros(c["heads"], T, T).to(like)


def sinusoids(T, C, like):
    """fairseq's rows 2 .. T + 1: all sines, then all cosines."""
    half = C // 2
    frequency = torch.exp(torch.arange(half, dtype=torch.float64) * -(math.log(10000.0) / (half - 1)))
    angle = torch.arange(2, T + 2, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1).to(like)


def rotate(x):
    """x [B, H, T, D]: the pair (2c, 2c + 1) turned by p * 10000^(-2c / D), as multiplication of complex numbers."""
    T, D = x.shape[-2:]
    angle = torch.arange(T, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], D // 2, 2))
    turn = torch.polar(torch.ones_like(angle), angle).to(pairs.dtype)
    return torch.view_as_real(pairs * turn).reshape(x.shape)


# ---- the model -----------------------------------------------------------------------------------------------------

def normalise(c, p, name, x):
    if c["norm"] == "rms":
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + NORM_EPS) * p[name + ".weight"]
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], NORM_EPS)


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def attention(c, p, name, x, bias):
    B, T, C = x.shape
    H = c["heads"]
    D = C // H
    q, k, v = (part.reshape(B, T, H, D).transpose(1, 2) for part in linear(p, name + ".qkv", x).split(C, dim=-1))
    if c["position"] == "rotary":
        q, k = rotate(q), rotate(k)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    score = (q @ k.transpose(-1, -2) / math.sqrt(D) + bias).masked_fill(future, -math.inf)
    mixed = score.softmax(-1) @ v
    return linear(p, name + ".out", mixed.transpose(1, 2).reshape(B, T, C))


def feed_forward(c, p, name, x):
    h = linear(p, name + ".in", x)
    if c["activation"] == "swiglu":
        gate, up = h.chunk(2, dim=-1)
        h = F.silu(gate) * up
    elif c["activation"] == "gelu":
        h = F.gelu(h, approximate="tanh")
    else:
        h = F.relu(h)
    return linear(p, name + ".out", h)


def forward(c, p, ids):
    T, C = ids.shape[1], c["dim"]
    x = p["embed.weight"][ids]
    if c["embed_scale"]:
        x = x * math.sqrt(C)
    if c["position"] == "sinusoidal":
        x = x + sinusoids(T, C, x)
    bias = distance_bias(c, p, T, x)
    for i in range(c["layers"]):
        for part, function, extra in (("attention", attention, (bias,)), ("ffn", feed_forward, ())):
            name = f"layers.{i}.{part}"
            if c["norm_position"] == "pre":
                x = x + function(c, p, name, normalise(c, p, name + "_norm", x), *extra)
            else:
                x = normalise(c, p, name + "_norm", x + function(c, p, name, x, *extra))
    if c["final_norm"]:
        x = normalise(c, p, "final_norm", x)
    return x @ p["embed.weight" if c["tied"] else "output.weight"].T


def mean_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)


# ---- training ------------------------------------------------------------------------------------------------------

class Nag:
    """fairseq's Nesterov momentum. With c = lr / the lr before:  p += mu^2 c v - (1 + mu) lr g;  v = mu c v - lr g."""

    def __init__(self, parameters, momentum):
        self.parameters, self.momentum, self.last_lr = parameters, momentum, None
        self.velocity = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self, lr):
        mu, correction = self.momentum, lr / (self.last_lr or lr)
        for p, v in zip(self.parameters, self.velocity):
            p += mu * mu * correction * v - (1 + mu) * lr * p.grad
            v.mul_(mu * correction).sub_(lr * p.grad)
        self.last_lr = lr


class AdamW:
    def __init__(self, parameters):
        decayed = [p for name, p in parameters.items() if p.ndim >= 2 and not name.startswith("position.")]
        others = [p for name, p in parameters.items() if p.ndim < 2 or name.startswith("position.")]
        self.torch = torch.optim.AdamW([dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)],
                                       betas=(0.9, 0.95), eps=1e-8)

    def step(self, lr):
        for group in self.torch.param_groups:
            group["lr"] = lr
        self.torch.step()


def train(name, c, initial, ids, targets, dtype):
    """Everything the file has beside the initial parameters and the batch, computed in `dtype`."""
    p = {key: value.to(dtype).clone().requires_grad_() for key, value in initial.items()}
    if name == "nag":
        optimizer, clip, lrs = Nag(list(p.values()), momentum=0.99), 0.1, [0.5, 0.4, 0.3]
    else:
        optimizer, clip, lrs = AdamW(p), 1.0, [1e-3] * 10
    result, losses = {}, []
    for step, lr in enumerate(lrs):
        logits = forward(c, p, ids)
        loss = mean_loss(logits, targets)
        for value in p.values():
            value.grad = None
        loss.backward()
        losses.append(loss.item())
        norm = torch.sqrt(sum(value.grad.square().sum() for value in p.values()))
        if step == 0:
            if name != "nag":
                result["logits"] = logits.detach()
                result.update({"grad." + key: value.grad.clone() for key, value in p.items()})
            result["grad_norm"] = norm.reshape(1)
        for value in p.values():
            value.grad *= min(1.0, clip / (norm.item() + 1e-6))
        optimizer.step(lr)
    result["losses"] = torch.tensor(losses, dtype=torch.float64)
    result["lrs"] = torch.tensor(lrs, dtype=torch.float64)
    result.update({"final." + key: value.detach() for key, value in p.items()})
    return result


def float32_deviation(c, exact, single):
    """Largest |difference| per group of tensors, the key rows of final qkv biases left out unless rotary."""
    deviation = {}
    for name, value in exact.items():
        difference = (single[name].double() - value.double()).abs()
        if name.startswith("final.") and name.endswith("qkv.bias") and c["position"] != "rotary":
            difference[c["dim"]:2 * c["dim"]] = 0
        group = name.split(".")[0]
        deviation[group] = max(deviation.get(group, 0.0), difference.max().item())
    return {group: float(f"{value:.2g}") for group, value in deviation.items() if group != "lrs"}


# ---- the file ------------------------------------------------------------------------------------------------------

def write_safetensors(path, tensors, metadata):
    """u64 length of the header, header (JSON: name -> dtype, shape, data_offsets), the tensors' bytes; little-endian."""
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name, value in tensors.items():
        is_integer = not value.is_floating_point()
        flat = value.flatten().tolist()
        blob = struct.pack(f"<{len(flat)}{'i' if is_integer else 'f'}", *flat)
        header[name] = dict(dtype="I32" if is_integer else "F32", shape=list(value.shape),
                            data_offsets=[offset, offset + len(blob)])
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def make(name, c, directory):
    generator = random.Random(json.dumps(c))
    initial = initial_parameters(c, generator)
    B, T = BATCH_SHAPE.get(name, (2, 19))
    stream = torch.tensor([[generator.randrange(c["vocab"]) for _ in range(T + 1)] for _ in range(B)])
    ids, targets = stream[:, :-1], stream[:, 1:].clone()
    if name == "post_gelu":
        targets[1, -1] = NO_TARGET
    exact = train(name, c, initial, ids, targets, torch.float64)
    deviation = float32_deviation(c, exact, train(name, c, initial, ids, targets, torch.float32))
    path = directory / (name + ".safetensors")
    write_safetensors(path, {**initial, "ids": ids, "targets": targets, **exact},
                      {"config": json.dumps(c), "float32_deviation": json.dumps(deviation)})
    losses = exact["losses"]
    print(f"{path}: {path.stat().st_size} bytes, loss {losses[0]:.6f} -> {losses[-1]:.6f}, "
          f"gradient norm {exact['grad_norm'].item():.4f}, float32 deviates by {deviation}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    directory = parser.parse_args().out
    torch.set_num_threads(1)
    for name, c in GOLDENS.items():
        make(name, c, directory)


if __name__ == "__main__":
    main()
