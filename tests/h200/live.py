#!/usr/bin/env python3
"""Checks the live watch on a real GPU: bands, figures, and the cost of watching.

    python3 tests/h200/live.py PATH/TO/vramscope [--seconds 64] [--out FOLDER]

Needs one NVIDIA GPU, PyTorch with CUDA, and the vramscope program; no network and no display. It starts a real training loop through
`vramscope run`, watches it with `vramscope record`, and prints one line a check, PASS or FAIL with its figures, then the figures for
docs/PERFORMANCE.md. Exit code 0 when every check passed. Run it on a GPU that nobody else uses. Takes about two minutes.

Checks
  bands       used = driver + other processes + unattributed + the process at every sample with a fresh list, within 1 MiB
  driver      the driver's share is live.json's 615 MiB, context after init 518 MiB (NVML's figure), within 16 MiB, on an H200
  steps       at every stage the session's reserved and allocated are torch's own to the byte, and process - reserved moves by 2048 MiB
              for 2 GiB of raw cudaMalloc, within 16 MiB
  helper      steps a second with the helper sampling against without, alternating, within 0.5 %
  sampler     CPU of the sampling thread below 1 % of a core at 10 Hz
  snapshot    "snapshot now" through the helper opens in vramscope
"""
import argparse
import ctypes
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib

MIB = 1 << 20


# ---------------------------------------------------------------- the program that is watched

