#!/bin/sh
# Records what docs/PLAN.md compares: each program with and without a change, runs of 1 to 6 steps, and a run of varying lengths.
# Usage: plan_changes.sh OUT. Takes about two minutes on one H100; four runs share the card, and PyTorch counts each by itself.
out=$1
here=$(dirname "$0")
mkdir -p "$out"
xargs -P 4 -L 1 sh -c 'python3 "$0"/plan_changes.py "$2" "$3" "$4" "$5" "$6" "$1/$2.$3.b$4.l$5.s$6" || echo "failed: $*"' "$here" "$out" <<'LIST'
gpt none 16 256 3
gpt chunks 16 256 3
gpt 8bit 16 256 3
gpt checkpoint+chunks 16 256 3
gpt 8bit+chunks 16 256 3
gpt none 1 64 3
gpt 8bit 1 64 3
gpt_fp32 none 16 256 3
gpt_fp32 chunks 16 256 3
gpt_kept none 16 256 3
gpt_kept del 16 256 3
llama none 8 512 3
llama chunks 8 512 3
llama 8bit 8 512 3
cnn none 64 224 3
cnn del 64 224 3
gpt none 4 256 1
gpt none 8 256 1
gpt none 16 256 1
gpt none 4 256 2
gpt none 8 256 2
gpt none 16 256 2
gpt none 4 256 3
gpt none 8 256 3
gpt none 4 256 6
gpt none 8 256 6
gpt none 16 256 6
gpt_kept none 4 256 1
gpt_kept none 8 256 1
gpt_kept none 4 256 2
gpt_kept none 8 256 2
gpt_kept none 4 256 3
gpt_kept none 8 256 3
gpt_kept none 16 256 6
cnn none 16 224 1
cnn none 32 224 1
cnn none 16 224 2
cnn none 32 224 2
cnn none 16 224 3
cnn none 32 224 3
cnn none 64 224 6
gpt_varying none 4 256 3
gpt_varying none 8 256 3
gpt_varying none 16 256 6
LIST
ls "$out" | wc -l
