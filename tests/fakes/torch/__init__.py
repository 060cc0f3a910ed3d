"""A fake torch with the parts that the helper and the package use. It fails loudly when the real one would create a CUDA context.

A card of FAKE_TORCH_BYTES (8 GiB) whose allocations are traced as PyTorch traces them. CUDA is in use from the start; with
FAKE_TORCH=late it begins with the first allocation, as it really does.
"""
import contextlib
import os
import sys
import time
import types

__version__ = "2.11.0+stub"
version = types.SimpleNamespace(cuda="13.0")
ASKED = []
_reserved, _allocated, _ooms = 300 << 20, 200 << 20, 0
_observers = []
_total = int(os.environ.get("FAKE_TORCH_BYTES", 8 << 30))
_live, _trace, _ranges, _history = {}, [], [], {}
_pid = os.getpid() if os.environ.get("FAKE_TORCH") != "late" else None
_queued, _next, _peak, _is_starting = [], 1 << 32, 0, False


class OutOfMemoryError(RuntimeError):
    pass


def set_figures(reserved, allocated):
    global _reserved, _allocated
    _reserved, _allocated = reserved, allocated


def run_out():
    """As in PyTorch when a request fails: calls the observers, then raises the exception."""
    global _ooms
    _lazy_init()
    _ooms += 1
    _note("oom", 0, 1 << 30, device_free=1 << 20)
    for observer in _observers:
        observer(0, 1 << 30, 8 << 30, 1 << 20)
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")


def _frames():
    frame, found = sys._getframe(2), []
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            found.append({"filename": frame.f_code.co_filename, "name": frame.f_code.co_name, "line": frame.f_lineno})
        frame = frame.f_back
    return found


def _note(action, address, size, **more):
    if _history.get("enabled"):
        frames = _frames() if _history.get("context") else []
        _trace.append(dict(action=action, addr=address, size=size, stream=0, frames=frames, time_us=time.time_ns() // 1000, **more))
        del _trace[:-_history.get("max_entries", 1 << 30)]


class Tensor:
    """A number of bytes on the card. Each tensor has its own segment."""

    def __init__(self, size):
        global _next, _peak
        _lazy_init()
        size = -(-size // 512) * 512
        if sum(t[0] for t in _live.values()) + size > _total:
            run_out()
        self.address, self.size = _next, size
        _next += size + (2 << 20)
        _note("segment_alloc", self.address, size)
        _note("alloc", self.address, size)
        _live[self.address] = (size, _frames() if _history.get("context") else [])
        _peak = max(_peak, sum(t[0] for t in _live.values()))

    def __del__(self):
        if getattr(self, "address", None) in _live:
            del _live[self.address]
            for action in ("free_requested", "free_completed", "segment_free"):
                _note(action, self.address, self.size)


def empty(size, device="cuda"):
    return Tensor(size)


def _lazy_init():
    global _pid
    if _pid == os.getpid():
        return
    if _pid is not None:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")
    global _is_starting
    _is_starting = True
    for call in list(_queued):
        call()
    _is_starting, _pid = False, os.getpid()


def _lazy_call(call):
    if cuda.is_initialized():
        call()
    else:
        _queued.append(call)


def _stats(device):
    assert device == 0, "device %d has no context: asking it would create one" % device
    ASKED.append(device)
    both = lambda n: {"all": {"current": n, "peak": n + 1}}
    return {"reserved_bytes": both(_reserved), "active_bytes": both(_allocated), "allocated_bytes": both(_allocated),
            "requested_bytes": both(_allocated - 5), "num_alloc_retries": 3, "num_ooms": _ooms}


_C = types.SimpleNamespace(
    _cuda_hasPrimaryContext=lambda i: i == 0, _cuda_memoryStats=_stats,
    _cuda_hostMemoryStats=lambda: {"allocated_bytes": {"current": 4096}, "active_bytes": {"current": 1024}},
    _cuda_attach_out_of_memory_observer=_observers.append)


def _segments():
    if _live:
        return [{"device": 0, "address": a, "total_size": n, "allocated_size": n, "active_size": n, "requested_size": n, "stream": 0,
                 "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames, "blocks": [
                     {"address": a, "size": n, "requested_size": n, "state": "active_allocated", "frames": frames}]}
                for a, (n, frames) in _live.items()]
    return [{"device": 0, "address": 1 << 21, "total_size": 1 << 21, "allocated_size": 512, "active_size": 512, "stream": 0,
             "segment_type": "small", "frames": [], "blocks": [
                 {"address": 1 << 21, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": []},
                 {"address": (1 << 21) + 512, "size": (1 << 21) - 512, "requested_size": 0, "state": "inactive", "frames": []}]}]


def _snapshot(device=None):
    return {"segments": _segments(), "device_traces": [list(_trace)], "external_annotations": list(_ranges),
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}}


def _dump(path):
    import pickle
    with open(path, "wb") as f:
        pickle.dump(_snapshot(), f)


RECORDED = []


def _record(**words):
    assert _is_starting or _pid == os.getpid(), "recording starts CUDA, which nobody asked for"
    RECORDED.append(words)
    _history.clear()
    _history.update(words)
    if not words.get("enabled"):
        del _trace[:], _ranges[:]


memory = types.ModuleType("torch.cuda.memory")
memory.memory_snapshot = lambda include_traces=True: _segments()
memory._dump_snapshot = _dump
memory._snapshot = _snapshot
memory._record_memory_history = _record

cuda = types.ModuleType("torch.cuda")
cuda.memory = memory
cuda.OutOfMemoryError = OutOfMemoryError
cuda._lazy_call = _lazy_call
cuda.is_initialized = lambda: _pid == os.getpid()
cuda.is_available = lambda: True
cuda.init = _lazy_init
cuda.synchronize = lambda device=None: None
cuda.device_count = lambda: 2
cuda.current_device = lambda: 0
cuda.memory_allocated = lambda device=None: 0 if device else sum(t[0] for t in _live.values())
cuda.max_memory_allocated = lambda device=None: 0 if device else _peak
cuda.mem_get_info = lambda device=None: (_total - cuda.memory_allocated(), _total)
cuda.memory_stats = lambda device=None: {"allocated_bytes.all.current": cuda.memory_allocated(), "allocated_bytes.all.peak": _peak,
                                         "num_ooms": _ooms}
cuda.get_allocator_backend = lambda: "native"
cuda.get_device_properties = lambda i: types.SimpleNamespace(uuid="00000000-0000-0000-0000-000000000000", name="Stand-in")


def _reset_peak(device=None):
    global _peak
    _peak = cuda.memory_allocated()


cuda.reset_peak_memory_stats = _reset_peak


@contextlib.contextmanager
def _record_function(name):
    def note(stage):
        if _history.get("enabled"):
            _ranges.append({"name": name, "stage": stage, "device": 0, "time_us": time.time_ns() // 1000})
    note("START")
    try:
        yield
    finally:
        note("END")


profiler = types.ModuleType("torch.profiler")
profiler.record_function = _record_function
sys.modules["torch.cuda"] = cuda
sys.modules["torch.cuda.memory"] = memory
sys.modules["torch.profiler"] = profiler
