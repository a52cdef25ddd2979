#!/usr/bin/env bash
# Who may include whom: a folder of src/ sees the folders listed here and itself. Also: no file above 500 lines, and no type defined by two headers.
set -euo pipefail
cd "$1/src"
declare -A may=(
  [base]=""
  [kernels]="base"
  [position]="base kernels"
  [model]="base kernels position"
  [data]="base dist"
  [dist]="base"
  [formats]="base position model"
  [run]="base kernels position model data formats"
  [generate]="base kernels position model data formats run"
  [train]="base kernels position model data dist run"
  [evaluate]="base kernels position model data dist formats run"
  [experiment]="base kernels position model data dist run train evaluate"
  [report]="base run"
  [serve]="base kernels position model data formats run generate report"
  [cli]="base kernels position model data dist formats run train evaluate generate experiment report serve"
)
bad=0
for folder in */; do
  folder=${folder%/}
  if [ -z "${may[$folder]+x}" ]; then echo "src/$folder is not in the rule"; bad=1; continue; fi
  while IFS=: read -r file include; do
    target=${include%%/*}
    case " $folder ${may[$folder]} " in *" $target "*) continue ;; esac
    echo "src/$file includes $include: $folder may see only: $folder ${may[$folder]}"
    bad=1
  done < <(grep -rHo --include=*.h --include=*.cc --include=*.in '^#include "[^"]*"' "$folder" | sed 's/#include "\(.*\)"/\1/')
done
while read -r lines file; do
  [ "$file" = total ] && continue
  if [ "$lines" -gt 500 ]; then echo "$file has $lines lines; the ceiling is 500"; bad=1; fi
done < <(cd .. && git ls-files 'src/*' 'tests/*.cc' 'tests/*.h' 'bench/*' 2>/dev/null | xargs -r wc -l || true)
while read -r count name; do
  if [ "$count" -gt 1 ]; then echo "$name is defined by more than one header"; bad=1; fi
done < <(grep -rhoP --include=*.h '^(struct|union|class|enum( class)?) \K\w+(?=( final)?( : [^;]*)? \{)' . | sort | uniq -c)
exit $bad
