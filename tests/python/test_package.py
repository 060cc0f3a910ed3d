"""Tests the Python package with a fake torch: python3 -m unittest, with PYTHONPATH, VRAMSCOPE_PROGRAM and FAKE_TORCH=late set by
tests/program/package.rs."""
import asyncio
import contextlib
import glob
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

import torch
import vramscope


def module(name, **more):
    made = types.ModuleType(name)
    made.__dict__.update(more)
    sys.modules[name] = made
    return made


class InAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def run_python(self, text, *args, code=0):
        done = subprocess.run([sys.executable, "-c", text, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stdout.decode(), done.stderr.decode()


def train(steps=6):
    for _ in vramscope.steps(range(steps)):
        for _ in range(4):
            a, b = torch.empty(1 << 20), torch.empty(1 << 21)
        del a, b


class Recording(InAFolder):
    def test_a_block_is_recorded_with_its_steps_and_can_be_asked_about(self):
        with vramscope.record("train.pickle") as recording:
            train()
        self.assertEqual(recording.path, os.path.abspath("train.pickle"))
        opened = vramscope.open(recording.path)
        self.assertEqual(opened.summary()["devices"][0]["allocated_bytes"]["peak"], (6 << 20) + 512)
        self.assertIn("6 steps: from the annotation ProfilerStep", opened.text("summary").replace("\u00a0", " "))
        self.assertEqual(opened.state(at="end")["totals"]["allocated_bytes"], 512)
        self.assertEqual(opened.allocations("size>1MiB", limit=3)["matches"], 24)
        self.assertIsInstance(opened.findings(), list)
        # Recording ends with the block.
        self.assertFalse(torch.RECORDED[-1]["enabled"])

    def test_tables_come_without_pandas_and_pyarrow(self):
        with vramscope.record() as recording:
            train(1)
        # As if neither were installed.
        for name in ("pyarrow", "pandas"):
            self.addCleanup(sys.modules.pop, name, None)
            sys.modules[name] = None
        rows = vramscope.open(recording.path).table("lifetimes")
        self.assertEqual(len(rows), 9)
        self.assertEqual({type(rows[-1][c]) for c in ("requested_bytes", "born_event")}, {int})
        self.assertIsNone(rows[0]["born_event"])
        # A text stays a text, whatever it looks like.
        with vramscope.record("names.pickle"):
            exec(compile("kept = [torch.empty(512)]", "=cmd", "exec"), {"torch": torch})
        files = {row["file"] for row in vramscope.open("names.pickle").table("stacks")}
        self.assertIn("=cmd", files)
        for name in ("123", "true", "", "null"):
            with vramscope.record("n.pickle") as recording:
                exec(compile("kept = [torch.empty(512)]", name, "exec"), {"torch": torch})
            self.assertIn(name, {row["file"] for row in vramscope.open(recording.path).table("stacks")})

    def test_a_function_is_recorded_each_time_and_no_file_is_replaced(self):
        @vramscope.record("{rank}-step")
        def step(size):
            torch.empty(size)
            return size
        self.assertEqual((step(512), step(1024)), (512, 1024))
        self.assertEqual(sorted(os.listdir(".")), ["0-step-2.pickle", "0-step.pickle"])

    def test_coroutines_and_generators_are_recorded_until_they_end(self):
        @vramscope.record("later.pickle")
        async def later():
            torch.empty(3 << 20)
            await asyncio.sleep(0)
            return torch.empty(512).size

        @vramscope.record("parts.pickle")
        def parts():
            got = yield torch.empty(1 << 20)
            yield got, torch.empty(5 << 20)
        self.assertEqual(asyncio.run(later()), 512)
        made = parts()
        next(made)
        self.assertEqual(made.send(7)[0], 7)
        self.assertEqual(list(made), [])
        for name, count in (("later.pickle", 2), ("parts.pickle", 2)):
            self.assertEqual(vramscope.open(name).allocations("size>=512")["matches"], count, name)
        with self.assertRaisesRegex(TypeError, "no async generator"):
            @vramscope.record("never.pickle")
            async def never():
                yield 1

    def test_a_folder_that_can_not_be_written_is_refused_before_the_block(self):
        with self.assertRaisesRegex(PermissionError, "no recording can be written: .*/proc.*; give record a folder"):
            with vramscope.record("/proc/train.pickle"):
                self.fail("the block must not run")

    def test_an_answer_that_is_a_failure_is_returned(self):
        with vramscope.record("train.pickle"):
            train(1)
        answer = vramscope.open("train.pickle").command("check", "--max-peak", "1MiB")
        self.assertIs(answer["passed"], False)
        with self.assertRaises(vramscope.VramscopeError):
            vramscope.open("train.pickle").command("check", "--max-peak", "nothing")

    def test_an_error_in_the_block_is_recorded_and_stays_the_error(self):
        recording = vramscope.record("failed.pickle")
        with self.assertRaises(torch.OutOfMemoryError), recording:
            kept = []
            while True:
                kept.append(torch.empty(1 << 30))
        self.assertEqual(len(vramscope.open(recording.path).ooms()), 1)

    def test_what_can_not_be_is_one_sentence(self):
        with self.assertRaisesRegex(vramscope.VramscopeError, "nothing.pickle: there is no such file"):
            vramscope.open("nothing.pickle")
        with self.assertRaisesRegex(ValueError, '"python", "all" and "none"'):
            vramscope.record(stacks="some")
        with self.assertRaisesRegex(ValueError, "max_entries is 0; it is at least 1"):
            vramscope.on_oom("snapshots", max_entries=0)
        with self.assertRaises(AttributeError):
            vramscope.nothing
        with self.assertRaisesRegex(FileNotFoundError, "there is no folder .*/gone/runs, so no recording can be written there: make it first"):
            with vramscope.record("gone/runs/train.pickle"):
                self.fail("the block must not run")
        self.assertFalse(os.path.exists("gone"))
        with vramscope.record("{rank}/train.pickle") as recording:
            torch.empty(512)
        self.assertEqual(recording.path, os.path.abspath("0/train.pickle"))

    def test_a_name_that_begins_with_a_dash_is_no_option(self):
        with vramscope.record("-train.pickle") as recording:
            train(1)
        self.assertEqual(os.listdir("."), ["-train.pickle"])
        opened = vramscope.open("-train.pickle")
        self.assertEqual(opened.summary()["devices"], vramscope.open(recording.path).summary()["devices"])
        self.assertIn("live", opened.state(at="end"))
        with self.assertRaisesRegex(ValueError, 'at is \'noon\'; it is one of "peak", "oom" and "end"'):
            opened.state(at="noon")
        with self.assertRaisesRegex(vramscope.VramscopeError, "-gone.pickle: there is no such file"):
            vramscope.open("-gone.pickle")
        self.assertEqual(opened.allocations("--nope")["where"], "--nope", "nor is a query")

    def test_importing_it_starts_and_imports_nothing(self):
        out, _ = self.run_python(
            "import vramscope, sys, threading\nprint(sorted(m for m in sys.modules if m.startswith(('vramscope', 'torch'))), "
            "threading.active_count())\nassert set(vramscope.__all__) == set(vramscope._WHERE)\n"
            "assert 'record' in dir(vramscope) and vramscope.__version__\n"
            "for name in vramscope.__all__: getattr(vramscope, name)\nprint('torch' in sys.modules)")
        self.assertEqual(out, "['vramscope'] 1\nFalse\n")

    def test_without_cuda_a_block_runs_as_it_is(self):
        out, _ = self.run_python("import sys\nsys.modules['torch'] = None\nimport vramscope\nwith vramscope.record() as r: print('ran')\n"
                                 "with vramscope.step(): pass\nvramscope.mark('x')\nprint(r.path)")
        self.assertEqual(out, "ran\nNone\n")
        _, said = self.run_python("import sys\nsys.modules['torch'] = None\nimport vramscope\nfor _ in range(2):\n"
                                  "    with vramscope.record('x.pickle'): pass\n")
        self.assertIn("<string>:5: UserWarning: CUDA is not available, so nothing is recorded and x.pickle is not written", said)
        self.assertEqual(said.count("UserWarning"), 1)


class Catching(InAFolder):
    FAILS = "kept = []\nwhile True: kept.append(torch.empty(1 << 30))\n"

    def pages(self, folder):
        found = []
        for path in sorted(glob.glob(folder + "/*.about.json")):
            with open(path) as file:
                found.append(json.load(file))
        return found

    def test_a_folder_that_can_not_be_written_is_warned_of_at_once(self):
        open("file", "w").close()
        _, said = self.run_python("import vramscope\nvramscope.on_oom('file/snapshots')\n")
        self.assertIn("<string>:2: UserWarning: no snapshot can be written: %s is not a folder" % os.path.abspath("file"), said)
        self.assertEqual(self.run_python("import vramscope\nvramscope.on_oom('made/later')\n")[1], "")
        self.assertFalse(os.path.exists("made"))

    def test_on_oom_before_and_after_torch_is_there(self):
        for begin in ("import vramscope\nvramscope.on_oom('a')\nimport torch\n", "import torch\ntorch.cuda.init()\nimport vramscope\nvramscope.on_oom('b')\n"):
            _, err = self.run_python(begin + self.FAILS, code=1)
            self.assertIn("OutOfMemoryError", err)
        for folder in "ab":
            (page,) = self.pages(folder)
            self.assertEqual((page["why"], page["error"]["type"]), ("oom", "OutOfMemoryError"))
            self.assertEqual(len(vramscope.open(os.path.join(folder, page["snapshot"])).ooms()), 1)

    def test_the_folder_of_a_later_call_takes_over(self):
        self.run_python("import torch, vramscope\nvramscope.on_oom('a')\ntorch.cuda.init()\nkept = torch.empty(512)\nvramscope.on_oom('b')\n"
                        "assert len(torch.RECORDED) == 1\nvramscope.on_oom('c', max_entries=7)\nassert len(torch.RECORDED) == 2\n" + self.FAILS, code=1)
        self.assertEqual([[p["why"] for p in self.pages(folder)] for folder in "abc"], [[], [], ["oom"]])

    def test_what_is_asked_for_leaves_one_snapshot_to_the_failure(self):
        self.run_python("import torch, vramscope\nfrom vramscope import _catch\nvramscope.on_oom('a', max_snapshots=2)\ntorch.cuda.init()\n"
                        "answers = [_catch._catcher.asked() for _ in range(3)]\nassert 'path' in answers[0], answers\n"
                        "assert all('kept for a failure' in a['error'] for a in answers[1:]), answers\n" + self.FAILS, code=1)
        self.assertEqual([p["why"] for p in self.pages("a") if "snapshot" in p], ["asked", "oom"])

    def test_a_second_sigint_at_once_ends_neither_the_snapshot_nor_the_last_words(self):
        for gap in (0, 0.02, 0.1):
            program = subprocess.Popen([sys.executable, "-c", "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
                "import torch, vramscope, vramscope._keep\nvramscope._keep.nvidia_smi = lambda: time.sleep(0.3)\n"
                "vramscope.on_oom('g%g', signals=True)\nkept = torch.empty(512)\nprint('ready', flush=True)\ntime.sleep(60)\n" % gap],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            program.stdout.readline()
            time.sleep(0.05)
            program.send_signal(signal.SIGINT)
            time.sleep(gap)
            program.send_signal(signal.SIGINT)
            _, said = program.communicate(timeout=60)
            self.assertEqual((program.returncode, [p["why"] for p in self.pages("g%g" % gap)]), (-signal.SIGINT, ["sigint"]), said)
            self.assertNotIn(b"Error in", said)
            self.assertNotIn(b"atexit", said)

    def test_a_notebook_catches_without_leaving_its_own_handling(self):
        out, _ = self.run_python(
            "import sys, types, vramscope\nhook = sys.excepthook\nvramscope.load_ipython_extension(types.SimpleNamespace())\nimport torch\n"
            "try:\n    kept = []\n    while True: kept.append(torch.empty(1 << 30))\nexcept torch.OutOfMemoryError: pass\n"
            "assert sys.excepthook is hook")
        self.assertIn("vramscope-snapshots", out)
        self.assertEqual([p["why"] for p in self.pages("vramscope-snapshots")], ["oom"])

    def test_a_recording_inside_leaves_the_ring_on(self):
        out, _ = self.run_python("import vramscope, torch\nvramscope.on_oom('a')\ntorch.cuda.init()\nwith vramscope.record('r.pickle'): torch.empty(512)\n"
                                 "print([r.get('enabled') for r in torch.RECORDED])")
        self.assertEqual(out, "['all']\n")

    def test_secrets_are_left_out_of_the_whole_page(self):
        fails = "vramscope.on_oom('a')\nprint('WANDB_API_KEY=abc')\nimport torch\ntry:\n    kept = []\n    while True: kept.append(torch.empty(1 << 30))\n" \
            "except RuntimeError: raise ValueError('cannot reach https://me:abc@host/')\n"
        words = ["--hub_token", "-abc", "wandb.api_key=abc", "--tokenizer", "gpt2"]
        with open("log", "w") as log:
            subprocess.run([sys.executable, "-c", "import vramscope\n" + fails, *words], stdout=log, stderr=log,
                           env=dict(os.environ, PYTORCH_INDEX="https://me:abc@host/", NCCL_AUTH="abc"))
        found = self.pages("a")
        self.assertEqual([p["why"] for p in found], ["exception", "oom"])
        self.assertNotIn("abc", json.dumps(found))
        self.assertEqual(found[0]["command"][-5:], ["--hub_token", "***", "wandb.api_key=***", "--tokenizer", "gpt2"])
        self.assertEqual(found[0]["output"]["stdout"][0], "WANDB_API_KEY=***")
        self.assertEqual(found[0]["error"]["message"], "cannot reach https://***@host/")


class Secrets(unittest.TestCase):
    S = "s3cr3tS3cr3t"
    LINES = ("wandb.api_key=S", "+hf.token=S", "++env.secret=S", "--key S", "--pw S", "--pass S", "--bearer S", "--token -S", "--token=S",
             "--hub_token S", "--apiKey S", "--hftoken S", "--auth S", "--env HF_TOKEN=S", "-eHF_TOKEN=S", "https://user:S@host/x",
             "git+https://S@github.com/a", "x?token=S&y=1", '{"token":"S","x":1}', '--config={"key":"S"}', "wandb={api_key:S,name:a}")
    TEXTS = ("hf_abcDEF1234567890", "sk-proj-abcDEF123456", "ghp_abcdefDEF0123456789", "eyJhbGciOiJI.eyJzdWIi.abcDEF", "AKIA" + "ABCDEFGH12345678",
             "Authorization: Bearer S", "-H 'Authorization: Basic S'", "password: S", "HF_TOKEN=S", "os.environ['HF_TOKEN'] = 'S'",
             '{"token": "S"}', '"{\\"token\\": \\"S\\"}"', '{"token": "S', "+ python train.py --hub-token S --lr 1", "https://user:S@host",
             "-----BEGIN RSA PRIVATE KEY-----\nS\nabcDEF")
    HARMLESS = ("--tokenizer gpt2", "--max-tokens 5", "--max_new_tokens=5", "--author me", "--num-key-value-heads 8", "--fp16 --lr 1e-4",
                "--use_auth_token --fp16", "--passes 3", "--bypass x", "-m sk-learn", "hf_hub_download", "/a/b=c/d", "user@host.org")
    PLAIN = ("Time per token: 5.2 ms", "KeyError: 'model.weight'", "missing key: foo", "sorted(x, key=len)", "torch::jit::token::x",
             "CUDA out of memory. Tried to allocate 2.00 GiB.", '  File "/a/auth.py", line 3, in authorize', "bearer of news")

    def test_what_looks_like_one_is_hidden_and_nothing_else(self):
        from vramscope._secrets import hidden, hidden_words
        for line in self.LINES:
            words = hidden_words(line.replace("S", self.S).split(" "))
            self.assertTrue("***" in " ".join(words) and self.S not in " ".join(words), words)
        for text in self.TEXTS:
            shown = hidden(text.replace("S", self.S) if "PRIVATE" not in text else text)
            self.assertTrue("***" in shown and self.S not in shown and "abcDEF" not in shown and "\nS" not in shown, shown)
        for line in self.HARMLESS:
            self.assertEqual(" ".join(hidden_words(line.split(" "))), line)
        for text in self.PLAIN:
            self.assertEqual(hidden(text), text)

    def test_no_text_takes_long(self):
        from vramscope._secrets import hidden, hidden_words
        begun = time.monotonic()
        for part in ("a", "token", "--a-", "://", "'token':'", "token=", "\\", "sk-", "hf_", "eyJ", "[\\", "authorization:", "a_"):
            text = part * (65536 // len(part))
            hidden(text), hidden_words([text])
        self.assertLess(time.monotonic() - begun, 20)


class Callbacks(InAFolder):
    """The callbacks that each library calls, in its order."""

    def setUp(self):
        super().setUp()
        torch.cuda.init()

    def tearDown(self):
        from vramscope import _catch
        _catch.end()
        for name in list(sys.modules):
            if name.split(".")[0] in ("transformers", "lightning", "accelerate"):
                del sys.modules[name]

    def check(self, folder):
        (snapshot,) = glob.glob(folder + "/steps_*.pickle")
        opened = vramscope.open(snapshot)
        self.assertIn("3 steps: from the annotation ProfilerStep", opened.text("summary").replace("\u00a0", " "))

    def work(self):
        for _ in range(4):
            a, b = torch.empty(1 << 20), torch.empty(1 << 21)
        del a, b

    def test_hugging_face(self):
        module("transformers", TrainerCallback=type("TrainerCallback", (), {}))
        callback = vramscope.HuggingFaceCallback("hf", steps=(0, 3))
        self.assertIsInstance(callback, sys.modules["transformers"].TrainerCallback)
        callback.on_train_begin(None, None, None, model=None)
        for _ in range(5):
            callback.on_step_begin(None, None, None, model=None)
            self.work()
            callback.on_step_end(None, None, None, model=None)
        callback.on_train_end(None, None, None, model=None)
        self.check("hf")

    def test_lightning(self):
        module("lightning")
        module("lightning.pytorch", Callback=type("Callback", (), {}))
        callback = vramscope.LightningCallback("pl", steps=(0, 3))
        callback.on_train_start(None, None)
        for i in range(5):
            callback.on_train_batch_start(None, None, None, i)
            self.work()
            callback.on_train_batch_end(None, None, None, None, i)
        callback.on_train_end(None, None)
        self.check("pl")

    def test_accelerate(self):
        module("accelerate")
        module("accelerate.tracking", GeneralTracker=type("GeneralTracker", (), {}))
        tracker = vramscope.AccelerateTracker("acc", steps=(0, 3))
        for i in range(5):
            self.work()
            tracker.log({"loss": 1.0}, step=i)
        tracker.finish()
        self.check("acc")

    def test_the_profiler_s_traces_are_named_by_rank_with_a_snapshot_while_a_history_is_recorded(self):
        profile = types.SimpleNamespace(export_chrome_trace=lambda path: open(path, "w").close())
        ready = vramscope.profiler_handler("prof")
        ready(profile)
        with vramscope.record():
            ready(profile)
        names = sorted(n.split("_pid")[0] + "." + n.split(".", 1)[1] for n in os.listdir("prof"))
        self.assertEqual(names, ["trace_rank0_cycle1.json.gz", "trace_rank0_cycle2.json.gz", "trace_rank0_cycle2.pickle"])

    def test_steps_that_can_not_be_are_refused_at_once(self):
        module("transformers", TrainerCallback=type("TrainerCallback", (), {}))
        for steps in ((3, 3), (1,), (1, 2, 3), ("1", "2"), 4):
            with self.assertRaisesRegex(ValueError, "a first step and one after the last"):
                vramscope.HuggingFaceCallback("hf", steps=steps)

    def test_a_training_that_ends_before_its_steps_says_so(self):
        module("transformers", TrainerCallback=type("TrainerCallback", (), {}))
        for steps, said, written in (((1, 4), "ended after 3 steps, so the snapshot of steps 1 to 3 ends there", [[1, 3]]),
                                     ((5, 7), "no snapshot of steps 5 to 6: the training ended after 3 steps", [])):
            folder = "hf%d" % steps[0]
            callback = vramscope.HuggingFaceCallback(folder, steps=steps)
            with contextlib.redirect_stderr(io.StringIO()) as heard:
                callback.on_train_begin(None, None, None)
                for _ in range(3):
                    callback.on_step_begin(None, None, None)
                    self.work()
                    callback.on_step_end(None, None, None)
                callback.on_train_end(None, None, None)
            self.assertIn(said, heard.getvalue())
            pages = [json.loads(pathlib.Path(path).read_text()) for path in glob.glob(folder + "/*.about.json")]
            self.assertEqual([p["steps"] for p in pages], written)


class Limits(InAFolder):
    TESTS = """
import pytest, torch
KEPT = []
@pytest.mark.limit_vram("64 MiB")
def test_small(): torch.empty(32 << 20)
@pytest.mark.limit_vram("64 MiB")
def test_large():
    x = torch.empty(96 << 20); y = torch.empty(8 << 20); del x
@pytest.mark.limit_vram_leaks("1 MiB")
def test_leaks(): KEPT.append(torch.empty(8 << 20))
@pytest.mark.limit_vram_leaks("1 MiB")
def test_clean(): torch.empty(8 << 20)
@pytest.mark.limit_vram("1 MiB")
def test_own_error():
    torch.empty(8 << 20)
    assert 1 == 2
"""

    def pytest(self, text):
        with open("test_limits.py", "w") as file:
            file.write(text)
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "vramscope.pytest_plugin", "-p", "no:cacheprovider", "test_limits.py"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout.decode()

    @unittest.skipUnless(__import__("importlib.util").util.find_spec("pytest"), "there is no pytest")
    def test_a_test_that_exceeds_its_limit_fails_with_who_held_the_memory(self):
        text = self.pytest(self.TESTS)
        self.assertIn("3 failed, 2 passed", text)
        self.assertIn("the test added 104 MiB to GPU 0, and may add 64 MiB. Live at the peak:\n       104 MiB in 2 blocks  test_limits.py:8", text)
        self.assertIn("the test left 8 MiB on GPU 0, and may leave 1 MiB. Allocated by:\n         8 MiB in 1 block  test_limits.py:10 test_leaks", text)
        self.assertIn("assert 1 == 2", text)
        named = [line.split(": ")[1] for line in text.splitlines() if "The recording: " in line]
        self.assertEqual(len(named), 2)
        for path in named:
            vramscope.open(path)
            os.unlink(path)
        # A wrong size fails only its own test.
        wrong = self.pytest(self.TESTS.replace("64 MiB", "some", 1).replace('limit_vram_leaks("1 MiB")', "limit_vram_leaks()", 1))
        self.assertIn("the marker limit_vram: 'some' is no size; write it as \"2 GiB\" or \"512 MiB\"", wrong)
        self.assertIn("the marker limit_vram_leaks: it has no size; write it as \"2 GiB\" or \"512 MiB\"", wrong)
        self.assertIn("4 failed, 1 passed", wrong)


if __name__ == "__main__":
    unittest.main()
