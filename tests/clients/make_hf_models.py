#!/usr/bin/env python3
"""Makes tests/fixtures/hf: tiny random models of every Hugging Face family, with what PyTorch computes from them.

  make_hf_models.py DIR [NAME..]

Each DIR/NAME holds the files of the model and oracle.safetensors: `ids` [T], `log_probabilities` [T, V] of the next id
in float32, `greedy` [16], the ids that follow the first 24 of `ids`. Where transformers rounds ALiBi's biases to 16 bits,
`log_probabilities` is computed with exact ones, and `rounded` [T, V] as transformers does it. Baichuan, which has no class
in transformers, is written out below. Needs torch, transformers and safetensors.
"""
import json
import math
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from transformers import (AutoModelForCausalLM, BloomConfig, FalconConfig, GPT2Config, GPTNeoXConfig, LlamaConfig,
                          MptConfig)
from transformers.models.falcon import modeling_falcon

LENGTH, PROMPT, CONTINUED = 160, 24, 16


def randomized(model, seed):
    """Weights so large that logits differ clearly; norms and biases are random too."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() == 1:
            p.data = (1 if name.endswith("weight") else 0) + 0.2 * noise
        else:
            p.data = noise * (1.5 / math.sqrt(min(p.shape)) if "emb" not in name and "wte" not in name else 0.5)
    return model.eval()


class Baichuan(nn.Module):
    """Baichuan-13B: RMSNorm, SwiGLU, ALiBi added to scaled scores, W_pack = q | k | v, an output matrix of its own."""

    def __init__(self, vocab, dim, layers, heads, ffn, eps):
        super().__init__()
        self.sizes, self.eps, self.layers, self.heads = (vocab, dim, ffn), eps, layers, heads
        shapes = {"model.embed_tokens": (vocab, dim), "model.norm": (dim,), "lm_head": (vocab, dim)}
        for i in range(layers):
            at = f"model.layers.{i}."
            shapes |= {at + "input_layernorm": (dim,), at + "post_attention_layernorm": (dim,),
                       at + "self_attn.W_pack": (3 * dim, dim), at + "self_attn.o_proj": (dim, dim),
                       at + "mlp.gate_proj": (ffn, dim), at + "mlp.up_proj": (ffn, dim), at + "mlp.down_proj": (dim, ffn)}
        self.w = {name + ".weight": nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}

    def named_parameters(self):
        return self.w.items()

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.w[name + ".weight"]

    def slopes(self):
        def power(n):
            return [2 ** (-8 * (h + 1) / n) for h in range(n)]
        c = 2 ** math.floor(math.log2(self.heads))
        return torch.tensor(power(c) + power(2 * c)[0::2][: self.heads - c])

    def forward(self, ids):
        vocab, dim, _ = self.sizes
        t, d = ids.shape[1], dim // self.heads
        distance = torch.arange(t)[None, :] - torch.arange(t)[:, None]
        bias = (self.slopes()[:, None, None] * distance).masked_fill(distance > 0, -torch.inf)
        x = self.w["model.embed_tokens.weight"][ids[0]]
        for i in range(self.layers):
            at = f"model.layers.{i}."
            y = self.norm(x, at + "input_layernorm") @ self.w[at + "self_attn.W_pack.weight"].T
            q, k, v = (p.reshape(t, self.heads, d).transpose(0, 1) for p in y.split(dim, dim=1))
            p = (q @ k.transpose(1, 2) / math.sqrt(d) + bias).softmax(-1)
            x = x + (p @ v).transpose(0, 1).reshape(t, dim) @ self.w[at + "self_attn.o_proj.weight"].T
            y = self.norm(x, at + "post_attention_layernorm")
            y = F.silu(y @ self.w[at + "mlp.gate_proj.weight"].T) * (y @ self.w[at + "mlp.up_proj.weight"].T)
            x = x + y @ self.w[at + "mlp.down_proj.weight"].T
        return (self.norm(x, "model.norm") @ self.w["lm_head.weight"].T)[None]


def bloom(**more):
    return BloomConfig(vocab_size=61, hidden_size=24, n_layer=2, n_head=6, seq_length=64, **more)


CONFIGS = {
    "bloom": bloom(),
    "bloom-bf16": BloomConfig(vocab_size=61, hidden_size=32, n_layer=2, n_head=4, layer_norm_epsilon=1e-3, dtype="bfloat16"),
    "bloom-sharded": BloomConfig(vocab_size=61, hidden_size=48, n_layer=1, n_head=12, seq_length=128),
    "mpt": MptConfig(vocab_size=61, d_model=24, n_heads=6, n_layers=2, max_seq_len=256, attn_config={"clip_qkv": 1.5}),
    "mpt-f16": MptConfig(vocab_size=61, d_model=48, n_heads=12, n_layers=1, max_seq_len=256, dtype="float16",
                         attn_config={"softmax_scale": 0.4}),
    "falcon-rw": FalconConfig(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, alibi=True,
                              bias=True, multi_query=False, parallel_attn=False),
    "falcon-rw-bin": FalconConfig(vocab_size=61, hidden_size=48, num_hidden_layers=1, num_attention_heads=12, alibi=True,
                                  bias=True, multi_query=False, parallel_attn=False),
    "gpt2": GPT2Config(vocab_size=61, n_embd=24, n_layer=2, n_head=4, n_positions=192, n_inner=56),
    "gpt-neox": GPTNeoXConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                              intermediate_size=64, max_position_embeddings=256),
    "gpt-neox-serial": GPTNeoXConfig(vocab_size=61, hidden_size=24, num_hidden_layers=1, num_attention_heads=6,
                                     intermediate_size=40, use_parallel_residual=False, hidden_act="gelu_new",
                                     rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 1.0}),
    "llama": LlamaConfig(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=40,
                         num_key_value_heads=2, max_position_embeddings=256),
    "llama-bin": LlamaConfig(vocab_size=61, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48,
                             tie_word_embeddings=True, rope_parameters={"rope_theta": 500000.0}),
    "baichuan": None,
    "gpt-neox-odd": GPTNeoXConfig(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
                                  intermediate_size=40, rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
}
BIN = {"falcon-rw-bin", "llama-bin", "gpt-neox-odd"}
SHARDED = {"bloom-sharded": "20KB"}


def exact_alibi(attention_mask, num_heads, dtype):
    """transformers' biases of Falcon without the rounding of slope times position."""
    rounded = ORIGINAL_ALIBI(attention_mask, num_heads, dtype)
    slopes = rounded[:, 0, 1].float()  # of key 1: the slope itself, rounded once
    return (slopes[:, None] * torch.arange(attention_mask.shape[1]))[:, None, :].to(dtype)


