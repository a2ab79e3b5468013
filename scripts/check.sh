#!/bin/sh
# Everything that must hold: style, types, the direction of imports, the tests.
set -eu
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1
bin=.venv/bin
$bin/ruff check .
$bin/ruff format --check .
$bin/mypy
$bin/lint-imports
$bin/python -m pytest -n 2 --dist worksteal -q "$@"
