#!/usr/bin/env python3
"""Makes tests/fixtures/gguf/models: tiny random models of every architecture that is read, written by llama.cpp's own
converter, with what PyTorch computes from them and the ids that llama.cpp gives.

  LLAMA_CPP=CHECKOUT make_gguf_models.py DIR [NAME..]

CHECKOUT is a built one: its converter, build/bin/llama-quantize and build/bin/llama-tokenize are used. Beside DIR/NAME.gguf
stands DIR/NAME.safetensors: `ids` [T], `log_probabilities` [T, V] of the next id in float32 from the same weights, `greedy` [8],
the ids that follow the first 8 of `ids`; `text_ids`, the ids of tokenizers/texts.json one behind the other, with special
tokens read as the text they are, and `text_lengths`. GELU is the tanh form throughout, because llama.cpp knows no other. Needs torch, transformers, gguf,
safetensors and sentencepiece.
"""
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import AutoModelForCausalLM, BloomConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, MptConfig
from transformers.models.mpt import modeling_mpt

import make_hf_models
from make_hf_models import Baichuan, randomized
from safetensors.torch import save_file

CHECKOUT = pathlib.Path(os.environ["LLAMA_CPP"]).resolve()
FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
TEXTS = json.loads((FIXTURES / "tokenizers/texts.json").read_text())
LENGTH, PROMPT, CONTINUED = 28, 8, 8
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "gguf-py")]  # that version's own package

import gguf  # noqa: E402
from conversion import base  # noqa: E402
from conversion.baichuan import BaichuanModel  # noqa: E402

Q = gguf.GGMLQuantizationType
LOAD_HPARAMS = base.ModelBase.load_hparams
MODIFY_BAICHUAN = BaichuanModel.modify_tensors


class Case:
    """tokenizer: a file of fixtures/tokenizers, or "pieces"; pre: llama.cpp's name for how it cuts text."""

    def __init__(self, config, tokenizer, pre="gpt-2", kind="f32", quantize=None, keys=None):
        self.config, self.tokenizer, self.pre, self.kind, self.quantize = config, tokenizer, pre, kind, quantize
        self.keys = keys or {}  # of config.json, which the converter still wants by these names


def cases():
    neox = {"vocab_size": 700, "num_hidden_layers": 2, "max_position_embeddings": 64, "hidden_act": "gelu_new"}
    return {
        "bloom": Case(BloomConfig(vocab_size=704, hidden_size=24, n_layer=2, n_head=6, seq_length=64), "bloom", "bloom"),
        "bloom-q8_0": Case(BloomConfig(vocab_size=704, hidden_size=64, n_layer=1, n_head=4, layer_norm_epsilon=1e-3), "bloom",
                           "bloom", "q8_0"),
        "mpt": Case(MptConfig(vocab_size=700, d_model=24, n_heads=6, n_layers=2, max_seq_len=64, attn_config={"clip_qkv": 1.5}),
                    "gpt2"),
        "mpt-f16": Case(MptConfig(vocab_size=700, d_model=48, n_heads=12, n_layers=1, max_seq_len=64,
                                  attn_config={"alibi_bias_max": 16}), "gpt2", kind="f16"),
        "gpt2": Case(GPT2Config(vocab_size=700, n_embd=24, n_layer=2, n_head=4, n_positions=64), "gpt2", keys={"n_ctx": 64}),
        "gptneox": Case(GPTNeoXConfig(**neox, hidden_size=32, num_attention_heads=4, intermediate_size=64,
                                      rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5}), "gpt2", "olmo",
                        "bf16", keys={"rotary_pct": 0.5}),
        "gptneox-serial": Case(GPTNeoXConfig(**neox, hidden_size=24, num_attention_heads=6, intermediate_size=40,
                                             use_parallel_residual=False,
                                             rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 1.0}), "gpt2",
                               keys={"rotary_pct": 1.0}),
        "llama": Case(LlamaConfig(vocab_size=420, hidden_size=36, num_hidden_layers=2, num_attention_heads=6, intermediate_size=64,
                                  num_key_value_heads=2, max_position_embeddings=64), "pieces"),
        "llama-q4_k": Case(LlamaConfig(vocab_size=260, hidden_size=256, num_hidden_layers=1, num_attention_heads=4,
                                       intermediate_size=256, num_key_value_heads=1, max_position_embeddings=64,
                                       tie_word_embeddings=True, rope_parameters={"rope_theta": 500000.0}), "bytes", "llama-bpe",
                           quantize="Q4_K_M"),
        "baichuan": Case(None, "pieces"),
    }


