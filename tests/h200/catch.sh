#!/usr/bin/env bash
# Crashes real programs under `vramscope run --at-oom` in every way, checks what was caught, and measures what recording costs.
#
#   VRAMSCOPE=target/release/vramscope OUT=/tmp/out bash tests/h200/catch.sh [quick]
#
# In the repository's root, on a machine with a GPU and PyTorch; no network. Each check prints PASS or FAIL with its figures; everything goes
# to $OUT/catch_real.txt and $OUT/catch_real.json. "quick" leaves the overhead out. At most 8 minutes.
set -u
export VRAMSCOPE="${VRAMSCOPE:-target/release/vramscope}" OUT="${OUT:-/tmp/catch_real}" ROOT="$PWD" QUICK="${1:-}"
VRAMSCOPE="$(realpath "$VRAMSCOPE")"; mkdir -p "$OUT"
chmod +x "$VRAMSCOPE" 2>/dev/null
PYTHON="$(command -v python3 || command -v python)"
cat > "$OUT/driver.py" <<'EOF'
import glob, json, os, shutil, signal, statistics, subprocess, sys, tempfile, time, importlib.util
VS, OUT, ROOT, QUICK = os.environ["VRAMSCOPE"], os.environ["OUT"], os.environ["ROOT"], os.environ["QUICK"]
PACKAGE = os.path.join(ROOT, "crates/vramscope-live/assets/python")
WORK = tempfile.mkdtemp(prefix="catch")
os.environ["VRAMSCOPE_DIR"] = os.path.join(WORK, "private")
os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["WANDB_DISABLED"] = "true"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
    os.environ.pop(name, None)
BEGUN, LIMIT = time.time(), 470
log = open(os.path.join(OUT, "catch_real.txt"), "w")
facts = {"checks": [], "figures": {}}

def say(text):
    print(text, flush=True); log.write(text + "\n"); log.flush()

def check(name, ok, text=""):
    facts["checks"].append({"name": name, "ok": bool(ok), "text": str(text)[:2000]})
    say("%-34s %s  %s" % (name, "PASS" if ok else "FAIL", str(text)[:600].replace("\n", " | ")))
    json.dump(facts, open(os.path.join(OUT, "catch_real.json"), "w"), indent=1)

def has(module):
    try: return importlib.util.find_spec(module) is not None
    except Exception: return False

def left(): return LIMIT - (time.time() - BEGUN)

def write(name, text):
    path = os.path.join(WORK, name); open(path, "w").write(text); return path

def start(name, command, options=(), env=None, wait_for=None):
    folder = os.path.join(WORK, name)
    e = dict(os.environ, **(env or {}))
    err = open(os.path.join(WORK, name + ".err"), "wb")
    out = open(os.path.join(WORK, name + ".out"), "wb")
    p = subprocess.Popen([VS, "run", "--python", sys.executable, "--at-oom", folder, *options, *command], cwd=WORK, env=e, stdout=out, stderr=err)
    if wait_for:
        end = time.time() + 90
        while wait_for not in text_of(name, "out") and p.poll() is None and time.time() < end: time.sleep(0.05)
    return p

def text_of(name, what): return open(os.path.join(WORK, name + "." + what), errors="replace").read()

def pages(name):
    found = []
    for path in sorted(glob.glob(os.path.join(WORK, name, "*.about.json"))):
        page = json.load(open(path)); page["_path"] = path
        page["_bytes"] = os.path.getsize(os.path.join(WORK, name, page["snapshot"])) if page.get("snapshot") else None
        found.append(page)
    return found

def finish(p, seconds=120):
    try: return p.wait(max(5, min(seconds, left())))
    except subprocess.TimeoutExpired:
        p.kill(); p.wait(); return "killed after the time was up"

def run(name, command, options=(), env=None, seconds=120):
    t = time.time(); p = start(name, command, options, env); rc = finish(p, seconds)
    return rc, pages(name), text_of(name, "err"), time.time() - t

def brief(ps):
    return [(p["why"], p.get("rank"), p["_bytes"], p.get("seconds"), p.get("not_kept")) for p in ps]

