"""The language model of torch_bench.py: parameters, batch, positions, one step.

c holds the options of one measurement, as torch_bench.py names them. PyTorch is imported inside the functions: the process that only
starts measurements stays small.
"""
import math

from safetensors_file import SafeTensors, Skip

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
            source.read(name, "F32", p)
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
        source.read("ids", "I32", ids)
        source.read("targets", "I32", targets)
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
        self.fixed_mask = self.sinusoids = None
        if c.attention == "flex":
            return
        causal = torch.triu(torch.full((T, T), -math.inf), 1)
        self.causal, self.fixed_mask = causal[None], causal[None]
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


def flex_attention(c):
    """attend(..) by FlexAttention: the bias is computed from distances, no mask is stored."""
    import torch
    from torch.nn.attention import flex_attention as flex
    slopes = torch.tensor(alibi_slopes(c.heads))

    def bias(score, batch, head, query, key):
        return score - slopes[head] * (query - key)

    def causal(batch, head, query, key):
        return query >= key

    blocks = flex.create_block_mask(causal, None, None, c.length, c.length, device="cpu")

    def attend(c, q, k, v, mask):
        q, k, v = (x.view(c.sequences, c.heads, c.length, -1) for x in (q, k, v))
        return flex.flex_attention(q, k, v, score_mod=bias, block_mask=blocks).flatten(0, 1)
    return attend


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


def mean_loss(c, p, positions, attend, ids, targets):
    from torch.nn import functional
    B, T, C, H = c.sequences, c.length, c.dim, c.heads

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


def make_optimizer(groups):
    """AdamW in the fastest form that this version has on CPUs."""
    import torch
    for form in (dict(fused=True), dict(foreach=True), {}):
        try:
            return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), **form)
        except (TypeError, RuntimeError):
            continue
    raise Skip("PyTorch has no AdamW")


def make_step(c):
    """A function that does one step and returns the loss."""
    import torch
    p, positions = make_parameters(c), Positions(c)
    ids, targets = make_batch(c)
    attend = flex_attention(c) if c.attention == "flex" else attend_reference if c.attention == "reference" else attend_sdpa

    def plain(ids, targets):
        return mean_loss(c, p, positions, attend, ids, targets)

    computed = torch.compile(plain) if c.attention in ("compiled", "flex") else plain

    def loss_of(ids, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=c.precision == "bf16"):
            return computed(ids, targets)

    if c.task == "eval":
        def evaluate():
            with torch.no_grad():
                return loss_of(ids, targets).item()
        return evaluate

    decayed = [t for name, t in p.items() if t.dim() >= 2 and not name.startswith("position.")]
    others = [t for name, t in p.items() if t.dim() < 2 or name.startswith("position.")]
    optimizer = make_optimizer([dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)])

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decayed + others, 1.0)
        optimizer.step()
        return loss.item()
    return train
