#!/usr/bin/env bash
# Installs one built distribution into a fresh environment without torch, and lints with it, away from the checkout.
set -euo pipefail
distribution=$(realpath "$1")
script=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../fixtures/train_fp16_no_scaler.py")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python -m venv env
env/bin/pip install --quiet "$distribution"
cp "$script" train.py
status=0
env/bin/tclint train.py > found.txt || status=$?
cat found.txt
[ "$status" = 1 ] && grep -q AMP001 found.txt || { echo "the mistake in train.py was not found"; exit 1; }
status=0
env/bin/tclint train.py:train > refused.txt 2>&1 || status=$?
cat refused.txt
[ "$status" = 2 ] && grep -q PyTorch refused.txt || { echo "a model without torch was not refused in a sentence"; exit 1; }
