#!/usr/bin/env bash
# Makes everything in this folder: 27 runs of 100,000 steps, one thread each, two at a time, then figure and table.
# May be stopped and started again at any time, on another machine, too: runs whose records are in this folder are left
# alone, those under RUNS go on where they were.
set -euo pipefail
cd "$(dirname "$0")/../.."
export TSAC="${TSAC:-.venv/bin/tsac}" RUNS="${RUNS:-runs/first-comparison}"

one() {
    algorithm=$1 task=$2 seed=$3
    name="$algorithm-${task#*/}-$seed"
    folder="$RUNS/$name" records="results/first-comparison/$name"
    if [ -e "$records/evaluations.csv" ]; then
        return
    fi
    if [ -e "$folder/run.json" ]; then
        "$TSAC" resume "$folder" || return
    else
        "$TSAC" train laptop --task "$task" --algorithm "$algorithm" --seed "$seed" --steps 100000 --threads 1 \
            --device cpu --evaluate-every 5000 --evaluation-episodes 20 --final-episodes 20 --folder "$folder" || return
    fi
    mkdir -p "$records"
    cp "$folder/run.json" "$records"
    cp "$folder/evaluations.csv" "$records/unfinished" && mv "$records/unfinished" "$records/evaluations.csv"
}
export -f one

for algorithm in tsac sac td3; do
    for task in Hopper-v4 HalfCheetah-v4 metaworld/window-open-v3; do
        for seed in 0 1 2; do
            echo "$algorithm $task $seed"
        done
    done
done | xargs -P 2 -L 1 bash -c 'one "$@"' one

"$TSAC" compare results/first-comparison/*/ --output results/first-comparison