def last(err): return (err.strip().splitlines() or [""])[-1]

def opens(name, ps):
    for p in ps:
        if not p.get("snapshot"): return False, "no snapshot: %s" % p.get("not_kept")
        r = subprocess.run([VS, "summary", "--json", os.path.join(WORK, name, p["snapshot"])], capture_output=True, text=True)
        if r.returncode: return False, r.stderr
        d = json.loads(r.stdout); d = d[0] if isinstance(d, list) else d
        if not d.get("devices"): return False, r.stdout[:200]
    return True, ""

FILL = """
import torch
torch.cuda.set_per_process_memory_fraction(min(1.0, 6 * 2**30 / torch.cuda.get_device_properties(0).total_memory))
kept = []
def step():
    kept.append(torch.empty(512 << 20, dtype=torch.uint8, device="cuda"))
"""

# ---------------------------------------------------------------- plain programs
s = write("plain.py", FILL + "while True: step()\n")
rc, ps, err, sec = run("plain", [s, "--hub_token", "abc123"])
ok, why = opens("plain", ps)
check("plain OOM", rc == 1 and [p["why"] for p in ps] == ["oom"] and "OutOfMemoryError" in err and ok, (rc, brief(ps), last(err), why))
if ps:
    p = ps[0]
    check("  the page", p.get("oom") and p.get("error", {}).get("traceback") and p.get("nvidia_smi", {}).get("gpus") and p["devices"]["0"].get("memory_stats")
          and "abc123" not in json.dumps(p) and p["output"], {k: p.get(k) for k in ("command", "versions", "environment", "oom", "nvidia_smi", "seconds")})
    check("  the last line", last(err).startswith("vramscope: 1 snapshot: ") and "Out of memory" in last(err), last(err))
    shutil.copy(os.path.join(WORK, "plain", p["snapshot"]), os.path.join(OUT, "plain_oom.pickle"))
    shutil.copy(p["_path"], os.path.join(OUT, "plain_oom.about.json"))

s = write("caught.py", FILL + """
n = 0
for i in range(40):
    try: step()
    except torch.cuda.OutOfMemoryError: n += 1
print("caught", n)
""")
rc, ps, err, sec = run("caught", [s])
check("caught OOM", rc == 0 and [p["why"] for p in ps] == ["oom"] and "caught" in text_of("caught", "out"), (rc, brief(ps), text_of("caught", "out"), last(err)))
s = write("caught2.py", open(s).read() + "kept.clear()\ntorch.cuda.empty_cache()\nwhile True: step()\n")
rc, ps, err, sec = run("caught2", [s])
check("caught, then a fatal one", rc == 1 and [p["why"] for p in ps] == ["oom", "oom"] and sum("error" in p for p in ps) == 1, (rc, brief(ps)))

s = write("exception.py", FILL + "step()\nx = torch.randn(8, 8, device='cuda') @ torch.randn(9, 9, device='cuda')\n")
rc, ps, err, sec = run("exception", [s])
check("uncaught exception", rc == 1 and [p["why"] for p in ps] == ["exception"] and "shapes" in ps[0]["error"]["message"], (rc, brief(ps), last(err)))
s = write("assert.py", FILL + "step()\nx = torch.zeros(4, device='cuda')\nx[torch.tensor([9], device='cuda')]\ntorch.cuda.synchronize()\n")
rc, ps, err, sec = run("assert", [s])
check("device-side assert", rc == 1 and [p["why"] for p in ps] == ["exception"], (rc, brief(ps), last(err)))
s = write("exit7.py", FILL + "step()\nimport sys; sys.exit(7)\n")
rc, ps, err, sec = run("exit7", [s])
check("exit code 7, nothing to catch", rc == 7 and not ps, (rc, brief(ps)))
s = write("late.py", "import sys\nassert 'torch' not in sys.modules\ndef main():\n    import torch\n    assert not torch.cuda.is_initialized()\n" + "".join("    " + l + "\n" for l in FILL.splitlines()) + "    while True: step()\nmain()\n")
rc, ps, err, sec = run("late", [s])
check("torch comes late", rc == 1 and [p["why"] for p in ps] == ["oom"], (rc, brief(ps), last(err)))
os.makedirs(os.path.join(WORK, "pkg"), exist_ok=True); write("pkg/__init__.py", ""); shutil.copy(os.path.join(WORK, "plain.py"), os.path.join(WORK, "pkg/main.py"))
rc, ps, err, sec = run("module", ["-m", "pkg.main"])
check("-m module", rc == 1 and [p["why"] for p in ps] == ["oom"], (rc, brief(ps)))
backward = FILL + """
import torch.nn as nn
class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g):
        while True: step()
x = torch.randn(1024, 1024, device="cuda", requires_grad=True)
Boom.apply(x @ x).sum().backward()
"""
rc, ps, err, sec = run("backward", [write("backward.py", backward)])
check("OOM inside backward", rc == 1 and [p["why"] for p in ps] == ["oom"] and "error" in ps[0], (rc, brief(ps)))

