"""vramscope in Python: records the GPU memory of a PyTorch program, catches out-of-memory errors, and analyzes recordings.

    import vramscope

    vramscope.on_oom("snapshots")                 # a snapshot when memory runs out, also when the program catches the error

    with vramscope.record("train.pickle"):        # every allocation in the block
        for batch in vramscope.steps(loader):     # where each training step begins and ends
            train(batch)

    recording = vramscope.open("train.pickle")
    recording.summary()                           # what `vramscope summary --json` prints, as a dict
    recording.table("lifetimes")                  # one row an allocation: pyarrow, pandas or a list of dicts

Also: `HuggingFaceCallback`, `LightningCallback`, `AccelerateTracker`, `profiler_handler`, the pytest markers `limit_vram` and
`limit_vram_leaks`, and `%load_ext vramscope` in a notebook. Importing this module is cheap: it imports PyTorch and its own parts
only when you use them.
"""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._callbacks import AccelerateTracker, HuggingFaceCallback, LightningCallback, profiler_handler
    from ._open import Recording, VramscopeError, open
    from ._record import listen, load_ipython_extension, mark, on_oom, record, step, steps

_WHERE = {
    "AccelerateTracker": "_callbacks", "HuggingFaceCallback": "_callbacks", "LightningCallback": "_callbacks",
    "profiler_handler": "_callbacks", "Recording": "_open", "VramscopeError": "_open", "open": "_open", "listen": "_record",
    "load_ipython_extension": "_record", "mark": "_record", "on_oom": "_record", "record": "_record", "step": "_record",
    "steps": "_record",
}
__all__ = [
    "AccelerateTracker", "HuggingFaceCallback", "LightningCallback", "Recording", "VramscopeError", "listen", "load_ipython_extension",
    "mark", "on_oom", "open", "profiler_handler", "record", "step", "steps",
]


def __dir__() -> "list[str]":
    return sorted(__all__ + ["__version__"])


def __getattr__(name: str) -> Any:
    # Imports a part when it is first used: the helper and _catch start in every Python process of a job.
    if name == "__version__":
        from importlib import metadata
        try:
            return metadata.version("vramscope")
        except metadata.PackageNotFoundError:
            return "unknown"  # `vramscope run` provides the package without installing it
    if name not in _WHERE:
        raise AttributeError("module 'vramscope' has no attribute %r" % name)
    import importlib
    value = getattr(importlib.import_module("." + _WHERE[name], __name__), name)
    globals()[name] = value
    return value
