"""Keeps snapshots of this process in a folder, with limits on their number, size and rate. Each has a page: a JSON file of facts.

A snapshot `oom_rank0_20261124-105513_pid1234.pickle` has `oom_rank0_20261124-105513_pid1234.about.json` beside it.
"""
import json
import os
import re
import socket
import sys
import threading
import time

from . import _agent
from ._secrets import hidden, hidden_words, is_secret

# The least seconds between two snapshots of one process.
APART = 1.0
# Limits: frames of a traceback, lines of output, bytes of either.
MOST_FRAMES, MOST_LINES, MOST_OUTPUT = 100, 40, 65536
# Why snapshots are written that are no failure: `vramscope snap`, and the steps of a callback.
WANTED = ("asked", "steps")
ENVIRONMENT = re.compile(
    r"(PYTORCH|TORCH|CUDA|CUBLAS|CUDNN|NCCL|NVIDIA|GLOO|ACCELERATE|DEEPSPEED|FSDP|SLURM_(JOB_ID|PROCID|LOCALID|NTASKS|NODEID|NNODES)|OMP)_?"
    r"|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)$|LOCAL_WORLD_SIZE$|MASTER_(ADDR|PORT)$|LD_PRELOAD$")
LIBRARIES = ("numpy", "transformers", "accelerate", "lightning", "pytorch_lightning", "deepspeed", "peft", "trl", "bitsandbytes", "vllm",
             "xformers", "flash_attn", "triton", "apex", "megatron", "torchvision", "torchaudio", "diffusers", "datasets")


class NotKept(Exception):
    """Raised with the reason why no snapshot is written."""


class Keeper:
    """The snapshots of this process in one folder."""

    def __init__(self, torch, folder, max_snapshots, max_bytes, run=""):
        self.torch, self.folder, self.run = torch, folder, run
        self.max_snapshots, self.max_bytes = max_snapshots, max_bytes
        self.pid = os.getpid()
        self.count = self.pages = 0
        self.last = None
        # Reentrant: a signal handler may call `write` in the thread that is writing.
        self.lock = threading.RLock()
        self.is_busy = False

    def seconds_since_last(self):
        return float("inf") if self.last is None else time.monotonic() - self.last

    def write(self, why, **facts):
        """Writes a snapshot and its page; returns the page. If there is no snapshot, the page's `not_kept` says why. Returns None
        if this thread is already writing one."""
        with self.lock:
            if self.is_busy:
                return None
            self.is_busy = True
            try:
                time.sleep(max(0.0, APART - self.seconds_since_last()))
                return self._write(why, facts)
            finally:
                self.last = time.monotonic()
                self.is_busy = False

    def _write(self, why, facts):
        os.makedirs(self.folder, exist_ok=True)
        rank = rank_of_process()
        words = [why] + (["rank%d" % rank] if rank is not None else []) + [time.strftime("%Y%m%d-%H%M%S"), "pid%d" % self.pid]
        stem = os.path.join(self.folder, "_".join(words))
        while os.path.exists(stem + ".about.json"):
            # The clock was set back.
            stem += "_again"
        page = {"vramscope": 1, "run": self.run, "why": why}
        start = time.perf_counter()
        try:
            most = self._room(why)
            self.count += 1
            _agent.write_snapshot(self.torch, stem + ".pickle", most)
            page["snapshot"] = os.path.basename(stem) + ".pickle"
        except NotKept as error:
            page["not_kept"] = str(error)
        except Exception as error:
            page["not_kept"] = "%s: %s" % (type(error).__name__, str(error)[:500])
        page["seconds"] = {"snapshot": round(time.perf_counter() - start, 3)}
        page.update(facts)
        start = time.perf_counter()
        page.update(surroundings(self.torch, rank, asks_driver=why not in ("sigterm", "sigint")))
        page["seconds"]["facts"] = round(time.perf_counter() - start, 3)
        page["path"] = stem + ".about.json"
        self.pages += 1
        if self.pages <= 2 * self.max_snapshots:
            save(page)
        return page

    def _room(self, why):
        """The size limit of the next snapshot, in bytes."""
        if self.count >= self.max_snapshots:
            raise NotKept("this process has written its %d snapshots; a larger max_snapshots allows more" % self.count)
        if why in WANTED and self.count == self.max_snapshots - 1:
            raise NotKept("the last of this process's %d snapshots is kept for a failure; a larger max_snapshots allows more"
                          % self.max_snapshots)
        used = 0
        for entry in os.scandir(self.folder):
            if entry.name.endswith((".pickle", ".part", ".about.json")):
                try:
                    used += entry.stat(follow_symlinks=False).st_size
                except OSError:
                    pass
        disk = os.statvfs(self.folder)
        # Leave some of the disk to other programs.
        most = min(self.max_bytes - used, disk.f_bavail * disk.f_frsize - (256 << 20))
        if most <= 0:
            raise NotKept("no room in %s: its snapshots take %d MiB of the %d MiB that are allowed, and the disk has %d MiB free; remove old ones" % (
                self.folder, used >> 20, self.max_bytes >> 20, disk.f_bavail * disk.f_frsize >> 20))
        return most


