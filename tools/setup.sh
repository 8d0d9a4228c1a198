#!/usr/bin/env bash
# tools/setup.sh -- installs missing packages, builds, then tests or demonstrates: setup.sh build|test|test-all|demo
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  echo "usage: tools/setup.sh build|test|test-all|demo
  build     installs missing packages, configures and builds the library and the program into build/release
  test      builds and runs the tests, except the slow ones (about 20 minutes on two cores)
  test-all  builds and runs all tests: every combination of operations, ranks and devices (two hours)
  demo      builds, then prewarms, proves and replays a real request trace (about 3 more minutes)"
}

# Packages for the library and the program; packages for tests and benchmarks.
packages=(build-essential cmake ninja-build pkg-config python3 sqlite3 llvm-19-dev zlib1g-dev libzstd-dev
  libsqlite3-dev libsodium-dev libcsv-dev nlohmann-json3-dev libcli11-dev libfmt-dev)
test_packages=(catch2 python3-venv libopenblas-dev libdnnl-dev ocl-icd-opencl-dev libopenmpi-dev openmpi-bin
  qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross coinor-cbc graphviz)

is_installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

install_packages() {
  local name="unknown" id="" version="" missing=() package root=()
  # shellcheck disable=SC1091
  if [ -r /etc/os-release ]; then . /etc/os-release; name=${PRETTY_NAME:-unknown} id=${ID:-} version=${VERSION_ID:-}; fi
  case "$id $version" in
    "debian 12") ;;
    "ubuntu 24.04") echo "setup: Ubuntu 24.04 is untested" ;;
    *)
      echo "setup: $name is not Debian 12 or Ubuntu 24.04. Install what these packages hold, then build with CMake:"
      echo "  ${packages[*]}"
      echo "  cmake --preset release && cmake --build --preset release"
      exit 3 ;;
  esac
  for package in "${packages[@]}"; do is_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -eq 0 ] && return
  echo "setup: installing ${#missing[@]} packages: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: not root and no sudo; install them as root"; exit 3; }
    root=(sudo)
  fi
  "${root[@]}" apt-get update -q
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}"
}

# build ON|OFF: builds with tests, benchmarks and examples, or only the library and the program.
build() {
  if [ "$1" = ON ]; then packages+=("${test_packages[@]}"); fi
  install_packages
  cmake --preset release "-DSEQTILE_TESTS=$1"
  cmake --build --preset release --parallel "$(nproc)"
}

# run_tests CTEST_ARGUMENT...: builds all and runs ctest with the arguments.
run_tests() {
  build ON
  ctest --test-dir build/release --parallel 2 --output-on-failure "$@"
}

# step FILE COMMAND...: prints and runs the command, keeps its last line (JSON) in FILE, and prints its other lines.
step() {
  local json=$1
  shift
  echo
  echo "\$ $*"
  if ! "$@" --json >"$json.out"; then
    cat "$json.out"
    echo "setup: this step of the demonstration failed"
    exit 1
  fi
  sed '$d' "$json.out"
  tail -n 1 "$json.out" >"$json"
}

demo() {
  build OFF
  local top=$PWD
  local model=$top/examples/models/smollm2-135m.json trace=$top/examples/data/azure_llm_2023_conv.csv
  mkdir -p build/demo && cd build/demo
  rm -f tuning.db* artifacts.db*
  export PATH="$top/build/release/bin:$PATH"
  local stores=(--cache tuning.db --artifacts artifacts.db)
  step prewarm.json seqtile prewarm --model "$model" --lengths 1..4096 "${stores[@]}" --budget 120s
  step prove.json seqtile prove --model "$model" --lengths 1..4096 "${stores[@]}"
  step replay.json seqtile replay --model "$model" --requests "$trace" "${stores[@]}" --policy strict --execute 20s
  local query="SELECT operation, origin, median_us, speedup, config FROM v_best WHERE lo <= 300 AND hi >= 300"
  echo
  echo "\$ sqlite3 -readonly -box tuning.db \"$query ORDER BY median_us DESC\"   # the records that answer length 300"
  sqlite3 -readonly -box tuning.db "$query ORDER BY median_us DESC"
  local torch=()
  if python3 -c 'import torch' 2>/dev/null && python3 "$top/tools/torch_new_length.py" >torch.json 2>torch.log; then
    torch=(--torch torch.json)
  fi
  echo
  seqtile report --prewarm prewarm.json --replay replay.json "${torch[@]}"
}

case "${1:-}" in
  build) build OFF ;;
  test) run_tests --label-exclude slow ;;
  test-all) run_tests ;;
  demo) demo ;;
  -h | --help | help) usage ;;
  *) usage >&2; exit 2 ;;
esac
