#!/usr/bin/python3
"""Evaluation speed beside llama.cpp: the same ALiBi model, the same weights, the same text.

    bench/peers/llama_bench.py LONGSHOT LLAMA_PERPLEXITY TEXT OUT [LENGTH ..]

LLAMA_PERPLEXITY is llama.cpp's tool of that name; TEXT a plain text file of 1 MB or more. A small model is trained on it for a moment and
written as GGUF (f32; llama.cpp knows this architecture as MPT), and both programs go through the beginning of TEXT in windows of
each LENGTH (512 2048 8192). llama.cpp scores the second half of each window, Longshot all of it; the perplexities of second
halves are compared before times are. Medians of PEER_ROUNDS (3) interleaved rounds; loading and tokenizing are not counted on
either side. Writes OUT/llama.json.
"""
import json
import math
import os
import re
import statistics
import struct
import subprocess
import sys

from safetensors_file import SafeTensors

MODEL = {"layers": 4, "dim": 256, "heads": 8, "ffn": 1024}
ROUNDS = int(os.environ.get("PEER_ROUNDS", "3"))
TRAIN = ["--activation", "gelu", "--no-embed-scale", "--position", "alibi", "--length", "256", "--steps", "30",
         "--batch-tokens", "2048", "--warmup", "10"]
