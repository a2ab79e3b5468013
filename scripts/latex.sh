#!/bin/sh
# pdflatex for the test that compiles derivations, where it is missing, this is root and there is
# apt-get; that test skips, with its reason, where it cannot be had.
set -u
command -v pdflatex >/dev/null && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null 2>&1 &&
  timeout 600 apt-get install -y -qq --no-install-recommends \
    texlive-latex-base texlive-latex-recommended >/dev/null 2>&1
exit 0
