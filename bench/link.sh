#!/usr/bin/env bash
# How much of what two ranks send is hidden behind what they compute, over a link of limited rate between two network namespaces.
# Needs root and iproute2.
#   bench/link.sh LONGSHOT TOKENS [RATE in Mbit/s, 1000]      TOKENS: a token set of `longshot prepare`
#
#   hidden = (sending - (step - compute)) / (sending - waiting)
#
# step: measured over the link; compute: the same where the link carries what it can; sending, waiting: of the forecast, what
# the link carries, and what no order of work could hide.
set -euo pipefail
longshot=$(realpath "$1") tokens=$(realpath "$2") rate=${3:-1000}
hosts=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../tests/mpirun/hosts.sh")
work=$(mktemp -d) name=lsb$$
trap '"$hosts" "$name" down; rm -rf "$work"' EXIT
model="--data $tokens --layers 4 --dim 512 --heads 8 --length 512 --batch-tokens 4096 --threads 1"

seconds_per_step() {  # [RATE]: of the last 8 of 12 steps
  "$hosts" "$name" up "$@"
  "$hosts" "$name" run -n 2 "$longshot" train $model --out "$work/run" --steps 12 --log-every 4 --eval-tokens 512 > "$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
  "$hosts" "$name" down
  python3 -c "
import json
times = {r['step']: r['seconds'] for r in map(json.loads, open('$work/run/metrics.jsonl')) if 'loss' in r}
print((times[12] - times[4]) / 8)"
  rm -rf "$work/run"
}

read -r sending waiting < <("$longshot" train $model --dry-run --ranks 2 --bandwidth "${rate}Mbit" |
  awk '$1 == 2 { print $8, $10 }')
compute=$(seconds_per_step)
step=$(seconds_per_step "${rate}mbit")
python3 -c "
sending, waiting, compute, step = $sending, $waiting, $compute, $step
hidden = (sending - (step - compute)) / (sending - waiting)
print(f'{$rate} Mbit/s: a step {step:.3f} s, {compute:.3f} s over a free link; sending {sending:.3f} s, of which {100 * hidden:.0f}% of what can be hidden is')"
