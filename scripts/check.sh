#!/bin/sh
# Everything that must hold: style, types, the direction of imports, and the first tier of tests;
# with "full" as the first argument every test, and the code of each spec that passed is recorded.
# Types and imports are looked at beside the tests, which seldom keep two cores busy to the end.
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
$bin/python -m compileall -q mnemic  # once for all the processes that tests start

told=$(mktemp)
{ $bin/mypy && $bin/lint-imports; } >"$told" 2>&1 &
beside=$!
trap 'kill $beside 2>/dev/null || true; rm -f "$told"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

failed=0
# shellcheck disable=SC2086
$bin/python -m pytest -n 2 --dist worksteal -q $tier "$@" || failed=$?
wait $beside || failed=$?
cat "$told"
exit $failed
