#!/bin/sh
# Everything that must hold: style, types, the direction of imports, and the first tier of tests;
# with "full" as the first argument every test, and if all pass the code that they ran is recorded.
set -eu
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1
bin=.venv/bin
tier="--tier first"
if [ "${1:-}" = full ]; then
  shift
  tier="--tier full --record"
fi
$bin/ruff check .
$bin/ruff format --check .
$bin/mypy
$bin/lint-imports
# shellcheck disable=SC2086
$bin/python -m pytest -n 2 --dist worksteal -q $tier "$@"
