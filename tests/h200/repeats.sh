#!/usr/bin/env bash
# Does the gate cry wolf? Two real programs, ten runs each that differ as real ones do, held against their first run; and runs that keep
# 1 MiB more, which must all be found.
#
#   VRAMSCOPE=target/release/vramscope OUT=/tmp/out bash tests/h200/repeats.sh
#
# In the repository's root, on a machine with a GPU, PyTorch and transformers; no network. Each check prints PASS or FAIL with its
# figures; everything goes to $OUT/repeats.txt and $OUT/repeats.json. At most 4 minutes.
set -u
export VRAMSCOPE="${VRAMSCOPE:-target/release/vramscope}" OUT="${OUT:-/tmp/repeats}" ROOT="$PWD"
VRAMSCOPE="$(realpath "$VRAMSCOPE")"; mkdir -p "$OUT"
chmod +x "$VRAMSCOPE" 2>/dev/null
PYTHON="$(command -v python3 || command -v python)"
cat > "$OUT/driver.py" <<'EOF'
import json, os, shutil, subprocess, sys, tempfile, time
VS, OUT, ROOT = os.environ["VRAMSCOPE"], os.environ["OUT"], os.environ["ROOT"]
WORK = tempfile.mkdtemp(prefix="repeats")
os.environ.update(VRAMSCOPE_DIR=os.path.join(WORK, "private"), HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", WANDB_DISABLED="true",
                  TOKENIZERS_PARALLELISM="false", PYTHONPATH=os.path.join(ROOT, "crates/vramscope-live/assets/python"))
BEGUN, LIMIT, AT_ONCE = time.time(), 190, 5
log = open(os.path.join(OUT, "repeats.txt"), "w")
facts = {"runs": [], "checks": []}

def say(text):
    print(text, flush=True); log.write(text + "\n"); log.flush()

def keep():
    json.dump(facts, open(os.path.join(OUT, "repeats.json"), "w"), indent=1)

def check(name, ok, text=""):
    facts["checks"].append({"name": name, "ok": bool(ok), "text": str(text)[:2000]}); keep()
    say("%-34s %s  %s" % (name, "PASS" if ok else "FAIL", str(text)[:1500]))

# Hugging Face's Trainer: workers, pinned batches, a shuffle and a start of the weights that differ in each run, kernels chosen by trial.
TRAINER = """
import os, sys, random, torch, vramscope
with vramscope.record(sys.argv[1]):
    import transformers
    torch.backends.cudnn.benchmark = True
    seed = int.from_bytes(os.urandom(3), "big")
    config = transformers.GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=8192, n_positions=256)
    model = transformers.GPT2LMHeadModel(config).cuda()
    if os.environ.get("PLANT"):
        planted = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    class Words(torch.utils.data.Dataset):
        def __len__(self): return 256
        def __getitem__(self, i):
            words = torch.randint(0, 8192, (256,))
            return {"input_ids": words, "labels": words}
    options = dict(output_dir=sys.argv[1] + ".out", per_device_train_batch_size=8, max_steps=12, bf16=True, report_to=[], save_strategy="no",
                   logging_steps=5, dataloader_num_workers=2, seed=seed, data_seed=seed, disable_tqdm=True)
    transformers.Trainer(model=model, args=transformers.TrainingArguments(**options), train_dataset=Words()).train()
"""
# Plain PyTorch: batches of many lengths in an order that differs in each run, copied on a second stream.
LENGTHS = """
import os, sys, random, torch, vramscope
from torch import nn
with vramscope.record(sys.argv[1]):
    torch.backends.cudnn.benchmark = True
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.1)
    model = nn.Sequential(nn.Embedding(8192, 512), nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(512, 8192)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    if os.environ.get("PLANT"):
        planted = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    lengths = [64 + 24 * i for i in range(16)]
    random.seed(int.from_bytes(os.urandom(4), "big"))
    random.shuffle(lengths)
    side = torch.cuda.Stream()
    for length in lengths * 2:
        with torch.cuda.stream(side):
            words = torch.randint(0, 8192, (8, length)).pin_memory().cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        words.record_stream(torch.cuda.current_stream())
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(); optimizer.zero_grad(set_to_none=True)
"""
jobs = []
for name, text in (("trainer", TRAINER), ("lengths", LENGTHS)):
    open(os.path.join(WORK, name + ".py"), "w").write(text)