def pieces(path):
    """A small SentencePiece model in Llama 2's manner."""
    import sentencepiece
    sentencepiece.SentencePieceTrainer.train(
        input=FIXTURES / "text/train.txt", model_prefix=path / "tokenizer", model_type="bpe", vocab_size=420, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.999, split_digits=True,
        minloglevel=2)
    (path / "tokenizer.vocab").unlink()


def tokenizer_json(name):
    if name in ("bloom", "llama3"):
        return json.loads((FIXTURES / f"tokenizers/{name}.json").read_text())["tokenizer"]
    # "gpt2": that of prefixed.json without its prefix; "bytes": no merges, and Llama 3's special tokens
    made = json.loads((FIXTURES / "tokenizers/prefixed.json").read_text())["tokenizer"]
    made["pre_tokenizer"]["add_prefix_space"] = False
    if name == "bytes":
        like = tokenizer_json("llama3")
        names = sorted(made["model"]["vocab"], key=made["model"]["vocab"].get)
        letters = [n for n in names if len(n) == 1][:256]
        assert len(letters) == 256
        special = [t["content"] for t in like["added_tokens"]]
        tokens = {token: i for i, token in enumerate(special + letters)}
        merges = [m if isinstance(m, list) else m.split(" ") for m in like["model"]["merges"]]
        for left, right in merges[:2]:
            tokens.setdefault(left + right, len(tokens))
        like["model"]["vocab"], like["model"]["merges"] = tokens, merges[:2]
        return like
    return made


def write_tokenizer(case, path):
    if case.tokenizer == "pieces":
        return pieces(path)
    made = tokenizer_json(case.tokenizer)
    (path / "tokenizer.json").write_text(json.dumps(made))
    ends = [t["content"] for t in made["added_tokens"]]
    start = ends[1] if case.tokenizer == "bloom" else ends[0]
    end = {"bloom": "</s>", "bytes": ends[-1]}.get(case.tokenizer, ends[0])
    (path / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": start, "eos_token": end, "add_bos_token": case.pre == "llama-bpe"}))


def representable(model, kind):
    """Matrices of numbers that survive the type they are stored in."""
    wanted = {"f16": Q.F16, "bf16": Q.BF16, "q8_0": Q.Q8_0}.get(kind)
    for name, p in model.named_parameters():
        if wanted and p.dim() > 1:
            p.data = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(p.data.numpy().copy(), wanted), wanted).copy())
    return model


def build(case, path, seed):
    """The model, and its Hugging Face directory in float32."""
    if case.config is None:
        model = randomized(Baichuan(420, 12, 40, 3, 16, 1e-6), seed)
        for name, p in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                p.data *= 0.2  # forty layers
        save_file({k: v.data.clone() for k, v in model.named_parameters()}, path / "model.safetensors")
        json_keys = {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan", "hidden_size": 12, "hidden_act": "silu",
                     "intermediate_size": 16, "num_hidden_layers": 40, "num_attention_heads": 3, "rms_norm_eps": 1e-6,
                     "model_max_length": 64, "vocab_size": 420, "tie_word_embeddings": False}
        (path / "config.json").write_text(json.dumps(json_keys))
        return model
    model = randomized(AutoModelForCausalLM.from_config(case.config, attn_implementation="eager"), seed)
    model = representable(model, case.kind)
    model.tie_weights()
    model.save_pretrained(path)
    config = json.loads((path / "config.json").read_text())
    if config["model_type"] == "mpt":
        config["architectures"] = ["MPTForCausalLM"]
        for block in model.transformer.blocks:
            block.ffn.act = torch.nn.GELU(approximate="tanh")
    (path / "config.json").write_text(json.dumps(config))
    return model


