#!/usr/bin/env python3
"""Write random snapshots in every pickle dialect that CPython can write, for tests/formats/snapshots.rs.

usage: make_snapshots.py OUT_DIR SEED PROTOCOL EVENTS SHARING      writes OUT_DIR/snapshot.pickle
"""
import pickle, random, sys

ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot"]


def main(out, seed, protocol, events, sharing):
    rng = random.Random(seed)
    number = lambda: rng.choice([0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**40 + 3, 2**47 - 512, 2**63 - 1, 2**63, 2**64 - 512])
    frame = lambda: {"name": rng.choice(["f", "g", "<module>", "é", ""]), "filename": rng.choice(["a.py", "/b/c.py", "文.py"]), "line": rng.choice([0, 1, 300, 70000])}
    frames = [frame() for _ in range(12)]
    stack = lambda: [rng.choice(frames) if sharing else frame() for _ in range(rng.choice([0, 1, 2, 5, 30, 1001 if rng.random() < 0.02 else 3]))]
    stacks = [stack() for _ in range(9)]

    def entry(i):
        e = {"action": rng.choice(ACTIONS), "addr": number(), "size": number() % 2**40, "stream": rng.choice([0, 0, 0, 7, 2**63 + 1]), "time_us": 10**15 + i // 3}
        # A block at the very top of the address space would overflow, and readers reject that as damaged.
        e["addr"] = min(e["addr"], 2**64 - 2**42)
        if rng.random() < 0.05:
            e["device_free"] = e.pop("addr")
            e["action"] = "oom"
        if rng.random() < 0.9:
            e["frames"] = rng.choice(stacks) if sharing and rng.random() < 0.7 else stack()
        if seed % 2:
            e["compile_context"] = "".join(["N", "/A"])
            e["user_metadata"] = rng.choice(["", "", "", "note %d" % i])
            e["pool_id"] = (0, rng.choice([0, 0, 3]))
        keys = list(e)
        if seed % 3 == 0:
            rng.shuffle(keys)
        return {k: e[k] for k in keys}

    def segment(i):
        base, blocks, at = (i + 1) << 24, [], 0
        for _ in range(rng.randrange(1, 6)):
            size = 512 * rng.randrange(1, 9)
            state = rng.choice(["active_allocated", "inactive", "active_pending_free"])
            blocks.append({"address": base + at, "size": size, "requested_size": rng.randrange(size), "state": state, "frames": rng.choice(stacks)})
            at += size
        return {"device": i % 2, "address": base, "total_size": at, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}

    snap = {"segments": [segment(i) for i in range(rng.randrange(4))], "device_traces": [[entry(i) for i in range(n)] for n in rng.choice([[events], [events, 0], [0, events], [events, 3, events]])]}
    if rng.random() < 0.5:
        snap = dict(reversed(list(snap.items())))
    with open(out + "/snapshot.pickle", "wb") as f:
        pickle.dump(snap, f, protocol=protocol)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]))