ORIGINAL_ALIBI = modeling_falcon.build_alibi_tensor


def log_probabilities(run, ids):
    with torch.no_grad():
        return run(ids).float().log_softmax(-1)[0]


def greedy(run, ids):
    for _ in range(CONTINUED):
        ids = torch.cat([ids, log_probabilities(run, ids)[-1:].argmax(-1)[None]], 1)
    return ids[0, -CONTINUED:]


def save_pickled(model, path):
    """As older versions of transformers did, masks and copies of tied matrices included."""
    for old in path.glob("model.safetensors"):
        old.unlink()
    state = {k: v.clone() if "lm_head" not in k else v for k, v in model.state_dict().items()}
    if "model.layers.0.self_attn.q_proj.weight" in state:
        state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    torch.save(state, path / "pytorch_model.bin")


def make(name, config, path, seed):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    ids = torch.randint(0, 61, (1, LENGTH), generator=torch.Generator().manual_seed(seed))
    if config is None:
        model = randomized(Baichuan(61, 24, 2, 6, 40, 1e-6), seed)
        run = model
        save_file({k: v.data.clone() for k, v in model.named_parameters()}, path / "model.safetensors")
        (path / "config.json").write_text(json.dumps(
            {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "hidden_size": 24, "hidden_act": "silu",
             "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6, "rms_norm_eps": 1e-6,
             "model_max_length": 64, "vocab_size": 61, "tie_word_embeddings": False}, indent=2))
    else:
        dtype = getattr(config, "dtype", None) or torch.float32
        dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        config.dtype = None
        # transformers 5.23 adds Falcon's biases twice in its eager attention: once in the mask, once to the scores.
        attention = "sdpa" if name.startswith("falcon") else "eager"
        model = randomized(AutoModelForCausalLM.from_config(config, attn_implementation=attention), seed)
        model.tie_weights()
        for p in model.parameters():  # and not the buffers: no program rounds the frequencies of rotary positions
            p.data = p.data.to(dtype)
        model.save_pretrained(path, **({"max_shard_size": SHARDED[name]} if name in SHARDED else {}))
        if name in BIN:
            save_pickled(model, path)
        model = model.float()
        run = lambda x: model(x, use_cache=False).logits
    found = {}
    if name.startswith("falcon"):
        found["rounded"] = log_probabilities(run, ids)
        modeling_falcon.build_alibi_tensor = exact_alibi
    found |= {"ids": ids[0].to(torch.int32), "log_probabilities": log_probabilities(run, ids),
              "greedy": greedy(run, ids[:, :PROMPT]).to(torch.int32)}
    modeling_falcon.build_alibi_tensor = ORIGINAL_ALIBI
    found["log_probabilities"] = found["log_probabilities"].contiguous()
    save_file(found, path / "oracle.safetensors")
    (path / "generation_config.json").unlink(missing_ok=True)
    p = found["log_probabilities"]
    print(f"{name}: ln p from {p.min():.1f} to {p.max():.1f}, greedy {found['greedy'].tolist()}"
          + (f", rounding moves {(found['rounded'] - p).abs().max():.3g}" if "rounded" in found else ""))


if __name__ == "__main__":
    wanted = sys.argv[2:] or list(CONFIGS)
    for seed, (name, config) in enumerate(CONFIGS.items()):
        if name in wanted:
            make(name, config, Path(sys.argv[1]) / name, seed + 1)
