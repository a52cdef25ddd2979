#!/usr/bin/python3
"""Other programs' models: import, export and evaluation of a BLOOM-560m-shaped model beside cp and Hugging Face's transformers.

    bench/peers/transformers_eval.py LONGSHOT OUT [--lengths 512,2048,8192] [--type f32|bf16] [--shape 24,1024,16,250880]

A Python with torch, transformers and safetensors, and 12 GB of disk in OUT. The model is of random numbers (layers, dim, heads, vocabulary:
--shape); so is its text. First the copy: cp and sync, import, export, PEER_ROUNDS (3) times in turn; the medians count, and bytes a second
as shares of cp's. Then windows that do not overlap, as many as are 8192 tokens or one: tokens/s and peak memory of `longshot eval` and of
transformers, each in a process of its own, loading not counted. transformers runs as users run it: `plain` takes the logits of a
window at once, `parts` takes the hidden states and the logits of 512 tokens at a time; the faster one is marked *. The mean losses are
compared before times are. With --type bf16 weights and products are bf16 on both sides. Writes OUT/transformers.json.
"""
import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time

ROUNDS = int(os.environ.get("PEER_ROUNDS", "3"))
TOKENS, PART = 8192, 512
WAYS = ("plain", "parts")


def make_model(path, shape, kind):
    """Random numbers as big as a trained model's, in the layout of BLOOM."""
    import torch
    from safetensors.torch import save_file
    layers, dim, heads, vocab = shape
    generator, dtype = torch.Generator().manual_seed(1), {"f32": torch.float32, "bf16": torch.bfloat16}[kind]
    tensors = {}

    def put(name, *extents, mean=0):
        tensors["transformer." + name] = (torch.randn(extents, generator=generator) * 0.02 + mean).to(dtype)

    def norm(name):
        put(name + ".weight", dim, mean=1)
        put(name + ".bias", dim)

    put("word_embeddings.weight", vocab, dim)
    norm("word_embeddings_layernorm")
    norm("ln_f")
    for i in range(layers):
        norm(f"h.{i}.input_layernorm")
        norm(f"h.{i}.post_attention_layernorm")
        for name, rows, columns in (("self_attention.query_key_value", 3 * dim, dim), ("self_attention.dense", dim, dim),
                                    ("mlp.dense_h_to_4h", 4 * dim, dim), ("mlp.dense_4h_to_h", dim, 4 * dim)):
            put(f"h.{i}.{name}.weight", rows, columns)
            put(f"h.{i}.{name}.bias", rows)
    os.makedirs(path)
    save_file(tensors, os.path.join(path, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump({"architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": dim, "n_layer": layers, "n_head": heads,
                   "vocab_size": vocab, "seq_length": 2048, "layer_norm_epsilon": 1e-5,
                   "torch_dtype": str(dtype).removeprefix("torch.")}, file)


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"transformers_eval.py: {' '.join(map(str, command))}\n{done.stderr[-2000:]}")


def timed(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def copies(longshot, model, out):
    """Seconds of cp with sync, import and export, in an order that goes round; the first round only makes memory that was touched before."""
    copy, imported, exported, source = (os.path.join(out, name) for name in ("copy", "imported", "exported", "run"))
    weights = os.path.join(model, "model.safetensors")
    actions = {"cp": (copy, lambda: run("sh", "-c", f"cp -r '{model}' '{copy}' && sync '{copy}/model.safetensors'")),
               "import": (imported, lambda: run(longshot, "import", model, "--out", imported, "--no-tokenizer")),
               "export": (exported, lambda: run(longshot, "export", source, "--format", "hf", "--out", exported))}
    shutil.rmtree(source, ignore_errors=True)
    run(longshot, "import", model, "--out", source, "--no-tokenizer")
    seconds, order = {what: [] for what in actions}, list(actions)
    for n in range(ROUNDS + 1):
        for what in order[n % 3:] + order[:n % 3]:
            path, action = actions[what]
            shutil.rmtree(path, ignore_errors=True)
            run("sync")
            run("sh", "-c", f"cat '{weights}' $(find '{source}' -type f) > /dev/null")  # into the page cache
            spent = timed(action)
            if n > 0:
                seconds[what].append(spent)
            shutil.rmtree(path)
    size = os.path.getsize(weights)
    found = {what: statistics.median(s) for what, s in seconds.items()}
    for what, median in found.items():
        print(f"{what:>8} {median:6.2f} s {size / median / 1e9:6.2f} GB/s {found['cp'] / median:6.2f} of cp")
    return {"bytes": size, "seconds": seconds}


def their_eval(model, tokens, length, way, kind):
    """In a process of its own: tokens/s, the mean loss and the peak memory."""
    import numpy
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    program = AutoModelForCausalLM.from_pretrained(model, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[kind]).eval()
    ids = torch.from_numpy(numpy.fromfile(tokens, dtype=numpy.int64))
    inputs, targets = ids[:-1].split(length), ids[1:].split(length)

    def loss(x, y):
        if way == "plain":
            return torch.nn.functional.cross_entropy(program(x[None], use_cache=False).logits[0].float(), y, reduction="sum").item()
        hidden = program.transformer(x[None], use_cache=False)[0][0]
        return sum(torch.nn.functional.cross_entropy(program.lm_head(h).float(), t, reduction="sum").item()
                   for h, t in zip(hidden.split(PART), y.split(PART)))

    with torch.inference_mode():
        loss(inputs[0][:64], targets[0][:64])  # what is set up in the first call
        begin = time.perf_counter()
        total = sum(loss(x, y) for x, y in zip(inputs, targets))
        seconds = time.perf_counter() - begin
    return {"loss": total / len(targets[0]) / len(targets), "tokens_per_second": len(ids[1:]) / seconds,
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def random_words(longshot, out, vocab, count):
    """A token set of `count` words of the whole vocabulary, and the ids a window is told: what begins a text, and all but the last."""
    import numpy
    dictionary, text, data, ids = (os.path.join(out, name) for name in ("dict.txt", "text.txt", "words", "ids"))
    specials, end = 4, 2  # fairseq's: <s> <pad> </s> <unk>
    words = numpy.random.default_rng(1).integers(0, vocab - specials, count - 1)
    with open(dictionary, "w") as file:
        file.writelines(f"w{i} 1\n" for i in range(vocab - specials))
    with open(text, "w") as file:
        file.write(" ".join(f"w{i}" for i in words) + "\n")
    shutil.rmtree(data, ignore_errors=True)
    run(longshot, "prepare", "--train", text, "--valid", text, "--format", "text", "--tokenizer", dictionary, "--out", data)
    numpy.array([end, *(words + specials), end], dtype=numpy.int64).tofile(ids)
    return data, ids


def evaluations(longshot, model, out, options):
    data, ids = random_words(longshot, out, options.shape[3], TOKENS)
    rows, precision = [], ["--precision", "bf16"] if options.type == "bf16" else []
    for length in options.lengths:
        ours, theirs = [], {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            result = os.path.join(out, "eval.json")
            run(longshot, "eval", os.path.join(out, "run"), "--data", data, "--lengths", length, "--score", "all", "--max-tokens", TOKENS,
                "--json", result, *precision)
            with open(result) as file:
                ours.append(json.load(file)["results"][0])
            for way, found in theirs.items():
                done = subprocess.run([sys.executable, __file__, "--measure", json.dumps([model, ids, length, way, options.type])],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                if done.returncode == 0:
                    found.append(json.loads(done.stdout.splitlines()[-1]))
        rows.append(row_of(length, ours, theirs, options))
    return rows


def row_of(length, ours, theirs, options):
    speed = statistics.median(r["tokens_per_second"] for r in ours)
    memory = max(r["peak_memory_bytes"] for r in ours)
    row = {"length": length, "longshot": {"tokens_per_second": speed, "peak_memory_bytes": memory, "loss": ours[0]["loss"]}}
    timed_ways = [way for way in WAYS if theirs[way]]
    best = max(timed_ways, key=lambda way: statistics.median(f["tokens_per_second"] for f in theirs[way]), default=None)
    for way in WAYS:
        if not theirs[way]:
            print(f"{length:>6} {speed:>10.1f}  {way}: ended without a result (out of memory?)", flush=True)
            continue
        their = {"tokens_per_second": statistics.median(f["tokens_per_second"] for f in theirs[way]),
                 "peak_memory_bytes": max(f["peak_memory_bytes"] for f in theirs[way]), "loss": theirs[way][0]["loss"]}
        row[way] = their
        same = abs(their["loss"] / ours[0]["loss"] - 1) < (1e-4 if options.type == "f32" else 1e-2)
        print(f"{length:>6} {speed:>10.1f} {their['tokens_per_second']:>12.1f} {speed / their['tokens_per_second']:>6.2f}x"
              f"{'*' if way == best else ' '} {way:>6} {memory / 2**20:>8.0f} / {their['peak_memory_bytes'] / 2**20:.0f} MiB"
              f"{'' if same else '  the losses differ: %.6f and %.6f' % (ours[0]['loss'], their['loss'])}", flush=True)
    return row


def main():
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(their_eval(*json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("longshot")
    parser.add_argument("out")
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--lengths", type=numbers, default=[512, 2048, 8192])
    parser.add_argument("--type", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--shape", type=numbers, default=[24, 1024, 16, 250880])
    options = parser.parse_args()
    import torch
    import transformers
    model = os.path.join(options.out, f"model-{options.type}-{'x'.join(map(str, options.shape))}")
    if not os.path.isdir(model):
        make_model(model, options.shape, options.type)
    print(f"\nA BLOOM of {options.shape[0]} layers, dim {options.shape[1]}, {options.shape[2]} heads, vocabulary {options.shape[3]}, {options.type}")
    found = {"shape": options.shape, "type": options.type, "torch": torch.__version__, "transformers": transformers.__version__,
             "copies": copies(options.longshot, model, options.out)}
    print(f"\nEvaluation beside transformers {transformers.__version__}, PyTorch {torch.__version__}; the last two columns: peak memory\n"
          f"{'L':>6} {'Longshot':>10} {'transformers':>12} {'ratio':>7}")
    found["eval"] = evaluations(options.longshot, model, options.out, options)
    shutil.rmtree(os.path.join(options.out, "run"))
    with open(os.path.join(options.out, "transformers.json"), "w") as file:
        json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
