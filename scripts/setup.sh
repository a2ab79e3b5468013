#!/bin/sh
# Make .venv in this checkout and install mnemic into it, with the extras that are named or with those
# of every command but for models of language; "test" adds what the tests need, the oldest Triton that
# mnemic allows among it, in a folder of its own.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
extras=${1:-search,kernels}
oldest=
if [ "$extras" = test ] && [ ! -d .venv/oldest/triton ]; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
    --target .venv/oldest triton==3.6.0 &
  oldest=$!
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extras]"
[ -z "$oldest" ] || wait "$oldest"
