#!/bin/sh
# Records plan_server.py once, and finds the largest KV cache that serves the same load under three caps. Usage: plan_server.sh OUT.
# About two minutes on one H100: the caps are searched side by side.
out=$1
here=$(dirname "$0")
mkdir -p "$out"
python3 "$here/plan_server.py" 1024 0 "$out/server.kv1024"
python3 "$here/plan_server.py" 2048 0 "$out/server.kv2048"
search() {
    low=0
    high=$1
    while [ $((high - low)) -gt 8 ]; do
        middle=$(((low + high) / 2))
        if python3 "$here/plan_server.py" $middle "$1" - >>"$out/tries.$1.txt" 2>&1; then low=$middle; else high=$middle; fi
    done
    echo "cap $1 MiB: a cache of $low MiB serves, $high MiB fails" >>"$out/largest.txt"
}
for cap in 2048 3072 6144; do search $cap & done
wait
cat "$out/largest.txt"
