#!/usr/bin/env bash
# tools/gpu_check.sh -- all checks that need a GPU, run from the installed package; nothing is built or installed here.
# SPDX-License-Identifier: Apache-2.0
#
# gpu_check.sh [FOLDER [DEVICE]]: leaves logs and gpu_check.json in FOLDER (default: gpu_check), and checks DEVICE
# (default: cuda:0). It takes at most 8 minutes. Exit code: 0 if all sections passed, 1 if a section failed, 2 for a
# broken package or a bad argument, 3 if there is no GPU to check.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-gpu_check}
checked=${2:-cuda:0}

if [[ $out == -* || $# -gt 2 || ! $checked =~ ^cuda:[0-9]+$ ]]; then
  echo "usage: gpu_check.sh [FOLDER [cuda:N]]" >&2
  [[ $out == -h || $out == --help ]]
  exit $((2 * $?))
fi
# Sections see only the chosen GPU, so that all of them use cuda:0.
IFS=, read -r -a visible <<<"${CUDA_VISIBLE_DEVICES:-}"
ordinal=${checked#cuda:}
if ((${#visible[@]})); then ordinal=${visible[ordinal]:-none}; fi
export CUDA_VISIBLE_DEVICES=$ordinal
device=cuda:0

# The programs lie beside this script in a package, and below build/ in a checkout.
for bin in "$here" "$here/../build/dist/bin" "$here/../build/release/bin"; do
  [[ -x $bin/seqtile ]] && break
done
if [[ ! -x $bin/seqtile ]]; then
  echo "gpu_check: the program seqtile is not beside this script; unpack the whole package" >&2
  exit 2
fi
for model in "$here/../share/seqtile/models/llama-3-8b.json" "$here/../examples/models/llama-3-8b.json"; do
  [[ -f $model ]] && break
done

if ! devices=$("$bin/seqtile" devices --json); then
  echo "gpu_check: seqtile devices failed" >&2
  exit 2
fi
if ! grep --quiet '"kind":"cuda"' <<<"$devices"; then
  echo "gpu_check: no GPU $checked here: $(grep '^cuda: ' <<<"$devices" | sed 's/^cuda: //; s/; use --device cpu$//')"
  exit 3
fi

if ! mkdir -p -- "$out" || ! out=$(cd -- "$out" && pwd); then
  echo "gpu_check: the folder $out cannot be made; give another one" >&2
  exit 2
fi
export SEQTILE_CACHE_DIR=$out/cache SEQTILE_CONFIG_DIR=$out/config
status=0
sections=()

# section NAME SECONDS COMMAND...: runs the command with a limit; its output goes to NAME.log, its result to the table
# and the JSON.
section() {
  local name=$1 limit=$2 start=$SECONDS code
  shift 2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  local result=passed
  ((code == 124 || code == 137)) && result="not done within $limit s"
  ((code != 0)) && [[ $result == passed ]] && result="failed (exit $code)"
  # A test that cannot open the GPU says so and passes.
  if ((code == 0)) && grep --quiet 'not run: ' "$out/$name.log"; then
    code=1 result="not run: $(grep --max-count=1 'not run: ' "$out/$name.log" | sed 's/.*not run: //')"
  fi
  ((code != 0)) && status=1
  printf '%-10s %4d s  %s\n' "$name" $((SECONDS - start)) "$result"
  sections+=("\"$name\": {\"seconds\": $((SECONDS - start)), \"exit\": $code}")
}

# file_or_null PATH: prints a JSON file, or null if the file is empty or absent.
file_or_null() { if [[ -s $1 ]]; then cat "$1"; else echo null; fi; }

clocks() {
  local what=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw
  nvidia-smi --query-gpu=$what,clocks_throttle_reasons.active --format=csv,noheader 2>/dev/null | head -n 1
}

tail -n 1 <<<"$devices" >"$out/devices.json"
before=$(clocks)
echo "gpu_check on $checked: ${before:-no nvidia-smi}"

# The kernels' tests: all kernels against their references, streams and graphs, and the same PTX on the GPU and
# simulated. Each test is a process, because most of its time goes into compiling.
test_one() {
  local result
  result=$("$bin/kernels_tests" "$1" 2>&1) && [[ $result != *"No test cases matched"* ]] && { echo "$result"; return; }
  echo "FAILED: ${1//\\/}"$'\n'"$result"
  return 1
}
# At most 16 tests run at once, because each holds a context of the GPU.
tests() {
  local names jobs
  jobs=$(nproc)
  names=$("$bin/kernels_tests" --list-test-names-only "[gpu]" | sed 's/[][,*\\]/\\&/g')
  [[ -n $names ]] || { echo "kernels_tests lists no test of a GPU"; return 1; }
  xargs --max-procs $((jobs < 16 ? jobs : 16)) --delimiter '\n' -I{} bash -c 'test_one "$1"' test_one {} <<<"$names"
}
export -f test_one tests
export bin
if [[ -x $bin/kernels_tests ]]; then
  section tests 150 bash -c tests
else
  echo "tests      not in this package"
fi
# Exit code 1 means that the budget ended before the last bucket, which is no failure.
tune() {
  "$bin/seqtile" prewarm --device "$device" --model "$model" --lengths 1..8192 --budget 60s --json
  local code=$?
  return $((code == 1 ? 0 : code))
}
export -f tune
export device model
section tuning 75 bash -c tune
tail -n 1 "$out/tuning.log" | grep '^{' >"$out/tuning.json"
# Tunes the shapes that the benchmark times beside its peers, each at the timed length.
tune_timed() {
  local arguments code workloads
  workloads=$("$bin/seqtile_gpu_bench" --list-workloads) || return
  while read -r -a arguments; do
    "$bin/seqtile" tune "${arguments[@]}" --device "$device" --budget 4s
    code=$?
    ((code > 1)) && return $code
  done <<<"$workloads"
  return 0
}
export -f tune_timed
section shapes 90 bash -c tune_timed
section bench 105 "$bin/seqtile_gpu_bench" --device "$device" --rounds 11 --output "$out/bench.json"
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null && [[ -s $out/bench.json ]]; then
  section torch 60 python3 "$bin/torch_gpu.py" "$out/bench.json"
fi

grep --no-filename 'us .*GB/s\|seqtile is\|us of the host\|^goal: ' "$out"/bench.log "$out"/torch.log 2>/dev/null
passed=true
((status)) && passed=false
{
  echo "{\"device\": \"$checked\", \"passed\": $passed,"
  echo " \"clocks_before\": \"$before\", \"clocks_after\": \"$(clocks)\","
  echo " \"sections\": {$(IFS=, && echo "${sections[*]}")},"
  echo " \"devices\": $(file_or_null "$out/devices.json"),"
  echo " \"tuning\": $(file_or_null "$out/tuning.json"),"
  echo " \"bench\": $(file_or_null "$out/bench.json")}"
} >"$out/gpu_check.json"
echo "all numbers: $out/gpu_check.json"
exit $status
