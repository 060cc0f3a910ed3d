"""Recording from inside a program: `record`, `on_oom`, `step` and `mark`."""
import contextlib
import functools
import inspect
import os
import sys
import warnings
from typing import Any, Callable, ContextManager, Iterable, Iterator, Optional, TypeVar

from . import _agent, _catch
from ._keep import rank_of_process

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_steps = 0
_has_warned = False


def on_oom(folder: str, *, stacks: str = "python", max_entries: int = _catch.MAX_ENTRIES, max_snapshots: int = _catch.MAX_SNAPSHOTS,
           max_bytes: int = _catch.MAX_BYTES, exceptions: bool = True, signals: bool = False) -> None:
    """Writes a snapshot and a JSON file of facts into a folder when GPU memory runs out.

    From now on, or from the first use of CUDA, PyTorch records the newest `max_entries` events of its allocator. The snapshot is
    written at the first out-of-memory error of the process, even if the program catches it. With `exceptions`, an error that ends
    the program gets one too; with `signals`, so do SIGTERM and Ctrl+C (call this from the main thread then). Under
    `vramscope run --at-oom` this call does nothing: the command line decides. A later call replaces the settings of an earlier one.

    `stacks`: "python", "all" (C++ too, which makes snapshots slow) or "none". `max_snapshots` limits this process, `max_bytes` all
    snapshots in the folder. torch may be imported later. docs/LIVE.md says what this costs.
    """
    settings = _catch.Settings(folder, stacks, max_entries, max_snapshots, max_bytes, exceptions=exceptions, signals=signals)
    if _catch.is_commanded():
        return
    why = _catch.why_not_writable(settings.folder)
    if why is not None:
        warnings.warn("no snapshot can be written: %s; give on_oom a folder that this user may write to" % why, stacklevel=2)
    _catch.begin(settings)


class record(contextlib.ContextDecorator):
    """Records every allocation of a block or a function, and writes a snapshot at its end, even if an error ends it.

        with vramscope.record("train.pickle") as recording:
            ...
        recording.path                    # where the snapshot is

        @vramscope.record("step.pickle")
        def step(): ...                   # one snapshot a call; also of an `async def` or a generator, until it ends

    An existing file is kept: the new one gets a number (`train-2.pickle`). In the path, `{rank}` becomes the rank of the process,
    `{pid}` its process id. The folder must exist and be writable; only folders at its end whose names contain `{rank}` or `{pid}`
    are made. If a history is being recorded already (`on_oom`, `vramscope run --at-oom`), the snapshot also has what came before the
    block, and the recording goes on after it. Without CUDA the block runs normally, `path` is None, and one warning says so.
    """

    def __init__(self, path: str = "vramscope.pickle", *, stacks: str = "python", max_entries: int = 1000000) -> None:
        _catch.Settings(".", stacks, max_entries)
        self.wanted, self.stacks, self.max_entries = os.fspath(path), stacks, max_entries
        self.path: Optional[str] = None
        self._is_ours = False

    def _recreate_cm(self) -> "record":
        # Each call of a decorated function makes its own recording, also a recursive one.
        return type(self)(self.wanted, stacks=self.stacks, max_entries=self.max_entries)

    def __call__(self, function: F) -> F:
        if inspect.isasyncgenfunction(function):
            raise TypeError("record decorates no async generator; write `with vramscope.record(...)` inside of %s" % function.__name__)
        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def waits(*args: Any, **words: Any) -> Any:
                with self._recreate_cm():
                    return await function(*args, **words)
            return waits  # type: ignore[return-value]
        if inspect.isgeneratorfunction(function):
            @functools.wraps(function)
            def yields(*args: Any, **words: Any) -> Any:
                with self._recreate_cm():
                    return (yield from function(*args, **words))
            return yields  # type: ignore[return-value]
        return super().__call__(function)

    def __enter__(self) -> "record":
        missing = _missing_folder(self.wanted)
        if missing is not None:
            raise FileNotFoundError("there is no folder %s, so no recording can be written there: make it first" % missing)
        why = _catch.why_not_writable(os.path.dirname(_unused(self.wanted)))
        if why is not None:
            raise PermissionError("no recording can be written: %s; give record a folder that this user may write to" % why)
        torch = _cuda()
        if torch is None:
            _warn_of_nothing(self.wanted)
        is_on: Any = getattr(getattr(torch, "_C", None), "_cuda_isHistoryEnabled", bool)
        self._is_ours = torch is not None and _agent.history_of is None and not is_on()
        if self._is_ours:
            self.start_history()
            _agent.history_of = self  # type: ignore[assignment]
        return self

    def start_history(self) -> None:
        _agent.record_history(_agent._torch(), self.max_entries, self.stacks)

    def __exit__(self, *error: Any) -> None:
        torch = _agent._torch()
        if torch is None or not torch.cuda.is_initialized():
            return
        try:
            self.path = _unused(self.wanted)
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            _agent.write_snapshot(torch, self.path)
        except Exception as failure:
            self.path = None
            # Let an error of the block through: it says more than ours.
            if error[0] is None:
                raise
            sys.stderr.write("vramscope: %s cannot be written: %s\n" % (self.wanted, failure))
        finally:
            if self._is_ours:
                _agent.history_of = None
                _agent.stop_history(torch)