def save(page):
    """Writes a page atomically."""
    path = page["path"]
    part = os.path.join(os.path.dirname(path), "." + os.path.basename(path) + ".part")
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        json.dump({k: v for k, v in page.items() if k != "path"}, file, indent=1, default=str)
        file.write("\n")
    os.replace(part, path)


def rank_of_process():
    """The rank of this process in its job, or None."""
    try:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    except Exception:
        pass
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    if os.environ.get("SLURM_PROCID", "").isdigit() and os.environ.get("SLURM_NTASKS", "1") != "1":
        return int(os.environ["SLURM_PROCID"])
    return None


def is_out_of_memory(error):
    """True for PyTorch's error of a device that ran out of memory."""
    if error is None:
        return False
    torch = sys.modules.get("torch")
    kinds = [getattr(torch, "OutOfMemoryError", None), getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)]
    if isinstance(error, tuple(k for k in kinds if isinstance(k, type))):
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def described(error):
    """An exception as entries of a page."""
    import traceback
    lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-MOST_FRAMES)
    message, trace = str(error)[:MOST_OUTPUT], "".join(lines)[-MOST_OUTPUT:]
    return {"type": type(error).__name__, "message": hidden(message)[:4000], "traceback": hidden(trace)}


def stacks():
    """Python stacks of this thread and of the main thread, without our own frames."""
    import traceback
    frames = sys._current_frames()
    wanted = {"this thread": threading.get_ident(), "main thread": threading.main_thread().ident}
    own = os.path.dirname(os.path.abspath(__file__))
    found = {}
    for name, number in wanted.items():
        if number not in frames or (name != "this thread" and number == wanted["this thread"]):
            continue
        lines = traceback.extract_stack(frames[number])
        found[name] = ["%s:%d %s" % (f.filename, f.lineno, f.name) for f in lines
                       if os.path.dirname(os.path.abspath(f.filename)) != own][-MOST_FRAMES:]
    return found


