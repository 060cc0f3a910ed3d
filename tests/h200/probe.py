#!/usr/bin/env python3
"""The probe on a real card: every scenario, the driver's and NVML's counts, and replays held against PyTorch's own figures.

usage: probe.py VRAMSCOPE [--corpus DIR] [--out DIR] [--only SCENARIO,...] [--skip-replays]

  VRAMSCOPE   the built program (any profile; it loads the driver at run time)
  --corpus    a folder with whatif_truth.json and whatif/gpt_varlen.default.pickle, whatif/kv_decode.default.pickle
              (4.8 MB and 6.1 MB; default: the folder in VRAMSCOPE_CORPUS). Without it the replays are skipped.
  --out       where recordings and table.json go (default: the current folder)

Needs a card with 8 GiB free or more, no network. PyTorch is only used to open the written snapshots with memory_viz, nvidia-smi to
read the card between runs; both are left out where they are missing, which the table says.

Prints one JSON table: {"card", "driver", "scenarios": [...], "replays": [...], "replays_exact", "safety": [...], "failed": [...]}.
A replay is exact when peaks, failures and the failed request are PyTorch's to the byte. One that is not, though the allocator had
to choose between equal blocks by the driver's addresses, is told in "differs_by_placement" and is no failure.
Exit code 1 when anything failed. The whole takes about two minutes, of which filling the card is most.
"""
import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

CONFS = {
    "default": "",
    "exp": "expandable_segments:True",
    "split128": "max_split_size_mb:128",
    "gc60": "garbage_collection_threshold:0.6",
}