# ---------------------------------------------------------------- signals
WAIT = FILL + "step()\nx = torch.randn(512, 512, device='cuda')\nprint('ready', flush=True)\n"
for name, body in (("sigterm", "while True: x = (x @ x).clamp(-1, 1)\n"), ("sigterm stuck in CUDA", "torch.cuda._sleep(60_000_000_000)\ntorch.cuda.synchronize()\n"),
                   ("sigterm, own handler", "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(9))\nprint('set', flush=True)\nwhile True: time.sleep(0.01)\n")):
    key = name.replace(" ", "_").replace(",", "")
    p = start(key, [write(key + ".py", WAIT + body)], wait_for="set" if "own" in name else "ready"); time.sleep(1.0)
    t = time.time(); p.send_signal(signal.SIGTERM); rc = finish(p, 70); took = time.time() - t
    ps = pages(key); want = 9 if "own" in name else -15
    check(name, rc == want and [q["why"] for q in ps] == ["sigterm"] and opens(key, ps)[0], (rc, "%.1f s" % took, brief(ps), last(text_of(key, "err"))))
p = start("sigint", [write("sigint.py", WAIT + "while True: x = (x @ x).clamp(-1, 1)\n")], wait_for="ready"); time.sleep(1.0)
p.send_signal(signal.SIGINT); rc = finish(p, 60); ps = pages("sigint")
check("sigint", rc == -2 and [q["why"] for q in ps] == ["sigint"] and "KeyboardInterrupt" in text_of("sigint", "err"), (rc, brief(ps)))
p = start("asked", [write("asked.py", WAIT + "import time\nwhile True: x = (x @ x).clamp(-1, 1); time.sleep(0.001)\n")], wait_for="ready"); time.sleep(0.5)
t = time.time(); r = [subprocess.run([VS, "snap", str(p.pid)], capture_output=True, text=True) for _ in range(2)]; took = time.time() - t
ps = pages("asked"); p.kill(); p.wait()
check("vramscope snap, twice", [q["why"] for q in ps] == ["asked"] * 2 and took > 1 and all(x.returncode == 0 for x in r), (took, [x.stdout + x.stderr for x in r], brief(ps)))

# ---------------------------------------------------------------- data loaders
loader = FILL + """
from torch.utils.data import Dataset, DataLoader
class D(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if FAILS and i == 40: raise ValueError("bad sample")
        return torch.ones(1000)
if __name__ == "__main__":
    step()
    for x in DataLoader(D(), batch_size=4, num_workers=3, multiprocessing_context=CONTEXT, pin_memory=True):
        y = x.cuda()
        if not FAILS: step()
"""
for context in ("fork", "spawn"):
    key = "loader_" + context
    rc, ps, err, sec = run(key, [write(key + ".py", "FAILS = False\nCONTEXT = %r\n" % context + loader)])
    check("DataLoader workers (%s), OOM" % context, rc == 1 and [p["why"] for p in ps] == ["oom"], (rc, brief(ps), last(err)))
rc, ps, err, sec = run("loader_bad", [write("loader_bad.py", "FAILS = True\nCONTEXT = 'fork'\n" + loader)])
check("DataLoader worker raises", rc == 1 and [p["why"] for p in ps] == ["exception"] and "bad sample" in json.dumps(ps), (rc, brief(ps)))

