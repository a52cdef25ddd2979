#!/usr/bin/env python3
"""Writes unicode_tables.cc from Python's unicodedata: python3 make_unicode_tables.py > unicode_tables.cc"""
import sys
import unicodedata as u

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
WHITE_SPACE = {9, 10, 11, 12, 13, 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
HANGUL = range(0xAC00, 0xAC00 + 11172)  # composed by rule


def char_class(c):
    category = u.category(chr(c))
    if c in WHITE_SPACE: return 3
    if category[0] == "L": return 1
    if category[0] == "N": return 2
    if category == "Mn": return 4
    if category[0] == "P": return 5
    if category[0] == "C": return 6
    return 0


def runs(value):
    """(first, value) wherever the value changes."""
    out, last = [], None
    for c in range(0x110000):
        v = 6 if 0xD800 <= c <= 0xDFFF and value is char_class else 0 if 0xD800 <= c <= 0xDFFF else value(c)
        if v != last: out.append((c, v))
        last = v
    return out


def lower(c):
    l = chr(c).lower()
    return [ord(x) for x in l]


def canonical(c):
    d = u.decomposition(chr(c))
    return [int(x, 16) for x in d.split()] if d and not d.startswith("<") else None


def table(name, type_, rows):
    print(f"const std::vector<{type_}> {name}{{")
    line = "   "
    for row in rows:
        item = " {" + ",".join(f"0x{x:x}" if x > 9 else str(x) for x in row) + "},"
        if len(line) + len(item) > 110:
            print(line)
            line = "   "
        line += item
    print(line + "\n};\n")


print(f"// Made by make_unicode_tables.py from Unicode {u.unidata_version}. Not edited by hand.")
print('#include "data/unicode_tables.h"\n\n// clang-format off\nnamespace longshot {\n')
table("kClassRuns", "CodePointRun", runs(char_class))
table("kCombiningRuns", "CodePointRun", runs(lambda c: u.combining(chr(c))))
# Lower case by the distance, over stretches of equal step: {first, last, step, lower of the first}.
pairs = [(c, lower(c)[0]) for c in ALL if lower(c) != [c] and len(lower(c)) == 1]
rows, i = [], 0
while i < len(pairs):
    c, l = pairs[i]
    best = (c, c, 1, l)
    end = i + 1
    for step in (1, 2):
        j = i + 1
        while j < len(pairs) and pairs[j][0] - pairs[j - 1][0] == step and pairs[j][1] - pairs[j][0] == l - c: j += 1
        if j > end: best, end = (c, pairs[j - 1][0], step, l), j
    rows.append(best)
    i = end
table("kLowerStretches", "LowerStretch", rows)
decompositions = [(c, *(canonical(c) + [0])[:2]) for c in ALL if canonical(c) and c not in HANGUL]
table("kDecompositions", "Decomposition", decompositions)
# A pair composes to c unless Unicode excludes it: then NFC of the pair is not c.
table("kCompositions", "Decomposition", [(c, a, b) for c, a, b in decompositions if b and u.normalize("NFC", chr(a) + chr(b)) == chr(c)])
print("}  // namespace longshot")
assert [c for c in ALL if len(lower(c)) > 1] == [0x130], "more than one letter: see lower_case()"
assert all(len(canonical(c)) <= 2 for c in ALL if canonical(c))