def _cuda() -> Any:
    """torch with CUDA initialized, or None without CUDA."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.cuda.init()
    return torch


def _warn_of_nothing(path: str) -> None:
    """Warns once a process that nothing is recorded."""
    global _has_warned
    if not _has_warned:
        _has_warned = True
        warnings.warn("CUDA is not available, so nothing is recorded and %s is not written" % path, stacklevel=3)


def _missing_folder(path: str) -> Optional[str]:
    """The folder of a path if it is missing. Folders at the end with {rank} or {pid} in the name may be missing: we make them."""
    folder = os.path.dirname(os.path.abspath(path))
    while "{rank}" in os.path.basename(folder) or "{pid}" in os.path.basename(folder):
        folder = os.path.dirname(folder)
    return None if os.path.isdir(folder) else folder


def _unused(path: str) -> str:
    """The path with {rank} and {pid} filled in, and with a number if that file exists."""
    rank = rank_of_process()
    path = path.replace("{rank}", str(rank if rank is not None else 0)).replace("{pid}", str(os.getpid()))
    if not path.endswith((".pickle", ".pkl")):
        path += ".pickle"
    stem, end = os.path.splitext(os.path.abspath(path))
    number, free = 1, stem + end
    while os.path.exists(free):
        number += 1
        free = "%s-%d%s" % (stem, number, end)
    return free


def step(number: Optional[int] = None) -> ContextManager[None]:
    """Marks a training step: `with vramscope.step(i): ...`, so that recordings have exact steps. Without a number, vramscope
    counts. Costs about a microsecond. Does nothing if torch is not imported, or while the profiler marks its own steps."""
    global _steps
    if number is None:
        number = _steps
    _steps = number + 1
    return _range("ProfilerStep#%d" % number)


def steps(batches: Iterable[T]) -> Iterator[T]:
    """Yields the batches and marks each iteration as a step: `for batch in vramscope.steps(loader): ...`."""
    for batch in batches:
        with step():
            yield batch


def mark(text: str) -> None:
    """Marks this instant with a text (at most 200 characters), in the recording and in every connected vramscope."""
    agent = sys.modules.get("vramscope_agent", _agent)
    agent.mark(text)
    with _range(str(text)[:200]):
        pass


def _range(name: str) -> ContextManager[None]:
    torch = sys.modules.get("torch")
    profiler = getattr(getattr(torch, "autograd", None), "profiler", None) or sys.modules.get("torch.profiler")
    if profiler is None:
        return contextlib.nullcontext()
    if name.startswith("ProfilerStep#") and getattr(getattr(torch, "autograd", None), "_profiler_enabled", bool)():
        # The profiler marks its own steps.
        return contextlib.nullcontext()
    return profiler.record_function(name)  # type: ignore[no-any-return]


def listen() -> Optional[str]:
    """Lets vramscope on this machine connect to this process, as under `vramscope run`. Returns the socket's path, or None if that
    fails. docs/LIVE.md says what this does to your program."""
    _agent.begin()
    return sys.modules.get("vramscope_agent", _agent).start()  # type: ignore[no-any-return]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext vramscope`: an out-of-memory error in this notebook leaves a snapshot in the folder vramscope-snapshots."""
    on_oom("vramscope-snapshots", exceptions=False)
    listen()
    print("vramscope: out-of-memory errors leave a snapshot in %s" % os.path.abspath("vramscope-snapshots"))
