"""A stand-in for torch, as much of it as the helper touches. It fails loudly where a real one would create a CUDA context."""
import os
import sys
import types

__version__ = "2.11.0+stub"
version = types.SimpleNamespace(cuda="13.0")
ASKED = []
_reserved, _allocated, _ooms = 300 << 20, 200 << 20, 0
_observers = []


def set_figures(reserved, allocated):
    global _reserved, _allocated
    _reserved, _allocated = reserved, allocated


def run_out():
    """What PyTorch does when a request fails: the observers, then the exception."""
    global _ooms
    _ooms += 1
    for observer in _observers:
        observer(0, 1 << 30, 8 << 30, 1 << 20)
    raise RuntimeError("CUDA out of memory")


def _stats(device):
    assert device == 0, "device %d has no context: asking it would create one" % device
    ASKED.append(device)
    both = lambda n: {"all": {"current": n, "peak": n + 1}}
    return {"reserved_bytes": both(_reserved), "active_bytes": both(_allocated), "allocated_bytes": both(_allocated),
            "requested_bytes": both(_allocated - 5), "num_alloc_retries": 3, "num_ooms": _ooms}


_C = types.SimpleNamespace(
    _cuda_hasPrimaryContext=lambda i: i == 0, _cuda_memoryStats=_stats,
    _cuda_attach_out_of_memory_observer=_observers.append)


def _segments():
    return [{"device": 0, "address": 1 << 21, "total_size": 1 << 21, "allocated_size": 512, "active_size": 512, "stream": 0,
             "segment_type": "small", "frames": [], "blocks": [
                 {"address": 1 << 21, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": []},
                 {"address": (1 << 21) + 512, "size": (1 << 21) - 512, "requested_size": 0, "state": "inactive", "frames": []}]}]


def _dump(path):
    import pickle
    with open(path, "wb") as f:
        pickle.dump({"segments": _segments(), "device_traces": [[]]}, f)


RECORDED = []
memory = types.ModuleType("torch.cuda.memory")
memory.memory_snapshot = lambda include_traces=True: _segments()
memory._dump_snapshot = _dump
memory._record_memory_history = lambda **kw: RECORDED.append(kw)

cuda = types.ModuleType("torch.cuda")
cuda.memory = memory
cuda.is_initialized = lambda: True
cuda.device_count = lambda: 2
cuda.current_device = lambda: 0
cuda.get_allocator_backend = lambda: "native"
cuda.get_device_properties = lambda i: types.SimpleNamespace(uuid="00000000-0000-0000-0000-000000000000")
sys.modules["torch.cuda"] = cuda
sys.modules["torch.cuda.memory"] = memory
