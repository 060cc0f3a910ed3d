#!/usr/bin/env python3
"""Figures of allocator snapshots, read with CPython's pickle. tests/formats/snapshots.rs compares vramscope's reader with them.

usage: snapshot_figures.py FILE...      one JSON object a line
"""
import base64, collections, json, pickle, re, sys


def stack_key(frames):
    return tuple((f.get("name", ""), f.get("filename", ""), f.get("line", 0)) for f in frames or ())


def figures(path):
    with open(path, "rb") as f:
        data = f.read()
    if path.endswith(".html"):
        data = base64.b64decode(re.search(rb'"base64": ?"([^"]+)"', data).group(1))
    snap = pickle.loads(data)
    if isinstance(snap, list):
        snap = {"segments": snap}
    parts = {}

    def device(key):
        return parts.setdefault(key, {"entries": [], "segments": []})

    for i, trace in enumerate(snap.get("device_traces", [])):
        if trace:
            device(i)["entries"] = trace
    for s in snap.get("segments", []):
        device(s["device"])["segments"].append(s)
    if snap.get("host_traces") or snap.get("host_segments"):
        device(-1).update(entries=snap.get("host_traces", []), segments=snap.get("host_segments", []))

    stacks, out = set(), {}
    for key, part in parts.items():
        actions = collections.Counter(e["action"] for e in part["entries"])
        sums = collections.Counter()
        for e in part["entries"]:
            sums[e["action"]] += e["size"]
        blocks = [b for s in part["segments"] for b in s["blocks"]]
        states = collections.Counter()
        for b in blocks:
            states[b["state"]] += b["size"]
        active = [b for b in blocks if b["state"].startswith("active")]

        def requested(b):
            if "requested_size" in b:
                return b["requested_size"]
            return b["history"][0]["real_size"] if b.get("history") else b["size"]

        times = [e["time_us"] for e in part["entries"] if "time_us" in e]
        for e in part["entries"]:
            stacks.add(stack_key(e.get("frames")))
        for b in blocks:
            stacks.add(stack_key(b["frames"] if b.get("frames") else (b.get("history") or [{}])[0].get("frames")))
        for s in part["segments"]:
            stacks.add(stack_key(s.get("frames")))
        out[str(key)] = {
            "actions": actions,
            "sums": sums,
            "address_xor": xor(e.get("addr", e.get("device_free", 0)) for e in part["entries"]),
            "streams": len({e["stream"] for e in part["entries"]} | {s.get("stream", 0) for s in part["segments"]}),
            "frames": sum(len(e.get("frames", ())) for e in part["entries"]),
            "segments": len(part["segments"]),
            "reserved": sum(s["total_size"] for s in part["segments"]),
            "blocks": len(blocks),
            "states": states,
            "requested": sum(map(requested, active)),
            "time": [min(times), max(times)] if times else None,
            "metadata": sum(bool(e.get("user_metadata")) for e in part["entries"]),
        }
    stacks.discard(())
    marks = snap.get("external_annotations", [])
    return {"devices": out, "stacks": len(stacks), "starts": sum(m["stage"] == "START" for m in marks)}


def xor(values):
    total = 0
    for v in values:
        total ^= v & (2**64 - 1)
    return str(total)


for path in sys.argv[1:]:
    print(json.dumps(figures(path)))
