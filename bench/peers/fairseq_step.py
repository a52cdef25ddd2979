"""One step of the ALiBi authors' own model: their fairseq, from a checkout, as a peer of torch_bench.py.

Wants Debian's python3-omegaconf, python3-regex, python3-cffi and python3-tqdm. Hydra is not in Debian and not needed for the model: a
stand-in takes its place at import.
"""
import argparse
import dataclasses
import inspect
import sys
import types


class Inert:
    """Stands for any name that is imported and never used."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **options):
        return self


def stub(name):
    module = types.ModuleType(name)
    module.__path__ = []
    module.__getattr__ = lambda attribute: Inert()
    sys.modules[name] = module


def import_fairseq(checkout):
    for name in ("hydra", "hydra.core", "hydra.core.config_store", "hydra.core.global_hydra", "hydra.experimental", "sacrebleu"):
        stub(name)
    if sys.version_info >= (3, 11):  # fairseq's configs have configs as defaults, which Python refuses since then
        source = inspect.getsource(dataclasses).replace("f.default.__class__.__hash__ is None", "False")
        exec(compile(source, dataclasses.__file__, "exec"), dataclasses.__dict__)
    import numpy
    numpy.float = float  # an alias that newer versions have dropped
    sys.path.insert(0, checkout)
    import fairseq.models.transformer_lm  # noqa: F401


def load(model, parameters):
    """Longshot's names to fairseq's; query, key and value are one matrix here and three there."""
    state = {}
    for name, value in parameters.items():
        value = value.detach()
        if name.startswith("embed.band"):
            band, part = name[len("embed.band"):].split(".")
            state[f"embed_tokens.embeddings.{band}.{0 if part == 'weight' else 1}.weight"] = value
        elif name == "output.clusters":
            state["adaptive_softmax.head.class_proj.weight"] = value
        elif ".attention.qkv." in name:
            for part, piece in zip("qkv", value.chunk(3)):
                state[name.replace("attention.qkv", f"self_attn.{part}_proj")] = piece
        else:
            for ours, theirs in (("attention.out", "self_attn.out_proj"), ("attention_norm", "self_attn_layer_norm"),
                                 ("ffn_norm", "final_layer_norm"), ("ffn.in", "fc1"), ("ffn.out", "fc2")):
                name = name.replace(ours, theirs)
            state[name.replace("final_norm", "layer_norm")] = value
    problems = model.decoder.load_state_dict(state, strict=False)
    filled_otherwise = ("version", "adaptive_softmax", "embed_positions")  # tied, or no weights
    unset = [n for n in problems.missing_keys if not n.endswith("_float_tensor") and not n.startswith(filled_otherwise)]
    if unset or problems.unexpected_keys:
        raise ValueError(f"weights do not fit fairseq's model: {unset} missing, {problems.unexpected_keys} unknown")


def make_step(c, parameters, ids, targets):
    """A function that does one step and returns the mean loss; c as in torch_bench.py, adaptive models only."""
    import_fairseq(c.fairseq)
    import torch
    from fairseq.criterions.adaptive_loss import AdaptiveLoss
    from fairseq.data import Dictionary
    from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
    from fairseq.optim.nag import NAG
    from fairseq.sequence_scorer import SequenceScorer

    words = Dictionary()
    for i in range(c.vocab - len(words)):
        words.add_symbol(f"w{i}")
    task = types.SimpleNamespace(source_dictionary=words, target_dictionary=words)
    cutoffs = ",".join(map(str, c.adaptive_cutoffs))
    config = {f.name: f.default for f in dataclasses.fields(TransformerLanguageModelConfig)}
    config.update(
        dropout=c.dropout, attention_dropout=c.attention_dropout, activation_dropout=c.activation_dropout,
        adaptive_softmax_dropout=c.adaptive_dropout, decoder_embed_dim=c.dim, decoder_input_dim=c.dim, decoder_output_dim=c.dim, decoder_ffn_embed_dim=c.ffn,
        decoder_layers=c.layers, decoder_attention_heads=c.heads, decoder_normalize_before=True, adaptive_input=True,
        adaptive_input_cutoff=cutoffs, adaptive_softmax_cutoff=cutoffs, tie_adaptive_weights=True, tie_adaptive_proj=True,
        tokens_per_sample=c.length, max_tokens=c.tokens, max_target_positions=c.length, no_token_positional_embeddings=True,
        add_bos_token=False, tpu=False)
    model = TransformerLanguageModel.build_model(argparse.Namespace(**config), task)
    load(model, parameters)
    # Random ids may be that of the padding, which the text of a language model never has.
    model.decoder.padding_idx = -1
    sample = {"net_input": {"src_tokens": ids, "src_lengths": torch.full((c.sequences,), c.length)}, "target": targets,
              "ntokens": c.tokens, "nsentences": c.sequences}
    if c.task == "eval":
        scorer = SequenceScorer(words)
        scorer.pad = -1

        def evaluate():
            scores = scorer.generate([model], sample)
            return -sum(s[0]["positional_scores"].double().sum().item() for s in scores) / c.tokens
        return evaluate

    model.train()
    criterion = AdaptiveLoss(task, sentence_avg=False)
    criterion.padding_idx = -1
    optimizer = NAG(model.parameters(), lr=1e-4, momentum=0.99)

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model, sample)[0] / c.tokens
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss.item()
    return train
