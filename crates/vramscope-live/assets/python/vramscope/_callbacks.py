"""Recording in training frameworks: Hugging Face's Trainer, Lightning, Accelerate and PyTorch's profiler.

Each function makes an object of the framework's own class, and imports the framework only when it is called.
"""
import os
import sys
from typing import Any, Callable, Optional, Tuple

from . import _agent, _catch, _record
from ._keep import Keeper, rank_of_process


class _Loop:
    """What all callbacks do: catch failures, mark steps, and write a snapshot after the chosen steps."""

    def __init__(self, folder: str, steps: Optional[Tuple[int, int]], stacks: str, max_entries: int) -> None:
        if steps is not None and not (isinstance(steps, (tuple, list)) and len(steps) == 2
                                      and all(isinstance(step, int) for step in steps) and 0 <= steps[0] < steps[1]):
            raise ValueError("steps is %r; it is a first step and one after the last, as in (1, 4)" % (steps,))
        self.folder, self.wanted = folder, steps
        self.stacks, self.max_entries = stacks, max_entries
        self.range: Any = None
        self.count = 0
        # Raises now for wrong settings, not in the middle of the training.
        _catch.Settings(folder, stacks, max_entries)

    def begin(self) -> None:
        self.count = 0
        _record.on_oom(self.folder, stacks=self.stacks, max_entries=self.max_entries, signals=_catch.catches_signals())

    def step_begins(self) -> None:
        self.step_ends(is_whole=False)
        self.range = _record.step(self.count)
        self.range.__enter__()

    def step_ends(self, is_whole: bool = True) -> None:
        if self.range is None:
            return
        self.range.__exit__(None, None, None)
        self.range = None
        if not is_whole:
            return
        self.count += 1
        if self.wanted is not None and self.count == self.wanted[1]:
            self.write()

    def write(self) -> None:
        torch = _agent._torch()
        if torch is None or not torch.cuda.is_initialized():
            return
        keeper = _catch.keeper() or Keeper(torch, os.path.abspath(self.folder), _catch.MAX_SNAPSHOTS, _catch.MAX_BYTES)
        try:
            page = keeper.write("steps", steps=[self.wanted[0], self.count] if self.wanted else [])
        except Exception as error:
            page = {"not_kept": str(error)}
        if page and "not_kept" in page:
            # Not an error: the training goes on.
            sys.stderr.write("vramscope: no snapshot of these steps: %s\n" % page["not_kept"])

    def end(self) -> None:
        self.step_ends(is_whole=False)
        if self.wanted is None or self.count >= self.wanted[1]:
            return
        first, end = self.wanted
        ends = "the training ended after %d step%s" % (self.count, "" if self.count == 1 else "s")
        if self.count > first:
            sys.stderr.write("vramscope: %s, so the snapshot of steps %d to %d ends there\n" % (ends, first, end - 1))
            self.write()
        else:
            sys.stderr.write("vramscope: no snapshot of steps %d to %d: %s\n" % (first, end - 1, ends))


def HuggingFaceCallback(folder: str = "vramscope", *, steps: Optional[Tuple[int, int]] = None, stacks: str = "python",
                        max_entries: int = _catch.MAX_ENTRIES) -> Any:
    """For `transformers.Trainer(callbacks=[...])`: marks every step and catches failures as `on_oom` does. With `steps=(1, 4)` it
    writes a snapshot once steps 1 to 3 have run (counted from 0); it has the newest `max_entries` events, also of earlier steps."""
    from transformers import TrainerCallback
    loop = _Loop(folder, steps, stacks, max_entries)

    class VramscopeCallback(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            loop.begin()

        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            loop.step_begins()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            loop.step_ends()

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            loop.end()

    return VramscopeCallback()


def LightningCallback(folder: str = "vramscope", *, steps: Optional[Tuple[int, int]] = None, stacks: str = "python",
                      max_entries: int = _catch.MAX_ENTRIES) -> Any:
    """Like `HuggingFaceCallback`, for `lightning.pytorch.Trainer(callbacks=[...])` and `pytorch_lightning`. A step is one batch."""
    try:
        # If both are installed, use the one that the program imported.
        if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
            raise ImportError
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback
    loop = _Loop(folder, steps, stacks, max_entries)

    class VramscopeCallback(Callback):  # type: ignore[misc]
        def on_train_start(self, trainer: Any, module: Any) -> None:
            loop.begin()

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            loop.step_begins()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            loop.step_ends()

        def on_train_end(self, trainer: Any, module: Any) -> None:
            loop.end()

    return VramscopeCallback()


def AccelerateTracker(folder: str = "vramscope", *, steps: Optional[Tuple[int, int]] = None, stacks: str = "python",
                      max_entries: int = _catch.MAX_ENTRIES) -> Any:
    """Like `HuggingFaceCallback`, for `Accelerator(log_with=[...])` and `init_trackers`. `accelerator.log(...)` ends a step."""
    from accelerate.tracking import GeneralTracker
    loop = _Loop(folder, steps, stacks, max_entries)

    class VramscopeTracker(GeneralTracker):  # type: ignore[misc]
        name = "vramscope"
        requires_logging_directory = False
        # Every rank has its own memory.
        main_process_only = False

        def __init__(self) -> None:
            super().__init__()
            loop.begin()
            loop.step_begins()

        @property
        def tracker(self) -> Any:
            return loop

        def store_init_configuration(self, values: Any) -> None:
            pass

        def log(self, values: Any, step: Optional[int] = None, **more: Any) -> None:
            loop.step_ends()
            loop.step_begins()

        def finish(self) -> None:
            loop.end()

    return VramscopeTracker()


def profiler_handler(folder: str = "vramscope") -> Callable[[Any], None]:
    """For `torch.profiler.profile(on_trace_ready=...)`, best with `profile_memory=True` and `with_stack=True`. Writes the trace of
    each cycle into the folder, compressed, with the rank in its name. Adds a snapshot if an allocation history is recorded."""
    count = 0

    def ready(profile: Any) -> None:
        nonlocal count
        count += 1
        os.makedirs(folder, exist_ok=True)
        rank = rank_of_process()
        stem = os.path.join(os.path.abspath(folder), "trace_rank%d_cycle%d_pid%d" % (rank or 0, count, os.getpid()))
        profile.export_chrome_trace(stem + ".json.gz")
        torch = _agent._torch()
        if torch is not None and torch.cuda.is_initialized() and (_agent.history_of is not None or _catch.keeper() is not None):
            _agent.write_snapshot(torch, stem + ".pickle")

    return ready