# ---------------------------------------------------------------- trainers
HF = """
import torch, os
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
torch.cuda.set_per_process_memory_fraction(min(1.0, 5 * 2**30 / torch.cuda.get_device_properties(0).total_memory))
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=512, n_head=8, vocab_size=8000))
class D(torch.utils.data.Dataset):
    def __len__(self): return 4096
    def __getitem__(self, i):
        n = 64 if i < 96 else 1024
        x = torch.zeros(n, dtype=torch.long); return {"input_ids": x, "labels": x}
class T(Trainer):
    def get_train_dataloader(self): return torch.utils.data.DataLoader(self.train_dataset, batch_size=32)
args = TrainingArguments(output_dir=os.environ["WHERE"], per_device_train_batch_size=32, max_steps=50, report_to=[], save_strategy="no", logging_steps=1)
T(model=model, args=args, train_dataset=D()CALLBACK).train()
"""
if has("transformers") and has("accelerate"):
    rc, ps, err, sec = run("hf", [write("hf.py", HF.replace("CALLBACK", ""))], env={"WHERE": os.path.join(WORK, "hfout"), "CUDA_VISIBLE_DEVICES": "0"})
    check("HF Trainer OOM", rc == 1 and [p["why"] for p in ps] == ["oom"] and opens("hf", ps)[0], (rc, "%.0f s" % sec, brief(ps), last(err)))
    if ps and ps[0].get("snapshot"): shutil.copy(os.path.join(WORK, "hf", ps[0]["snapshot"]), os.path.join(OUT, "hf_oom.pickle"))
    s = write("acc.py", FILL.replace("import torch\n", "import torch\nfrom accelerate import Accelerator\na = Accelerator()\n", 1) + "while True: step()\n")
    rc, ps, err, sec = run("acc", [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "1", "--mixed_precision", "no", "--num_machines", "1", "--dynamo_backend", "no", s])
    check("accelerate launch OOM", rc == 1 and [p["why"] for p in ps] == ["oom"], (rc, "%.0f s" % sec, brief(ps), last(err)))
else:
    say("HF Trainer: transformers or accelerate is not there")
LIGHT = """
import torch
try: import lightning.pytorch as pl
except ImportError: import pytorch_lightning as pl
torch.cuda.set_per_process_memory_fraction(min(1.0, 5 * 2**30 / torch.cuda.get_device_properties(0).total_memory))
class M(pl.LightningModule):
    def __init__(self):
        super().__init__(); self.l = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]); self.kept = []
    def training_step(self, b, i):
        if i > 10: self.kept.append(torch.empty(512 << 20, dtype=torch.uint8, device="cuda"))
        return self.l(b).square().mean()
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
data = torch.utils.data.DataLoader(torch.randn(6400, 2048), batch_size=32, num_workers=2)
pl.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_barFALSECALLBACK).fit(M(), data)
""".replace("enable_progress_barFALSE", "enable_progress_bar=False")
if has("lightning") or has("pytorch_lightning"):
    rc, ps, err, sec = run("light", [write("light.py", LIGHT.replace("CALLBACK", ""))])
    check("Lightning OOM", rc == 1 and [p["why"] for p in ps] == ["oom"] and opens("light", ps)[0], (rc, "%.0f s" % sec, brief(ps), last(err)))
else:
    say("Lightning is not there")

