#!/usr/bin/env bash
# Fuzzes the graph crate: graph/fuzz/run.sh TARGET [SECONDS]. Targets: model, external, text.
# Inputs that reach new code are added to corpus/TARGET of the target folder; those that once failed are in graph/fuzz/found/TARGET,
# and are run first, as the test `found` of the crate does. Needs a C++ compiler and no nightly: the counters come by stable flags.
set -euo pipefail
cd "$(dirname "$0")"
target=$1 seconds=${2:-60}
out=${CARGO_TARGET_DIR:-target}
export RUSTFLAGS="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --quiet --target-dir "$out" --target "$host" --bin "$target"
mkdir -p "$out/corpus/$target" found/"$target"
case $target in
  model)
    RUSTFLAGS="" cargo run --release --quiet --target-dir "$out/plain" --bin seed -- "$out/corpus/model" seeds/text/*.txt
    ;;
  text) cp seeds/text/*.txt "$out/corpus/text" ;;
esac
"$out/$host/release/$target" "$out/corpus/$target" found/"$target" -max_total_time="$seconds" -rss_limit_mb=1024 \
  -timeout=10 -max_len=16384 -artifact_prefix="$out/" -print_final_stats=1
