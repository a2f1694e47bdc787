#!/usr/bin/env bash
# What `make demo` could show: 15,000 steps with the laptop settings, one thread each, two at a time; then figure and table.
# May be stopped and started again at any time; runs whose records are in this folder are left alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
export TSAC="${TSAC:-.venv/bin/tsac}" RUNS="${RUNS:-runs/demo-candidates}"

one() {
    task=$1 seed=$2
    name="${task%-*}-$seed"
    folder="$RUNS/$name" records="results/demo/$name"
    if [ -e "$records/evaluations.csv" ]; then
        return
    fi
    if [ -e "$folder/run.json" ]; then
        "$TSAC" resume "$folder" || return
    else
        "$TSAC" train laptop --task "$task" --seed "$seed" --steps 15000 --threads 1 --device cpu \
            --evaluate-every 2500 --evaluation-episodes 10 --final-episodes 16 --folder "$folder" || return
    fi
    mkdir -p "$records"
    cp "$folder/run.json" "$records"
    cp "$folder/evaluations.csv" "$records/unfinished" && mv "$records/unfinished" "$records/evaluations.csv"
}
export -f one

printf '%s\n' "Hopper-v4 1" "HalfCheetah-v4 1" "Hopper-v4 2" "Hopper-v4 3" "Walker2d-v4 1" |
    xargs -P 2 -L 1 bash -c 'one "$@"' one

"$TSAC" compare results/demo/*/ --output results/demo