def convert(case, path, out):
    """llama.cpp's converter, which knows tokenizers by a hash of what they do to one text: it is told the name instead."""
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: case.pre
    base.ModelBase.load_hparams = staticmethod(lambda *given, **more: LOAD_HPARAMS(*given, **more) | case.keys)

    def modify(self, data, name, bid):  # at b21e4de theirs calls itself without end for other tensors than W_pack
        packed = name.endswith("W_pack.weight")
        yield from MODIFY_BAICHUAN(self, data, name, bid) if packed else super(BaichuanModel, self).modify_tensors(data, name, bid)
    BaichuanModel.modify_tensors = modify
    sys.argv = ["convert_hf_to_gguf.py", str(path), "--outfile", str(out), "--outtype", case.kind, "--model-name", out.stem]
    runpy.run_path(str(CHECKOUT / "convert_hf_to_gguf.py"), run_name="__main__")
    if case.quantize:
        whole = out.with_suffix(".whole")
        out.rename(whole)
        subprocess.run([CHECKOUT / "build/bin/llama-quantize", whole, out, case.quantize], check=True, capture_output=True)
        whole.unlink()


def take_back(model, out):
    """A Llama with the weights of a file of blocks: rows of queries and keys have the two of a turned pair side by side there."""
    stored = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(tuple(reversed(t.shape.tolist())))
              for t in gguf.GGUFReader(out).tensors}

    def halves(rows, heads):
        width = rows.shape[0] // heads
        return rows.reshape(heads, width // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)
    config = model.config
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    state = {"model.embed_tokens.weight": stored["token_embd.weight"]}
    for i in range(config.num_hidden_layers):
        for theirs, name in names.items():
            rows = stored[f"blk.{i}.{name}.weight"]
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name)
            state[f"model.layers.{i}.{theirs}.weight"] = halves(rows, heads) if heads else rows
    missing = model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in state.items()}, strict=False)
    assert not missing.unexpected_keys and all("norm" in k or "lm_head" in k for k in missing.missing_keys)
    model.tie_weights()


def token_ids(path):
    tool = CHECKOUT / "build/bin/llama-tokenize"
    with tempfile.NamedTemporaryFile() as file:
        for text in TEXTS:
            pathlib.Path(file.name).write_bytes(text.encode())
            printed = subprocess.run([tool, "-m", path, "-f", file.name, "--ids", "--no-bos", "--no-parse-special",
                                      "--no-escape", "--log-disable"],
                                     check=True, capture_output=True, text=True).stdout
            yield json.loads(printed)


def make(name, case, folder, seed):
    out = (folder / f"{name}.gguf").resolve()
    out.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        model = build(case, path, seed)
        write_tokenizer(case, path)
        convert(case, path, out)
    if case.quantize:
        take_back(model, out)
    run = model if case.config is None else lambda x: model(x, use_cache=False).logits
    slopes = modeling_mpt.build_mpt_alibi_tensor
    if name.startswith("mpt"):  # transformers leaves "alibi_bias_max" out
        most = case.config.attn_config.alibi_bias_max
        modeling_mpt.build_mpt_alibi_tensor = lambda heads, length, *rest, **more: slopes(heads, length, most)
    vocab = model.sizes[0] if case.config is None else case.config.vocab_size
    ids = torch.randint(0, vocab, (1, LENGTH), generator=torch.Generator().manual_seed(seed))
    make_hf_models.CONTINUED = CONTINUED
    p = make_hf_models.log_probabilities(run, ids)
    texts = list(token_ids(out))
    save_file({"ids": ids[0].to(torch.int32), "log_probabilities": p.contiguous(),
               "greedy": make_hf_models.greedy(run, ids[:, :PROMPT]).to(torch.int32),
               "text_ids": torch.tensor(sum(texts, []), dtype=torch.int32),
               "text_lengths": torch.tensor([len(t) for t in texts], dtype=torch.int32)}, folder / f"{name}.safetensors")
    modeling_mpt.build_mpt_alibi_tensor = slopes
    print(f"{name}: {out.stat().st_size} bytes, ln p from {p.min():.1f} to {p.max():.1f}")


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    wanted = sys.argv[2:] or list(cases())
    target.mkdir(parents=True, exist_ok=True)
    for seed, (name, case) in enumerate(cases().items()):
        if name in wanted:
            make(name, case, target, seed + 1)
