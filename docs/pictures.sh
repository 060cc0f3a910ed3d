#!/usr/bin/env bash
# Draws the pictures of docs/MANUAL.md from the bundled samples.
#
#   docs/pictures.sh [PROGRAM]     PROGRAM is target/release/vramscope when absent
#
# With pngquant, pictures have 256 colours and a third of the size. Look at each of them before you commit it.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-target/release/vramscope}
out=docs/images

draw() { # NAME SAMPLE VIEW SIZE
  "$program" screenshot "sample_snapshots/$2" "$out/manual-$1.png" --view "$3" --size "$4" --theme light --force
  if command -v pngquant >/dev/null; then
    pngquant --force --strip --skip-if-larger --output "$out/manual-$1.png" 256 "$out/manual-$1.png" || [ $? = 98 ]
  fi
}

draw overview serve_oom.pickle.gz overview 1280x800
draw timeline gpt_train.pickle timeline 1000x440
draw map serve_oom.pickle.gz segment-map 800x480
draw autopsy serve_oom.pickle.gz autopsy 1280x800
draw leaks leak.pickle leaks 1000x440
draw compare gpt_train.pickle flame-graph 1280x800
draw whatif fragment_oom.pickle whatif 1280x800
draw plan gpt_train.pickle plan 1280x800
draw live live.vramscope live 1280x800

total=$(du -cb "$out"/*.png | tail -1 | cut -f1)
echo "$total bytes of pictures in $out"
[ "$total" -lt 1500000 ] || { echo "that is more than 1.5 MB" >&2; exit 1; }