def program(log_path, seconds):
    """Stages with known bytes, then a training loop whose steps are timed. Runs in the watched process."""
    import torch

    log = open(log_path, "w", buffering=1)

    def say(stage, **more):
        torch.cuda.synchronize()
        # Long enough for several samples of the helper and of NVML at 10 Hz, with nothing changing meanwhile.
        start = time.time()
        time.sleep(1.2)
        log.write(json.dumps({"stage": stage, "from": start, "to": time.time(), "reserved": torch.cuda.memory_reserved(),
                              "allocated": torch.cuda.memory_allocated(), **more}) + "\n")

    # This only creates a context, because an allocation loads no kernel.
    first = torch.empty(1, device="cuda")
    del first
    torch.cuda.empty_cache()
    say("init")
    x = torch.randn(4096, 4096, device="cuda")
    y = x @ x
    say("matmul")
    big = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    say("1 GiB tensor")
    del big
    say("kept in cache")
    torch.cuda.empty_cache()
    say("empty_cache")
    cuda = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.c_uint64()
    error = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(2 << 30))
    say("2 GiB raw", error=error)
    tensors = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(20)]
    say("20 tensors of 100 MiB")
    del tensors
    torch.cuda.empty_cache()
    cuda.cuMemFree_v2(pointer)
    del x, y

    model = torch.nn.Sequential(*[torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(6)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(16, 256, 512, device="cuda")
    end = time.time() + seconds
    for _ in range(20):
        step(torch, model, optimizer, data)
    log.write(json.dumps({"stage": "training"}) + "\n")
    while time.time() < end:
        start = time.perf_counter()
        for _ in range(10):
            step(torch, model, optimizer, data)
        torch.cuda.synchronize()
        log.write(json.dumps({"t": time.time(), "ms": (time.perf_counter() - start) * 100}) + "\n")
    log.write(json.dumps({"stage": "end"}) + "\n")


def step(torch, model, optimizer, data):
    optimizer.zero_grad(set_to_none=True)
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()


# ---------------------------------------------------------------- reading a session

def records(path):
    """Every whole record of a .vramscope file: 8 bytes, then frames of length, checksum, JSON."""
    data = open(path, "rb").read()
    assert data[:7] == b"VRAMSES", "not a session"
    at, out = 8, []
    while at + 8 <= len(data):
        length, crc = struct.unpack_from("<II", data, at)
        payload = data[at + 8: at + 8 + length]
        if len(payload) < length:
            break
        assert zlib.crc32(payload) == crc, "checksum at %d" % at
        out.append(json.loads(payload))
        at += 8 + length
    return out


results = []


def check(name, ok, text):
    results.append(ok)
    print("%-9s %s  %s" % (name, "PASS" if ok else "FAIL", text), flush=True)


def talk(path, request, seconds=20):
    """Sends a request to a process's helper and returns the answer."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(seconds)
    s.connect(path)
    s.sendall((json.dumps(dict(request, id=1)) + "\n").encode())
    lines = s.makefile()
    for line in lines:
        message = json.loads(line)
        if message.get("re") == 1:
            return message


def wait_for(condition, seconds, what):
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return
        time.sleep(0.05)
    sys.exit("waited %d s for %s" % (seconds, what))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("vramscope")
    parser.add_argument("--seconds", type=float, default=64, help="of training, half of it with the helper sampling")
    parser.add_argument("--out", help="keep sessions and logs here")
    parser.add_argument("--device", default="0")
    args = parser.parse_args()
    vramscope = os.path.abspath(args.vramscope)
    folder = args.out or tempfile.mkdtemp(prefix="vramscope-h200-")
    os.makedirs(folder, exist_ok=True)
    os.environ["VRAMSCOPE_DIR"] = os.path.join(folder, "private")
    os.environ["CUDA_VISIBLE_DEVICES"] = args.device
    log_path, session = os.path.join(folder, "program.log"), os.path.join(folder, "stages.vramscope")
    record = lambda *more: subprocess.Popen([vramscope, "record", "--device", args.device, *more], stderr=subprocess.PIPE, text=True)

    watcher = record(session)
    time.sleep(2)
    job = subprocess.Popen([vramscope, "run", "--python", sys.executable, os.path.abspath(__file__), "--program", log_path,
                            str(args.seconds + 60)])

    def stages():
        """What the program wrote so far, without an unfinished last line."""
        if not os.path.exists(log_path):
            return []
        return [json.loads(line) for line in open(log_path) if line.endswith("\n")]

    wait_for(lambda: any(s.get("stage") == "training" for s in stages()) or job.poll() is not None, 240, "the stages")
    time.sleep(1)
    watcher.send_signal(signal.SIGINT)
    watcher.wait()
    if job.poll() is not None:
        sys.exit("the program ended early with code %s; see %s" % (job.returncode, log_path))

    # Training: the helper samples at 10 Hz in every other window.
    windows, n, length = [], 8, args.seconds / 8
    for i in range(n):
        on = i % 2 == 1
        start = time.time()
        w = record("--pid", str(job.pid), "--seconds", "%.2f" % length, os.path.join(folder, "w%d.vramscope" % i)) if on else None
        time.sleep(length)
        if w is not None:
            w.wait()
        # The first seconds of a window are left out: the watch starts, and it looks for the helper only once a second.
        windows.append((on, start + 2.0, start + length - 0.2))
    answer = talk(os.path.join(folder, "private", "%d.sock" % job.pid), {"cmd": "dump"})
    job.terminate()
    job.wait()

    # -------------------------------------------------- the figures
    seen = records(session)
    count = lambda kind: sum(r["k"] == kind for r in seen)
    print("session   %d records: %d memory, %d lists, %d from the helper" % (len(seen), count("memory"), count("processes"), count("torch")))
    worst, fresh, skipped, listed, listed_at, used_then, unattributed = 0, 0, 0, None, 0, None, []
    for r in seen:
        if r["k"] == "processes":
            listed, listed_at, used_then = r, r["t"], None
        elif r["k"] == "memory" and listed is not None:
            used, driver = r["used"], r["driver"] or 0
            processes = sum(p[2] or 0 for p in listed["p"])
            # Fresh: read in the same round as this figure, or unchanged since.
            if abs(r["t"] - listed_at) <= 2000:
                used_then = used
            elif used != used_then:
                skipped += 1
                continue
            fresh += 1
            rest = used - driver - processes
            unattributed.append(rest)
            bands = driver + processes + max(rest, 0) + (r["total"] - used)
            worst = max(worst, abs(bands - r["total"]))
    check("bands", fresh > 20 and worst <= MIB, "worst difference %d bytes in %d samples with a fresh list (%d others); "
          "unattributed %.1f to %.1f MiB" % (worst, fresh, skipped, min(unattributed, default=0) / MIB, max(unattributed, default=0) / MIB))

    name = next(r["name"] for r in seen if r["k"] == "device")
    driver = next(r["driver"] for r in seen if r["k"] == "memory")
    is_h200 = "H200" in name
    check("driver", not is_h200 or abs(driver - 644939776) <= 16 * MIB, "%s: %.1f MiB (live.json 615.1)" % (name, driver / MIB))

    outside = {}
    for s in stages():
        if "reserved" not in s:
            continue
        inside = [r for r in seen if s["from"] * 1e6 + 300000 < r.get("t", 0) < s["to"] * 1e6]
        torch_points = [r["m"] for r in inside if r["k"] == "torch" and r["pid"] == job.pid]
        lists = [p[2] for r in seen if r["k"] == "processes" and r["t"] < s["to"] * 1e6 for p in r["p"] if p[0] == job.pid]
        good = bool(torch_points) and all(m["reserved"] == s["reserved"] and m["allocated"] == s["allocated"] for m in torch_points)
        outside[s["stage"]] = (lists[-1] - s["reserved"]) if lists else 0
        check("steps", good or s["stage"] == "init", "%-22s reserved %7.1f allocated %7.1f outside %7.1f MiB, %d samples of the helper" % (
            s["stage"], s["reserved"] / MIB, s["allocated"] / MIB, outside[s["stage"]] / MIB, len(torch_points)))
    check("driver", not is_h200 or abs(outside.get("init", 0) - 518 * MIB) <= 16 * MIB,
          "context after init %.1f MiB (live.json 518)" % (outside.get("init", 0) / MIB))
    grown = outside.get("2 GiB raw", 0) - outside.get("empty_cache", 0)
    check("steps", abs(grown - 2048 * MIB) <= 16 * MIB, "2 GiB of raw cudaMalloc: outside grew by %.1f MiB" % (grown / MIB))

    times = [(s["t"], s["ms"]) for s in stages() if "ms" in s]
    pick = lambda want: [ms for on, a, b in windows if on == want for t, ms in times if a < t < b]
    off, on = pick(False), pick(True)
    if len(off) < 20 or len(on) < 20:
        check("helper", False, "too few steps: %d and %d" % (len(off), len(on)))
    else:
        cost = statistics.median(on) / statistics.median(off) - 1
        check("helper", cost < 0.005, "median step %.3f ms without, %.3f ms with: %+.2f %% (%d and %d of 10 steps)" % (
            statistics.median(off), statistics.median(on), cost * 100, len(off), len(on)))

    costs = [r for r in seen if r["k"] == "costs"]
    cpu = costs[-1]["cpu"] if costs else None
    check("sampler", cpu is not None and cpu < 0.01, "%.3f %% of a core at 10 Hz" % (100 * (cpu or 0)))
    for c in costs[-1]["calls"] if costs else ():
        print("            %-28s mean %8.1f us  p95 %8.1f us  %5.2f Hz  %d calls" % (c["call"], c["mean_us"], c["p95_us"], c["hz"], c["count"]))

    opened = answer and "path" in answer and subprocess.run([vramscope, "summary", answer["path"]], capture_output=True, text=True)
    check("snapshot", bool(opened) and opened.returncode == 0, "%s %s" % (answer, opened.stdout.splitlines()[:1] if opened else ""))
    summary = subprocess.run([vramscope, "summary", "--json", session], capture_output=True, text=True)
    check("session", summary.returncode == 0, "vramscope opens it: %s samples" % (
        json.loads(summary.stdout)["devices"][0].get("samples") if summary.returncode == 0 else summary.stderr))
    print("kept in   %s" % folder)
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--program":
        program(sys.argv[2], float(sys.argv[3]))
    else:
        main()
