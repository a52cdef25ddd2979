#!/usr/bin/env bash
# Installs Longshot into a scratch directory, builds examples/ with find_package(longshot) and runs the result.
set -euo pipefail
source_dir=$1 build_dir=$2 program=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build_dir" --prefix "$work/installed" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cached() { sed -n "s/^$1:[A-Z]*=\(..*\)$/\1/p" "$build_dir/CMakeCache.txt"; }
sanitize=$(cached LONGSHOT_SANITIZE)
cp -r "$source_dir/examples" "$work/example"  # outside the tree, as a stranger would
{ cmake -S "$work/example" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/installed" -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)" -DCMAKE_CXX_FLAGS="${sanitize:+-fsanitize=$sanitize}" && ninja -C "$work/build"; } > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for i in $(seq 1 60); do echo "Line $i: a small text that the example can learn something from, word by word."; done > "$work/text.txt"
"$program" prepare "$work/text.txt" --split 0.9,0.1,0 --tokenizer byte --out "$work/tokens" 2> /dev/null
"$work/build/train_short_test_long" "$work/tokens" "$work/run" | grep -E "trained at 32, scored 10[0-9]{2} tokens: [0-9.]+ nats"
"$work/build/attention" | grep -E "^attention: lse -?[0-9]+\.[0-9]+, gradient of the first slope -?[0-9]+\.[0-9]+$"
[ "$("$work/build/complete" "$work/run" "Line 1: a small" | head -c 15)" = "Line 1: a small" ]
