"""Makes tests/fixtures/tokenizers/: a small tokenizer.json in the manner of each family, learnt by the tokenizers package
from the text of the fixtures, and the ids that the package gives for a list of difficult texts.

    python make_tokenizer_files.py [DIR]
"""
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
BYTES = pre_tokenizers.ByteLevel.alphabet()

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "a", " a", "a ", "the", " the", "The theory of the thing",
    "  two  spaces   three    four", "a\nb\n\nc", "line\r\nline\r\n", "tab\there", "nul\0byte", "\0",
    "I'm sure they'll say we've DON'T 'S 'ſ it's", "e\u0301 cafe\u0301 café Å A\u030A", "ñandú ß İ ŉ",
    "\U0001F469\u200D\U0001F469\u200D\U0001F467 \U0001F600\U0001F1E9\U0001F1EA", "العربية עברית \u200F\u202E",
    "日本語 漢字、。 한국어", "हिन्दी। ไทย", "1 12 123 1234 12345678901234567890 3.14", "½ ² Ⅷ ١٢٣", "x=1;y=[2,3]{4}",
    "...!?!? (a) \"b\" -- #c @d", "<s>", "</s>", "<unk>", "a<s>b</s>", "<|endoftext|>", "x <|endoftext|> y", "<0x0A>",
    "▁", "▁a ▁▁b", "\u00a0x\u3000y\u2003z", "\u2028\u2029\x85", "\ufeffbom", "\ufffd", "a" * 300, " " * 300,
    "the " * 100, "=" * 130, "\n" * 70, "word" * 40 + " " * 17 + "\t" * 9, "Mixed 日本 text, with “quotes” … and — dashes",
    "http://example.org/a?b=c&d=%20#e", "for (int i = 0; i < n; ++i) {\n    x[i] += y[i];\n}\n", "\U0010FFFF\uE000",
    "zażółć gęślą jaźń", "ΑΒΓ αβγ Ω", "<extra>here</extra> <extra>", "\x1b[31m",
]


def trained(tokenizer, specials, **options):
    trainer = trainers.BpeTrainer(vocab_size=options.pop("vocab", 700), special_tokens=specials, show_progress=False,
                                  **options)
    lines = [(HERE / "text" / name).read_text() for name in ("train.txt", "valid.txt")]
    tokenizer.train_from_iterator(lines + TEXTS * 30, trainer)  # merges of other alphabets too
    return tokenizer


def byte_level(pre, specials, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, specials, initial_alphabet=BYTES)


def plain_bytes():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def bloom():
    split = pre_tokenizers.Split(Regex(" ?[^(\\s|[.,!?…。，、।۔،])]+"), "isolated")
    return byte_level(pre_tokenizers.Sequence([split, plain_bytes()]), ["<unk>", "<s>", "</s>", "<pad>"])


def gpt_neox():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], normalizers.NFC())
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    tokenizer.add_tokens([AddedToken("<extra>", normalized=False)])
    return tokenizer


def falcon():
    return byte_level(
        pre_tokenizers.Sequence([
            pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")
        ]), ["<|endoftext|>"])


def prefixed():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), ["<|endoftext|>"])


def llama3():
    pattern = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
               "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer = byte_level(pre_tokenizers.Sequence([split, plain_bytes()]), ["<|begin_of_text|>", "<|end_of_text|>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
    whole = json.loads(tokenizer.to_str())
    whole["model"]["ignore_merges"] = True
    # A token that no merge makes: only what is taken whole has it.
    next_id = len(whole["model"]["vocab"])
    whole["model"]["vocab"]["Ġtheory"] = next_id
    return Tokenizer.from_str(json.dumps(whole))


def characters(normalizer, pre, byte_fallback=True):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # as SentencePiece learns
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256) if byte_fallback]
    trained(tokenizer, specials, vocab=900)
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = whole["added_tokens"][:3]
    whole["normalizer"] = json.loads(normalizer) if normalizer else None
    whole["pre_tokenizer"] = json.loads(pre) if pre else None
    whole["decoder"] = {
        "type": "Sequence",
        "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                     {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    }
    result = Tokenizer.from_str(json.dumps(whole))
    result.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return result


def llama2():
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                       {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    return characters(json.dumps(normalizer), None)


def llama2_metaspace():
    pre = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    tokenizer = characters(None, json.dumps(pre))
    tokenizer.add_tokens([AddedToken("<extra>", normalized=False)])
    return tokenizer


def unknown_fused():
    pre = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return characters(None, json.dumps(pre), byte_fallback=False)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for make in (bloom, gpt_neox, falcon, prefixed, llama3, llama2, llama2_metaspace, unknown_fused):
        tokenizer = make()
        tokenizer.encode_special_tokens = True
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        with_specials = tokenizer.encode("a").ids
        fixture = {"tokenizer": json.loads(tokenizer.to_str()), "ids": ids,
                   "start": with_specials[0] if len(with_specials) > len(tokenizer.encode("a", add_special_tokens=False).ids)
                   else None}
        (folder / f"{make.__name__}.json").write_text(json.dumps(fixture, ensure_ascii=False, separators=(",", ":")) + "\n")
    (folder / "texts.json").write_text(json.dumps(TEXTS, indent=0) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "tokenizers")