def smi(fields="memory.used"):
    """A figure of nvidia-smi for card 0 in bytes, which it rounds to MiB; None without nvidia-smi."""
    try:
        out = subprocess.run(["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
                             capture_output=True, text=True, timeout=20)
        return out.stdout.strip().splitlines()[0] if out.returncode == 0 else None
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def used():
    text = smi()
    return int(text) << 20 if text and text.isdigit() else None


class Watch(threading.Thread):
    """The highest used memory that nvidia-smi reported during a run."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.over = None, threading.Event()

    def run(self):
        while not self.over.is_set():
            now = used()
            if now is None:
                return
            self.most = max(self.most or 0, now)
            time.sleep(0.02)


def run(args, timeout=300):
    before = used()
    watch = Watch()
    watch.start()
    start = time.time()
    done = subprocess.run([PROGRAM, "probe", *args, "--json"], capture_output=True, text=True, timeout=timeout)
    watch.over.set()
    watch.join()
    row = {"command": " ".join(args), "wall_seconds": round(time.time() - start, 3)}
    if done.returncode != 0:
        row["error"] = done.stderr.strip()
        return row, None
    report = json.loads(done.stdout)
    row["nvml_before_bytes"], row["nvml_most_bytes"], row["nvml_after_bytes"] = before, watch.most, used()
    return row, report


def opened(path):
    """Opens a snapshot with CPython and memory_viz, and reports what they found."""
    with open(path, "rb") as f:
        snapshot = pickle.load(f)
    out = {"events": sum(len(t) for t in snapshot["device_traces"]), "segments": len(snapshot["segments"])}
    live = {}
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    blocks = {b["address"]: b["requested_size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"}
    out["trace_leads_to_the_state"] = live == blocks
    try:
        from torch.cuda import _memory_viz as viz
    except Exception as e:  # noqa: BLE001, any failure to import means that it is not installed
        out["memory_viz"] = f"not tried: {type(e).__name__}"
        return out
    try:
        page = viz.trace_plot(snapshot)
        text = viz.segsum(snapshot)
        out["memory_viz"] = f"opened: page of {len(page)} characters, summary of {len(text)}"
    except Exception as e:  # noqa: BLE001
        out["memory_viz"] = f"failed: {type(e).__name__}: {e}"
    return out


def scenario(name, out_dir):
    path = os.path.join(out_dir, f"probe_{name}.pickle")
    row, report = run([name, path])
    row["scenario"] = name
    if report is None:
        return row, [f"{name}: {row['error']}"]
    wrong = []
    keep = ["card", "simulated", "conf", "limit_bytes", "diagnosis", "events", "peak_reserved_bytes", "peak_active_bytes",
            "peak_requested_bytes", "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free", "oom_request",
            "driver_difference_bytes", "nvml_difference_bytes", "driver_samples", "duration_us", "ending"]
    row.update({k: report.get(k) for k in keep})
    if report["simulated"]:
        wrong.append(f"{name}: it ran on simulated memory")
    if report["diagnosis"] != name:
        wrong.append(f"{name}: Findings calls it {report['diagnosis']}")
    # Pinned host memory is also mapped on the card, which takes a page of 2 MiB on an H200.
    allowed = {"pinned_host": 2 << 20}.get(name, 0)
    if name != "contention" and report["driver_difference_bytes"] > allowed:
        wrong.append(f"{name}: reserved memory and cuMemGetInfo differ by {report['driver_difference_bytes']} bytes")
    if name != "contention" and report["nvml_difference_bytes"]:
        wrong.append(f"{name}: NVML and cuMemGetInfo differ by {report['nvml_difference_bytes']} bytes")
    before, after = row["nvml_before_bytes"], row["nvml_after_bytes"]
    if before is not None and after is not None and abs(after - before) > 64 << 20:
        wrong.append(f"{name}: {after - before} bytes are still used behind it")
    row["opened"] = opened(path)
    if not row["opened"]["trace_leads_to_the_state"]:
        wrong.append(f"{name}: the trace of the snapshot does not lead to its segments")
    if row["opened"]["memory_viz"].startswith("failed"):
        wrong.append(f"{name}: memory_viz {row['opened']['memory_viz']}")
    return row, wrong


def replay(corpus, truth):
    """Replays a run that PyTorch counted, on the card."""
    workload, label, limit = truth["workload"], truth["conf_label"], truth["allowed_bytes"]
    args = ["replay", os.path.join(corpus, "whatif", f"{workload}.default.pickle"), "--conf", CONFS[label]]
    if limit is not None:
        args += ["--limit", str(limit)]
    row, report = run(args)
    row.update(workload=workload, conf=label, limit=truth["limit_label"])
    name = f"{workload} {label} {truth['limit_label']}"
    if report is None:
        return row, [f"replay {name}: {row['error']}"]
    wrong = []
    figures = {
        "peak_reserved": "peak_reserved_bytes", "peak_allocated": "peak_allocated_bytes", "peak_active": "peak_active_bytes",
        "num_alloc_retries": "num_alloc_retries", "num_ooms": "num_ooms", "num_device_alloc": "num_device_alloc",
        "num_device_free": "num_device_free",
    }
    # After PyTorch ran out of memory, its program still cleaned up. Only the run up to the failure is compared.
    asked = ["peak_reserved", "peak_allocated", "peak_active", "num_ooms"] if truth["oom"] else list(figures)
    row["figures"] = {k: {"torch": truth[k], "card": report[figures[k]]} for k in figures}
    for key in asked:
        if truth[key] != report[figures[key]]:
            wrong.append(f"replay {name}: {key} is {report[figures[key]]}, PyTorch's was {truth[key]}")
    expected = truth["oom_request"]
    row["oom"] = {"torch": truth["oom"], "card": report["num_ooms"] > 0, "request": report["oom_request"],
                  "torch_request": expected, "torch_allocations": truth["allocations"]}
    # PyTorch does not count the failed request, so its index is the number of allocations.
    if truth["oom"] and report["oom_request"] != truth["allocations"]:
        wrong.append(f"replay {name}: request {report['oom_request']} failed, PyTorch had served {truth['allocations']}")
    if truth["oom"] != (report["num_ooms"] > 0):
        wrong.append(f"replay {name}: out of memory {report['num_ooms'] > 0}, PyTorch {truth['oom']}")
    row["agrees_with_model"] = report["agrees_with_model"]
    if not report["agrees_with_model"]:
        wrong.append(f"replay {name}: the card and the model differ: {report['comparison']}")
    row["depends_on_placement"], row["exact"] = report["depends_on_placement"], not wrong
    if report["depends_on_placement"]:
        # The allocator chose between equal free blocks by address. This driver may have put segments at other addresses than in
        # PyTorch's run, and then figures may differ. That is reported, but is no failure.
        row["differs_by_placement"], wrong = wrong, []
    row["driver_difference_bytes"] = report["driver_difference_bytes"]
    if report["driver_difference_bytes"]:
        wrong.append(f"replay {name}: reserved memory and cuMemGetInfo differ by {report['driver_difference_bytes']} bytes")
    return row, wrong


def killed():
    """Kills a run in the middle: its process on the card must go, and its memory with it."""
    before = used()
    parent = subprocess.Popen([PROGRAM, "probe", "capacity", "--pace", "200"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(4)
    during = used()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    time.sleep(3)
    after = used()
    row = {"what": "a run that is killed", "nvml_before_bytes": before, "nvml_during_bytes": during, "nvml_after_bytes": after}
    wrong = []
    if None not in (before, during, after):
        if during - before < 1 << 30:
            wrong.append("killed: nothing was taken in four seconds")
        if after - before > 64 << 20:
            wrong.append(f"killed: {after - before} bytes are still used")
    return row, wrong


def main():
    global PROGRAM
    parser = argparse.ArgumentParser(usage=__doc__, add_help=True)
    parser.add_argument("program")
    parser.add_argument("--corpus", default=os.environ.get("VRAMSCOPE_CORPUS"))
    parser.add_argument("--out", default=".")
    parser.add_argument("--only")
    parser.add_argument("--skip-replays", action="store_true")
    args = parser.parse_args()
    PROGRAM = os.path.abspath(args.program)
    os.makedirs(args.out, exist_ok=True)
    listed = subprocess.run([PROGRAM, "probe", "--json"], capture_output=True, text=True, check=True)
    names = [s["name"] for s in json.loads(listed.stdout)]
    if args.only:
        names = [n for n in names if n in args.only.split(",")]
    table = {"card": smi("name"), "driver": smi("driver_version"), "scenarios": [], "replays": [], "safety": [], "failed": []}

    def note(where, result):
        row, wrong = result
        table[where].append(row)
        table["failed"] += wrong
        state = "FAILED" if wrong else "differs" if row.get("differs_by_placement") else "ok"
        print(f"{state:7} {row.get('command', row.get('what'))} {wrong or ''}", file=sys.stderr, flush=True)

    for name in names:
        note("scenarios", scenario(name, args.out))
    truth_file = os.path.join(args.corpus or "", "whatif_truth.json")
    if args.skip_replays or not args.corpus or not os.path.exists(truth_file):
        table["replays_skipped"] = "no corpus was given"
    else:
        with open(truth_file) as f:
            truths = json.load(f)
        for truth in truths:
            if truth["workload"] in ("gpt_varlen", "kv_decode") and truth["conf_label"] in CONFS:
                note("replays", replay(args.corpus, truth))
    exact = [r for r in table["replays"] if r.get("exact")]
    table["replays_exact"] = f"{len(exact)} of {len(table['replays'])}"
    if not args.only:
        note("safety", killed())
    with open(os.path.join(args.out, "table.json"), "w") as f:
        json.dump(table, f, indent=1)
    print(json.dumps(table))
    return 1 if table["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