NAMES = {"attention_norm": "attn_norm", "attention.qkv": "attn_qkv", "attention.out": "attn_output", "ffn_norm": "ffn_norm",
         "ffn.in": "ffn_up", "ffn.out": "ffn_down"}
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def text_bytes(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(kind, value):
    if kind == STRING:
        return text_bytes(value)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


def field(key, kind, value):
    if isinstance(value, list):
        items = b"".join(value_bytes(kind, v) for v in value)
        return text_bytes(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + items
    return text_bytes(key) + struct.pack("<I", kind) + value_bytes(kind, value)


def gguf_name(name):
    match = re.fullmatch(r"layers\.(\d+)\.(.+)\.(weight|bias)", name)
    if match:
        return f"blk.{match[1]}.{NAMES[match[2]]}.{match[3]}"
    return name.replace("embed.", "token_embd.").replace("final_norm.", "output_norm.")


def write_gguf(checkpoint, path, longest):
    """The model of a checkpoint directory, with its byte-level BPE."""
    source = SafeTensors(os.path.join(checkpoint, "model.safetensors"))
    with open(os.path.join(checkpoint, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    vocab = dict(tokenizer["model"]["vocab"])
    special = {token["content"]: token["id"] for token in tokenizer.get("added_tokens", [])}
    vocab.update(special)
    tokens = sorted(vocab, key=vocab.get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    end = next(iter(special.values()), 0)
    fields = [
        field("general.architecture", STRING, "mpt"),
        field("general.file_type", U32, 0),
        field("mpt.context_length", U32, longest),
        field("mpt.embedding_length", U32, MODEL["dim"]),
        field("mpt.block_count", U32, MODEL["layers"]),
        field("mpt.feed_forward_length", U32, MODEL["ffn"]),
        field("mpt.attention.head_count", U32, MODEL["heads"]),
        field("mpt.attention.layer_norm_epsilon", F32, 1e-5),
        field("mpt.attention.max_alibi_bias", F32, 8.0),
        field("tokenizer.ggml.model", STRING, "gpt2"),
        field("tokenizer.ggml.pre", STRING, "gpt-2"),
        field("tokenizer.ggml.tokens", STRING, tokens),
        field("tokenizer.ggml.token_type", I32, [3 if t in special else 1 for t in tokens]),
        field("tokenizer.ggml.merges", STRING, merges),
        field("tokenizer.ggml.bos_token_id", U32, end),
        field("tokenizer.ggml.eos_token_id", U32, end),
        field("tokenizer.ggml.add_bos_token", BOOL, False),
    ]
    names = [n for n in source.entries if n != "__metadata__"]
    header, data = b"", b""
    for name in names:
        begin, finish = source.entries[name]["data_offsets"]
        source.file.seek(source.data + begin)
        shape = source.shape(name)
        header += text_bytes(gguf_name(name)) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        data += source.file.read(finish - begin)
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(names), len(fields)) + b"".join(fields) + header
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"llama_bench.py: {' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def logged_at(message, printed):
    """Seconds since its start when llama.cpp logged this: minutes.seconds.milliseconds.microseconds stand before it."""
    match = re.search(rf"(\d+)\.(\d+)\.(\d+)\.(\d+) \S+ (?:perplexity: )?{message}", printed)
    minutes, seconds, milli, micro = map(int, match.groups())
    return 60 * minutes + seconds + milli / 1e3 + micro / 1e6


def second_half_perplexity(result, length):
    bins = [b for b in result["per_position"] if b["from"] >= length // 2]
    return math.exp(sum(b["loss"] * b["tokens"] for b in bins) / sum(b["tokens"] for b in bins))


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    longshot, llama, text, out = sys.argv[1:5]
    lengths = [int(a) for a in sys.argv[5:]] or [512, 2048, 8192]
    tokens, checkpoints = os.path.join(out, "llama-tokens"), os.path.join(out, "llama-run")
    if not os.path.isdir(tokens):
        run([longshot, "prepare", "--train", text, "--valid", text, "--format", "text", "--tokenizer", "bpe", "--vocab-size", "8192",
             "--out", tokens])
    if not os.path.isdir(checkpoints):
        shape = [part for key, value in MODEL.items() for part in (f"--{key}", str(value))]
        run([longshot, "train", "--data", tokens, "--out", checkpoints, *shape, *TRAIN])
    newest = max(entry.path for entry in os.scandir(os.path.join(checkpoints, "checkpoints")) if entry.is_dir())
    model = os.path.join(out, "model.gguf")
    write_gguf(newest, model, max(lengths))

    rows = []
    print(f"\nllama.cpp beside Longshot, evaluation, {MODEL['layers']}x{MODEL['dim']}")
    print(f"{'L':>6} {'Longshot':>10} {'llama.cpp':>10} {'ratio':>7} {'perplexity':>21}")
    for length in lengths:
        ours, theirs = [], []
        windows = max(4, 16384 // length)
        for _ in range(ROUNDS):
            result = os.path.join(out, "eval.json")
            run([longshot, "eval", checkpoints, "--data", tokens, "--lengths", str(length), "--max-tokens", str(windows * length),
                 "--json", result])
            with open(result) as file:
                evaluated = json.load(file)
            ours.append((evaluated["results"][0]["tokens_per_second"], second_half_perplexity(evaluated, length)))
            printed = run([llama, "-m", model, "-f", text, "-c", str(length), "-b", str(length), "-ub", "512", "-t", "2", "--chunks",
                           str(windows)])
            seconds = logged_at("Final estimate", printed) - logged_at("calculating perplexity", printed)
            theirs.append((windows * length / seconds, float(re.search(r"PPL = ([\d.]+)", printed)[1])))
        row = {"length": length, "longshot_tokens_per_second": statistics.median(speed for speed, _ in ours),
               "llama_tokens_per_second": statistics.median(speed for speed, _ in theirs),
               "perplexity": [ours[0][1], theirs[0][1]]}
        row["ratio"] = row["longshot_tokens_per_second"] / row["llama_tokens_per_second"]
        rows.append(row)
        same = abs(row["perplexity"][0] / row["perplexity"][1] - 1) < 0.01
        print(f"{length:>6} {row['longshot_tokens_per_second']:>10.0f} {row['llama_tokens_per_second']:>10.0f} {row['ratio']:>6.2f}x"
              f" {row['perplexity'][0]:>10.2f} {row['perplexity'][1]:>10.2f}{'' if same else '  the perplexities differ'}", flush=True)
    with open(os.path.join(out, "llama.json"), "w") as file:
        json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