# ---------------------------------------------------------------- ranks
import torch
gpus = torch.cuda.device_count()
ddp = """
import os, torch, torch.distributed as dist, time
rank = int(os.environ["RANK"]); device = rank % torch.cuda.device_count(); torch.cuda.set_device(device)
dist.init_process_group("nccl" if torch.cuda.device_count() > 1 else "gloo")
torch.cuda.set_per_process_memory_fraction(min(1.0, 4 * 2**30 / torch.cuda.get_device_properties(device).total_memory), device)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda(), device_ids=[device])
kept = []
for i in range(200):
    model(torch.randn(64, 1024, device="cuda")).sum().backward()
    if rank == 1 and i > 5: kept.append(torch.empty(512 << 20, dtype=torch.uint8, device="cuda"))
"""
rc, ps, err, sec = run("ranks", [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29555", write("ddp.py", ddp)], seconds=90)
by = sorted((p.get("rank"), p["why"]) for p in ps)
check("torchrun, rank 1 of 2 fails (%d GPUs)" % gpus, rc == 1 and by in ([(0, "sigterm"), (1, "oom")], [(0, "exception"), (1, "oom")]) and opens("ranks", ps)[0], (rc, "%.0f s" % sec, brief(ps), last(err)))
r = subprocess.run([VS, "ranks", os.path.join(WORK, "ranks")], capture_output=True, text=True)
check("  vramscope ranks", r.returncode == 0 and "about.json" not in r.stdout + r.stderr, r.stdout[:800] + r.stderr)
shutil.rmtree(os.path.join(OUT, "ranks"), ignore_errors=True)
PACKAGE_CHECKS = os.path.join(ROOT, "crates/vramscope-live/assets/python/vramscope/pytest_plugin.py")

# ---------------------------------------------------------------- the package
if os.path.exists(PACKAGE_CHECKS):
    env = {"PYTHONPATH": PACKAGE + os.pathsep + os.environ.get("PYTHONPATH", ""), "VRAMSCOPE_PROGRAM": VS}
    def python(name, text, args=(), **more):
        return subprocess.run([sys.executable, write(name, text), *args], cwd=WORK, env=dict(os.environ, **env, **more), capture_output=True, text=True, timeout=max(5, min(120, left())))
    body = """
import torch, vramscope, json
with vramscope.record("rec.pickle") as r:
    m = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda(); o = torch.optim.AdamW(m.parameters())
    for i in range(5):
        with vramscope.step(i):
            m(torch.randn(64, 512, device="cuda")).sum().backward(); o.step(); o.zero_grad()
rec = vramscope.open(r.path)
print(json.dumps({"allocated": rec.summary()["devices"][0]["allocated_bytes"], "steps": rec.command("leaks").get("steps"), "findings": len(rec.findings()),
                  "truth": torch.cuda.max_memory_allocated(), "rows": len(rec.table("lifetimes"))}))
"""
    r = python("rec.py", body)
    try: d = json.loads(r.stdout.strip().splitlines()[-1]); ok = d["allocated"]["peak"] == d["truth"]
    except Exception as e: d, ok = repr(e), False
    check("record, steps, open", r.returncode == 0 and ok, (d, r.stderr[-800:]))
    r2 = subprocess.run([VS, "summary", os.path.join(WORK, "rec.pickle")], capture_output=True, text=True)
    check("  steps are in it", "5 steps" in r2.stdout or "annotation" in r2.stdout, r2.stdout[:900])
    r = python("onoom.py", "import vramscope\nvramscope.on_oom('onoom')\n" + FILL + "while True: step()\n")
    check("on_oom", r.returncode == 1 and [p["why"] for p in pages("onoom")] == ["oom"], (brief(pages("onoom")), r.stderr[-300:]))
    if has("transformers") and has("accelerate"):
        r = python("hfcb.py", HF.replace("CALLBACK", ", callbacks=[vramscope.HuggingFaceCallback('hfcb', steps=(1, 3))]").replace("import torch, os", "import torch, os, vramscope"), WHERE=os.path.join(WORK, "hfcbout"), CUDA_VISIBLE_DEVICES="0")
        ps = pages("hfcb"); check("HuggingFaceCallback", [p["why"] for p in ps] == ["oom", "steps"] or sorted(p["why"] for p in ps) == ["oom", "steps"], (brief(ps), r.stderr[-500:]))
        acc = """
import torch, vramscope
from accelerate import Accelerator
a = Accelerator(log_with=[vramscope.AccelerateTracker("acccb", steps=(1, 3))]); a.init_trackers("x")
m = torch.nn.Linear(512, 512); o = torch.optim.AdamW(m.parameters()); m, o = a.prepare(m, o)
for i in range(6):
    loss = m(torch.randn(64, 512, device="cuda")).sum(); a.backward(loss); o.step(); o.zero_grad(); a.log({"loss": loss.item()}, step=i)
a.end_training()
"""
        r = python("acccb.py", acc); ps = pages("acccb")
        check("AccelerateTracker", r.returncode == 0 and [p["why"] for p in ps] == ["steps"], (brief(ps), r.stderr[-800:]))
    if has("lightning") or has("pytorch_lightning"):
        r = python("lightcb.py", LIGHT.replace("CALLBACK", ", callbacks=[vramscope.LightningCallback('lightcb', steps=(1, 3))]").replace("import torch\n", "import torch, vramscope\n", 1))
        ps = pages("lightcb"); check("LightningCallback", sorted(p["why"] for p in ps) == ["oom", "steps"], (brief(ps), r.stderr[-500:]))
    prof = """
import torch, vramscope
from torch.profiler import profile, ProfilerActivity, schedule
m = torch.nn.Linear(512, 512).cuda()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, with_stack=True, schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=vramscope.profiler_handler("prof")) as p:
    for i in range(6):
        m(torch.randn(64, 512, device="cuda")).sum().backward(); p.step()
"""
    r = python("prof.py", prof); files = sorted(os.listdir(os.path.join(WORK, "prof"))) if os.path.isdir(os.path.join(WORK, "prof")) else []
    r2 = subprocess.run([VS, "summary", *[os.path.join(WORK, "prof", f) for f in files]], capture_output=True, text=True)
    check("profiler_handler", r.returncode == 0 and files and r2.returncode == 0, (files, r2.stdout[:300], r.stderr[-500:]))
    if has("pytest"):
        write("test_limits.py", """
import pytest, torch
KEPT = []
@pytest.mark.limit_vram("64 MiB")
def test_small(): torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
@pytest.mark.limit_vram("64 MiB")
def test_large():
    x = torch.empty(96 << 20, dtype=torch.uint8, device="cuda"); y = torch.empty(8 << 20, dtype=torch.uint8, device="cuda"); del x
@pytest.mark.limit_vram_leaks("1 MiB")
def test_leaks(): KEPT.append(torch.empty(8 << 20, dtype=torch.uint8, device="cuda"))
@pytest.mark.limit_vram_leaks("1 MiB")
def test_clean(): torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
""")
        r = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "vramscope.pytest_plugin", "-p", "no:cacheprovider", "test_limits.py"], cwd=WORK, env=dict(os.environ, **env), capture_output=True, text=True)
        check("pytest markers", "2 failed, 2 passed" in r.stdout and "test_limits.py:8" in r.stdout and "104 MiB" in r.stdout, r.stdout[-1800:])
    else: say("pytest is not there")

