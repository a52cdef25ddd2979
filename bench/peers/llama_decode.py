#!/usr/bin/python3
"""Decoding speed beside llama.cpp: one sequence, a model of the same shape, numbers that repeat (only their size counts).

    bench/peers/llama_decode.py LONGSHOT LLAMA_BENCH OUT [LAYERS DIM HEADS VOCABULARY]

LLAMA_BENCH is llama.cpp's llama-bench; the shape is BLOOM-560m's unless given. Models in f32, f16 and q8_0 are written to OUT as GGUF (4 GB;
llama.cpp knows this architecture as MPT), and both programs make text in turn, PEER_ROUNDS (3) times: f32 beside f32, bf16 beside
f16, int8 beside q8_0. Longshot's tokens are drawn, llama.cpp's are not. Medians, and medians of the ratios of each round. Writes
OUT/llama-decode.json.
"""
import array
import json
import os
import random
import statistics
import struct
import sys

from llama_bench import ROUNDS, run

U32, F32, BOOL, STRING = 4, 6, 7, 8
NUMBERS = 1 << 16  # that repeat
TYPES = {"f32": (0, "f32"), "f16": (1, "bf16"), "q8_0": (8, "int8")}  # llama.cpp's: its number in GGUF, Longshot's


def text_bytes(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def field(key, kind, value):
    bytes_of = text_bytes(value) if kind == STRING else struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)
    return text_bytes(key) + struct.pack("<I", kind) + bytes_of


def pattern(kind):
    """Bytes of NUMBERS numbers."""
    source = random.Random(1)
    if kind == "f32":
        return array.array("f", (source.uniform(-0.05, 0.05) for _ in range(NUMBERS))).tobytes()
    if kind == "f16":
        return struct.pack(f"<{NUMBERS}e", *(source.uniform(-0.05, 0.05) for _ in range(NUMBERS)))
    scale = struct.pack("<e", 0.05 / 127)
    return b"".join(scale + bytes(source.randrange(256) for _ in range(32)) for _ in range(NUMBERS // 32))


def tensors(layers, dim, vocab):
    """Names and shapes, outputs first."""
    yield "token_embd.weight", (vocab, dim)
    for i in range(layers):
        for name, shape in {"attn_norm": (dim,), "attn_qkv": (3 * dim, dim), "attn_output": (dim, dim), "ffn_norm": (dim,),
                            "ffn_up": (4 * dim, dim), "ffn_down": (dim, 4 * dim)}.items():
            yield f"blk.{i}.{name}.weight", shape
            yield f"blk.{i}.{name}.bias", shape[:1]
    yield "output_norm.weight", (dim,)
    yield "output_norm.bias", (dim,)


def write_gguf(path, kind, shape):
    layers, dim, heads, vocab = shape
    fields = [
        field("general.architecture", STRING, "mpt"),
        field("mpt.context_length", U32, 2048),
        field("mpt.embedding_length", U32, dim),
        field("mpt.block_count", U32, layers),
        field("mpt.feed_forward_length", U32, 4 * dim),
        field("mpt.attention.head_count", U32, heads),
        field("mpt.attention.layer_norm_epsilon", F32, 1e-5),
        field("mpt.attention.max_alibi_bias", F32, 8.0),
        field("mpt.vocab_size", U32, vocab),
        field("tokenizer.ggml.model", STRING, "no_vocab"),
        field("tokenizer.ggml.add_bos_token", BOOL, False),
    ]
    numbers, floats = pattern(kind), pattern("f32")
    header, sizes, offset = b"", [], 0
    for name, extent in tensors(layers, dim, vocab):
        count = extent[0] * (extent[1] if len(extent) > 1 else 1)
        source = numbers if len(extent) > 1 else floats
        bytes_of = count * len(source) // NUMBERS
        number = TYPES[kind][0] if len(extent) > 1 else 0
        header += text_bytes(name) + struct.pack(f"<I{len(extent)}QIQ", len(extent), *reversed(extent), number, offset)
        sizes.append((source, bytes_of))
        offset += bytes_of + -bytes_of % 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(sizes), len(fields)) + b"".join(fields) + header
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for source, size in sizes:
            for first in range(0, size, len(source)):
                file.write(source[:size - first])
            file.write(bytes(-size % 32))


def main():
    if len(sys.argv) not in (4, 8):
        sys.exit(__doc__)
    longshot, llama, out = sys.argv[1:4]
    shape = [int(a) for a in sys.argv[4:]] or [24, 1024, 16, 250880]
    os.makedirs(out, exist_ok=True)
    models = {kind: os.path.join(out, f"decode-{kind}.gguf") for kind in TYPES}
    for kind, path in models.items():
        write_gguf(path, kind, shape)
    ours, theirs = {kind: [] for kind in TYPES}, {kind: [] for kind in TYPES}
    for _ in range(ROUNDS):
        result = os.path.join(out, "decode.json")
        run([longshot, "bench", "--what", "decode", "--decode-shape", ",".join(map(str, shape)), "--decode-prompt", "0", "--repeat",
             "3", "--json", result])
        with open(result) as file:
            rates = {row["weights"]: row["tokens_per_second"] for row in json.load(file)["decode"]}
        for kind, (_, name) in TYPES.items():
            ours[kind].append(rates[name])
            printed = run([llama, "-m", models[kind], "-p", "0", "-n", "24", "-r", "3", "-t", "2", "-o", "json"])
            theirs[kind].append(json.loads(printed[printed.index("["):printed.rindex("]") + 1])[0]["avg_ts"])
    print(f"\nllama.cpp beside Longshot, decoding, {shape[0]}x{shape[1]}, vocabulary {shape[3]}")
    print(f"{'weights':>14} {'Longshot':>10} {'llama.cpp':>10} {'ratio':>7}")
    rows = []
    for kind, (_, name) in TYPES.items():
        row = {"longshot": name, "llama": kind, "longshot_tokens_per_second": statistics.median(ours[kind]),
               "llama_tokens_per_second": statistics.median(theirs[kind]),
               "ratio": statistics.median(a / b for a, b in zip(ours[kind], theirs[kind]))}
        rows.append(row)
        print(f"{name + ' / ' + kind:>14} {row['longshot_tokens_per_second']:>10.1f} {row['llama_tokens_per_second']:>10.1f}"
              f" {row['ratio']:>6.2f}x")
    with open(os.path.join(out, "llama-decode.json"), "w") as file:
        json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