for n in range(10):
    jobs += [("trainer", n, False), ("lengths", n, False)]
    if n < 5: jobs += [("trainer", n, True), ("lengths", n, True)]
jobs.sort(key=lambda j: j[1])

def path(job): return os.path.join(WORK, "%s_%s%d.pickle" % (job[0], "plus" if job[2] else "", job[1]))

running, waiting, failed = [], list(jobs), []
while running or waiting:
    while waiting and len(running) < AT_ONCE and time.time() - BEGUN < LIMIT - 40:
        job = waiting.pop(0)
        env = dict(os.environ, **({"PLANT": "1"} if job[2] else {}))
        err = open(path(job) + ".err", "wb")
        running.append((job, subprocess.Popen([sys.executable, job[0] + ".py", path(job)], cwd=WORK, env=env, stdout=err, stderr=err)))
    for job, p in list(running):
        if p.poll() is None and time.time() - BEGUN > LIMIT: p.kill(); p.wait()
        if p.poll() is not None:
            running.remove((job, p))
            if p.returncode: failed.append(job); say("%s: exit %s: %s" % (job, p.returncode, open(path(job) + ".err", errors="replace").read()[-800:]))
    if waiting and not running and time.time() - BEGUN >= LIMIT - 40:
        say("not run, for want of time: %s" % waiting); break
    time.sleep(0.1)
say("%d runs, %d failed, %.0f s" % (len(jobs) - len(waiting), len(failed), time.time() - BEGUN))

def against(job, tolerance):
    r = subprocess.run([VS, "check", path(job), "--baseline", path((job[0], 0, False)), "--tolerance", tolerance, "--json"], capture_output=True, text=True)
    return r.returncode, (json.loads(r.stdout) if r.stdout else {"error": r.stderr})

for name in ("trainer", "lengths"):
    growth = {False: [], True: []}
    alarms, exact, found, named = 0, 0, 0, 0
    for job in [j for j in jobs if j[0] == name and os.path.exists(path(j)) and j[1:] != (0, False)]:
        rc, answer = against(job, "0")
        it = (answer.get("checks") or [{}])[0]
        growth[job[2]].append(it.get("growth_bytes"))
        facts["runs"].append({"job": job, "rc": rc, "value": it.get("value"), "baseline": it.get("baseline"), "growth": it.get("growth_bytes"),
                              "by_line": it.get("by_line"), "reason": it.get("reason"), "error": answer.get("error")})
        if job[2]:
            found += rc == 1
            # The line of the planted tensor, among those that grew.
            named += any(l["place"].startswith(name + ".py:") and l["growth_bytes"] == 1 << 20 for l in it.get("by_line") or [])
        else:
            exact += rc == 0
            alarms += against(job, "1%+16MiB")[0] != 0
    check(name + ": no false alarm", len(growth[False]) == 9 and alarms == 0, "%d of %d with the default tolerance; with none %d passed; growth in bytes %s" % (alarms, len(growth[False]), exact, growth[False]))
    check(name + ": 1 MiB is found", len(growth[True]) == 5 and found == 5 and named == 5, "%d of %d found, %d with their line; growth in bytes %s" % (found, len(growth[True]), named, growth[True]))
    for n in (0, 1, 9):
        if os.path.exists(path((name, n, False))): shutil.copy(path((name, n, False)), OUT)
    if os.path.exists(path((name, 0, True))): shutil.copy(path((name, 0, True)), OUT)
keep()
say("%.0f s" % (time.time() - BEGUN))
sys.exit(any(not c["ok"] for c in facts["checks"]))
EOF
exec "$PYTHON" "$OUT/driver.py"