# ---------------------------------------------------------------- what it costs
bench = r"""
import json, os, resource, statistics, sys, time
import torch
from vramscope import _agent
kind, seconds = sys.argv[1], float(sys.argv[2])
torch.manual_seed(0)
if kind == "eager":
    x = torch.randn(64, 64, device="cuda")
    def step():
        y = x
        for _ in range(500): y = (y * 0.5 + x).relu()
    events = 500 * 3 * 2
else:
    L = 16
    model = torch.nn.ModuleList([torch.nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True, norm_first=True, dropout=0.0) for _ in range(L)]).cuda()
    opt = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(8, 1024, 2048, device="cuda")
    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            h = x
            for layer in model: h = layer(h)
            loss = h.float().square().mean()
        loss.backward(); opt.step(); opt.zero_grad(set_to_none=True)
def rss(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def rounds(warm, long):
    end = time.perf_counter() + warm
    while time.perf_counter() < end: step()
    torch.cuda.synchronize(); t = time.perf_counter(); n = 0
    while time.perf_counter() - t < long:
        step(); n += 1
        if kind != "eager": torch.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - t) / n * 1000
for _ in range(3): step()
torch.cuda.synchronize()
modes = ["off", "none", "python", "all"]
got = {m: [] for m in modes}; more = {}
import tempfile
deadline = time.perf_counter() + seconds
r = 0
while time.perf_counter() < deadline and r < 12:
    for m in (modes if r % 2 == 0 else modes[::-1]):
        before = rss()
        if m == "off": _agent.stop_history(torch)
        else: _agent.record_history(torch, 100000, m)
        got[m].append(rounds(0.6 if kind == "eager" else 1.0, 1.0 if kind == "eager" else 1.2))
        if m != "off":
            if r == 1 and m in ("none", "python"):
                target = os.path.join(tempfile.gettempdir(), "bench_%s_%s.pickle" % (kind, m)); t = time.perf_counter(); s = torch.cuda.memory._snapshot()
                n = len(s["device_traces"][0]); a = time.perf_counter() - t; t = time.perf_counter()
                _agent.write_snapshot(torch, target, 1 << 40)
                more[m] = {"events": n, "snapshot_s": round(a, 2), "written_s": round(time.perf_counter() - t, 2), "bytes": os.path.getsize(target), "rss_mib": (rss() - before) >> 20}; os.unlink(target); del s
            _agent.stop_history(torch)
    r += 1
med = {m: statistics.median(v) for m, v in got.items()}
pairs = {m: sorted((a / b - 1) * 100 for a, b in zip(got[m], got["off"])) for m in modes if m != "off"}
print(json.dumps({"ms_a_step": med, "rounds": r, "percent": {m: [round(v[0], 2), round(statistics.median(v), 2), round(v[-1], 2)] for m, v in pairs.items()}, "ring": more, "gpu": torch.cuda.get_device_name(0), "torch": torch.__version__}))
"""
if not QUICK:
    b = write("bench.py", bench)
    for kind in ("eager", "large"):
        if left() < 60: say("no time left for " + kind); continue
        r = subprocess.run([sys.executable, b, kind, str(min(55, max(20, (left() - 60) / 2)))], cwd=WORK, env=dict(os.environ, PYTHONPATH=PACKAGE + os.pathsep + os.environ.get("PYTHONPATH", "")), capture_output=True, text=True)
        try: facts["figures"][kind] = json.loads(r.stdout.strip().splitlines()[-1]); say("%s: %s" % (kind, json.dumps(facts["figures"][kind])))
        except Exception: say("%s failed: %s" % (kind, r.stderr[-1500:]))
    # From outside: the whole program with and without, alternating.
    e2e = write("e2e.py", "import time, torch\nx = torch.randn(64, 64, device='cuda')\ndef go(n):\n    y = x\n    for _ in range(n): y = (y * 0.5 + x).relu()\n    torch.cuda.synchronize()\ngo(20000)\nt = time.perf_counter(); go(100000); print(time.perf_counter() - t)\n")
    with_, without = [], []
    for i in range(4):
        if left() < 25: break
        for mode in ("with", "without") if i % 2 else ("without", "with"):
            cmd = [VS, "run", "--python", sys.executable, "--at-oom", os.path.join(WORK, "e2e"), e2e] if mode == "with" else [sys.executable, e2e]
            r = subprocess.run(cmd, cwd=WORK, capture_output=True, text=True)
            (with_ if mode == "with" else without).append(float(r.stdout.split()[-1]))
    if with_:
        facts["figures"]["end to end, eager"] = {"without_s": without, "with_s": with_, "percent": round((statistics.median(with_) / statistics.median(without) - 1) * 100, 2)}
        say("end to end: " + json.dumps(facts["figures"]["end to end, eager"]))
t = time.time(); subprocess.run([VS, "--version"], stdout=subprocess.DEVNULL); facts["figures"]["version_ms"] = round((time.time() - t) * 1000, 1)
bad = [c["name"] for c in facts["checks"] if not c["ok"]]
say("%d checks, %d failed%s, %.0f s" % (len(facts["checks"]), len(bad), ": " + ", ".join(bad) if bad else "", time.time() - BEGUN))
json.dump(facts, open(os.path.join(OUT, "catch_real.json"), "w"), indent=1)
for path in glob.glob(os.path.join(WORK, "*.err")):
    with open(os.path.join(OUT, "errors.txt"), "a") as f: f.write("== %s\n%s\n" % (path, open(path, errors="replace").read()[-3000:]))
sys.exit(bool(bad))
EOF
exec "$PYTHON" "$OUT/driver.py"
