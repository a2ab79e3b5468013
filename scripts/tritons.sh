#!/bin/sh
# Compile the kernels of one spec of each class with every release of Triton that mnemic allows, or
# with those that are named. Each is installed into a folder of its own below the one in $TRITONS.
set -eu
cd "$(dirname "$0")/.."
versions=${*:-3.6.0 3.7.0 3.7.1 3.8.0 3.9.0}
place=${TRITONS:-.venv/tritons}
for version in $versions; do
  [ -d "$place/$version/triton" ] || .venv/bin/python -m pip install --quiet --no-deps \
    --disable-pip-version-check --target "$place/$version" "triton==$version"
  echo "Triton $version"
  TRITON_FOLDER="$place/$version" TRITON_VERSION="$version" OMP_NUM_THREADS=1 \
    .venv/bin/python -m pytest -q tests/kernels/test_oldest.py
done
