#!/usr/bin/env bash
# Builds Longshot without MPI, runs what is made of messages, and sees that the program refuses to be started several times.
set -euo pipefail
source_dir=$1 build_dir=$2
work=$build_dir/without-mpi
cmake -S "$source_dir" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLONGSHOT_MPI=OFF > "$work.log"
ninja -C "$work" longshot_program dist_test mpirun_test >> "$work.log" || { tail -50 "$work.log"; exit 1; }
! ldd "$work/longshot" | grep -i mpi
"$work/tests/dist_test" --gtest_brief=1
"$work/tests/mpirun_test" > "$work.skipped"
grep -m 1 "built without MPI" "$work.skipped"
"$work/longshot" --version
status=0
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none -n 2 \
  "$work/longshot" train --data x --out y 2> "$work.refused" || status=$?
grep "mpirun started 2 processes, but this longshot was built without MPI" "$work.refused"
[ "$status" = 2 ] || { echo "ended with $status"; exit 1; }