def surroundings(torch, rank, asks_driver=True):
    """Facts about this process for the readers of its snapshot. An empty part is left out; one that fails holds its error.
    `asks_driver`: also query the CUDA driver, which may never answer in a program that hangs."""
    page = {}

    def part(name, tell):
        try:
            value = tell()
        except Exception as error:
            value = {"error": "%s: %s" % (type(error).__name__, str(error)[:300])}
        if value not in (None, {}, [], ""):
            page[name] = value

    part("time", lambda: time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    part("host", socket.gethostname)
    part("pid", os.getpid)
    part("rank", lambda: rank)
    part("command", command_line)
    part("folder", os.getcwd)
    part("versions", lambda: versions(torch))
    part("environment", environment)
    part("devices", lambda: devices(torch, asks_driver))
    part("nvidia_smi", nvidia_smi)
    part("output", output)
    return page


def command_line():
    """The command line without secrets."""
    words = list(getattr(sys, "orig_argv", None) or [sys.executable] + sys.argv)
    return [word[:1000] for word in hidden_words([str(word) for word in words[:500]])]


def environment():
    """Environment variables that change memory use or tell the rank, without secrets."""
    return {k: hidden(os.environ[k])[:1000] for k in sorted(os.environ) if ENVIRONMENT.match(k) and not is_secret(k)}


def versions(torch):
    """Versions of Python, of PyTorch and its CUDA or HIP, and of the imported LIBRARIES."""
    found = {"python": sys.version.split()[0], "torch": str(getattr(torch, "__version__", ""))}
    version = getattr(torch, "version", None)
    for name in ("cuda", "hip", "git_version"):
        if getattr(version, name, None):
            found[name] = str(getattr(version, name))
    for name in LIBRARIES:
        if name in sys.modules and isinstance(getattr(sys.modules[name], "__version__", None), str):
            found[name] = sys.modules[name].__version__
    return found


def devices(torch, asks_driver):
    """PyTorch's memory statistics of each device that has a context; with `asks_driver` also its name, free and total bytes."""
    found = {}
    for i in _agent._live_devices(torch):
        about = {"memory_stats": dict(torch.cuda.memory_stats(i))}
        if asks_driver:
            properties = torch.cuda.get_device_properties(i)
            about["name"], about["uuid"] = str(getattr(properties, "name", "")), _agent._uuid(torch, i)
            try:
                about["free_bytes"], about["total_bytes"] = torch.cuda.mem_get_info(i)
            except Exception as error:
                about["error"] = "%s: %s" % (type(error).__name__, str(error)[:300])
        found[str(i)] = about
    return found


def nvidia_smi():
    """What nvidia-smi says of the GPUs and their processes; None without nvidia-smi."""
    import shutil
    import subprocess
    program = shutil.which("nvidia-smi")
    if program is None:
        return None

    def table(what):
        done = subprocess.run([program, what, "--format=csv"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=5, check=True)
        rows = [line.split(", ") for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
        return [dict(zip(rows[0], row)) for row in rows[1:]] if rows else []

    return {"gpus": table("--query-gpu=index,uuid,name,driver_version,memory.total,memory.used,memory.free"),
            "processes": table("--query-compute-apps=gpu_uuid,pid,process_name,used_memory")}


def _size(number):
    """Bytes in the file behind a descriptor, or 0 if there is none."""
    try:
        return os.fstat(number).st_size
    except OSError:
        return 0


# Bytes that earlier runs left in a log that this run appends to.
BEFORE = {number: _size(number) for number in (1, 2)}


def output():
    """The last lines of this run's stdout and stderr, without secrets, if they go to files. If both go to the same file, it counts
    as stdout."""
    found, seen = {}, set()
    for name, stream, number in (("stdout", sys.stdout, 1), ("stderr", sys.stderr, 2)):
        try:
            stream.flush()
            info = os.fstat(number)
            if (info.st_mode & 0o170000) != 0o100000:
                continue
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            # The log may have been truncated or replaced since.
            start = BEFORE[number] if BEFORE[number] <= info.st_size else 0
            # Open it again: the program's descriptor may be write-only.
            reader = os.open("/proc/self/fd/%d" % number, os.O_RDONLY)
            try:
                begin = max(start, info.st_size - MOST_OUTPUT)
                data = os.pread(reader, MOST_OUTPUT, begin)
            finally:
                os.close(reader)
            if begin > start and b"\n" in data:
                # The rest of a line may be a secret whose name is cut off.
                data = data.partition(b"\n")[2]
            found[name] = hidden(data.decode("utf-8", "replace")).splitlines()[-MOST_LINES:]
        except Exception:
            continue
    return found
