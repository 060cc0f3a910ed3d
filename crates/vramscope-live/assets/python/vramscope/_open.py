"""Analysis of recordings: `vramscope.open(path)`, which runs the vramscope program and returns its answers."""
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, Dict, List, Optional


class VramscopeError(Exception):
    """The vramscope program is missing or failed. The message is the program's own."""


def program() -> str:
    """The path of the vramscope program: from VRAMSCOPE_PROGRAM, beside this Python, or on the PATH."""
    beside = [os.path.join(sysconfig.get_path("scripts"), "vramscope"), os.path.join(os.path.dirname(sys.executable), "vramscope")]
    for path in [os.environ.get("VRAMSCOPE_PROGRAM", "")] + beside + [shutil.which("vramscope") or ""]:
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise VramscopeError("the program vramscope is not there: pip install vramscope brings it, or name it in VRAMSCOPE_PROGRAM")


def ask(*words: str) -> str:
    """Runs the program and returns its output. Raises `VramscopeError` if it fails."""
    return _said(_run(*words), words[0])


def _run(*words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([program(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _said(done: "subprocess.CompletedProcess[bytes]", command: str) -> str:
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        nothing = "vramscope %s ended with exit code %d and said nothing" % (command, done.returncode)
        raise VramscopeError(said[len("vramscope: "):] if said.startswith("vramscope: ") else said or nothing)
    return done.stdout.decode("utf-8", "replace")


def open(path: "os.PathLike[str] | str") -> "Recording":
    """Opens a snapshot, a profiler trace, a session or anything else that the program reads. Sizes in answers are bytes.

    Raises `VramscopeError` if the file is missing or cannot be read.
    """
    recording = Recording(os.fspath(path))
    recording.summary()
    return recording


class Recording:
    """A recording. Each method runs `vramscope COMMAND FILE --json` and returns its output as dicts and lists;
    `vramscope COMMAND --help` and docs/EXPORT.md describe them."""

    def __init__(self, path: str) -> None:
        # The program would take a path that begins with a dash for an option.
        self.path = os.path.join(os.curdir, path) if path.startswith("-") else path
        self._summary: Optional[Dict[str, Any]] = None

    def __repr__(self) -> str:
        return "vramscope.open(%r)" % self.path

    def command(self, name: str, *words: str) -> Dict[str, Any]:
        """Runs any command with `--json`: `recording.command("whatif", "--conf", "expandable_segments:True")`. `check` whose limit is
        passed returns its answer too, with `"passed": false`."""
        done = _run(name, self.path, *words, "--json")
        if done.returncode == 1:
            try:
                # An answer that is also a failure, such as a limit of `check` that is passed.
                return dict(json.loads(done.stdout))
            except ValueError:
                pass
        return dict(json.loads(_said(done, name)))

    def text(self, name: str, *words: str) -> str:
        """The text that a command prints: `print(recording.text("oom"))`."""
        return ask(name, self.path, *words)

    def summary(self) -> Dict[str, Any]:
        """Peaks, totals, out-of-memory errors and oddities of the file. Runs the command only once."""
        if self._summary is None:
            self._summary = self.command("summary")
        return self._summary

    def findings(self) -> List[Dict[str, Any]]:
        """Problems that vramscope found, most serious first."""
        return list(self.command("findings")["findings"])

    def ooms(self) -> List[Dict[str, Any]]:
        """Why each out-of-memory error happened."""
        return list(self.command("oom")["ooms"])

    def state(self, *, event: Optional[int] = None, at: str = "peak") -> Dict[str, Any]:
        """Segments, blocks and what holds the memory, at an event or `at` "peak", "oom" or "end"."""
        if at not in ("peak", "oom", "end"):
            raise ValueError('at is %r; it is one of "peak", "oom" and "end"' % (at,))
        return self.command("state", "--event=%d" % event if event is not None else "--" + at)

    def leaks(self) -> Dict[str, Any]:
        """Allocations that outlive their training step, by call stack."""
        return self.command("leaks")

    def allocations(self, where: str = "", limit: Optional[int] = None) -> Dict[str, Any]:
        """Allocations that match a query: `recording.allocations("size>1MiB stack~attention live@peak")`."""
        words = (["--where=" + where] if where else []) + (["--limit=%d" % limit] if limit is not None else [])
        return self.command("allocations", *words)

    def table(self, name: str = "lifetimes") -> Any:
        """A whole table of all GPUs: events, lifetimes, blocks, curves, samples, categories or stacks. Returns a `pyarrow.Table` if pyarrow
        is installed, else a `pandas.DataFrame`, else a list of dicts, where a missing value is None."""
        with tempfile.TemporaryDirectory() as folder:
            if _has("pyarrow.parquet"):
                import pyarrow.parquet as parquet
                file = os.path.join(folder, "table.parquet")
                ask("export", self.path, "--to=parquet", file, "--table=" + name)
                # Read it into memory, since the file is deleted.
                return parquet.read_table(file, memory_map=False)
            file = os.path.join(folder, "table.jsonl")
            ask("export", self.path, "--to=jsonl", file, "--table=" + name)
            with io.open(file, encoding="utf-8") as lines:
                rows = [json.loads(line) for line in lines]
            if not _has("pandas"):
                return rows
            import pandas
            # As objects first: pandas would make floats of whole numbers where some are missing.
            return pandas.DataFrame(rows, dtype=object).convert_dtypes()


def _has(module: str) -> bool:
    import importlib
    try:
        importlib.import_module(module)
    except Exception:
        return False
    return True
