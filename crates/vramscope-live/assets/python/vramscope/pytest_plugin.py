"""Limits for the GPU memory of tests.

    @pytest.mark.limit_vram("2 GiB")              # the most that a test may add to what was allocated when it began
    @pytest.mark.limit_vram_leaks("1 MiB")        # the most that may still be allocated after it, once its own variables are gone

A test over its limit fails, and the report lists what held the memory and names the recording, which is kept. Without CUDA the
markers do nothing. They need the vramscope program only to list what held the memory.
"""
import gc
import os
import re
import tempfile
from typing import Any, Dict, Generator, List, Optional, Tuple

import pytest

from . import _agent, _open
from ._record import _cuda

UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "kb": 10**3, "mb": 10**6, "gb": 10**9,
         "tb": 10**12}
MOST_ENTRIES, MOST_HOLDERS = 1000000, 8


def parse_size(text: Any) -> int:
    """Bytes of "2 GiB", "512MB" or 1024."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", str(text))
    if found is None or found.group(2).lower() not in UNITS:
        raise ValueError('%r is no size; write it as "2 GiB" or "512 MiB"' % (text,))
    return int(float(found.group(1)) * UNITS[found.group(2).lower()])


def shown(size: int) -> str:
    """A size with its unit, for a report."""
    if size >= 1 << 30:
        return "%.2f GiB" % (size / (1 << 30))
    if size >= 1 << 20:
        return ("%.2f" % (size / (1 << 20))).rstrip("0").rstrip(".") + " MiB"
    return "%d bytes" % size


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", 'limit_vram(size): the test may add so much GPU memory to what was allocated, as in "2 GiB"')
    config.addinivalue_line("markers", 'limit_vram_leaks(size): so much GPU memory may be left after the test, as in "1 MiB"')


def _limit(item: Any, name: str) -> Optional[int]:
    marker = item.get_closest_marker(name)
    if marker is None:
        return None
    try:
        return parse_size(marker.args[0] if marker.args else marker.kwargs["size"])
    except KeyError:
        why = 'it has no size; write it as "2 GiB" or "512 MiB"'
    except ValueError as error:
        why = str(error)
    # Only this test fails, before it runs.
    return pytest.fail("the marker %s: %s" % (name, why), pytrace=False)


class _Watch:
    """Records and measures the memory of one test."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.settle()
        # Discard earlier events, so that the recorded peak is the test's own.
        _agent.stop_history(torch)
        _agent.record_history(torch, MOST_ENTRIES)
        self.start = self.snapshot()
        self.before = self.allocated()
        for i in self.before:
            torch.cuda.reset_peak_memory_stats(i)

    def settle(self) -> None:
        gc.collect()
        for i in _agent._live_devices(self.torch):
            self.torch.cuda.synchronize(i)

    def allocated(self) -> Dict[int, int]:
        return {i: self.torch.cuda.memory_allocated(i) for i in range(self.torch.cuda.device_count())}

    def snapshot(self) -> str:
        number, path = tempfile.mkstemp(prefix="vramscope-test-", suffix=".pickle")
        os.close(number)
        _agent.write_snapshot(self.torch, path)
        return path

    def grown(self, now: Dict[int, int]) -> Tuple[int, int]:
        """The device whose allocated memory grew most, and by how many bytes."""
        device = max(now, key=lambda i: now[i] - self.before[i])
        return device, now[device] - self.before[device]

    def most(self) -> Tuple[int, int]:
        """As `grown`, at each device's peak."""
        return self.grown({i: self.torch.cuda.max_memory_allocated(i) for i in self.before})

    def end(self) -> None:
        _agent.stop_history(self.torch)
        if _agent.history_of is not None:
            _agent.history_of.start_history()
        os.unlink(self.start)


def _rows(holders: List[Dict[str, Any]]) -> str:
    lines = []
    for holder in holders[:MOST_HOLDERS]:
        count = int(holder["count"])
        where = holder.get("where") or (holder.get("stack") or ["allocated before the test, or without a stack"])[0]
        lines.append("  %12s in %d %s  %s" % (shown(int(holder["bytes"])), count, "block" if count == 1 else "blocks", where))
    if len(holders) > MOST_HOLDERS:
        lines.append("  and %d more places" % (len(holders) - MOST_HOLDERS))
    return "\n".join(lines)


def _who_at_peak(path: str, device: int) -> str:
    try:
        return _rows(_open.Recording(path).command("state", "--peak=allocated", "--device", str(device))["live"])
    except Exception as error:
        return "  who held it is not known: %s" % error


def _who_is_left(before: str, after: str, device: int) -> str:
    try:
        answer = _open.Recording(before).command("diff", after, "--end", "--device", str(device))
        return _rows(left_behind(answer))
    except Exception as error:
        return "  who holds it is not known: %s" % error


def left_behind(answer: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The places that hold more in the second recording, from the answer of `vramscope diff`; largest growth first."""
    more = [p for p in answer["places"] if p["change_bytes"] > 0]
    more.sort(key=lambda p: -p["change_bytes"])
    return [{"bytes": p["change_bytes"], "count": max(1, p["b_count"] - p["a_count"]), "where": p["place"]} for p in more]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, None]:
    most, left = _limit(item, "limit_vram"), _limit(item, "limit_vram_leaks")
    torch = _cuda() if most is not None or left is not None else None
    if torch is None:
        yield
        return
    watch = _Watch(torch)
    outcome = yield
    try:
        said = []
        if most is not None:
            device, grown = watch.most()
            if grown > most:
                path = watch.snapshot()
                said.append("the test added %s to GPU %d, and may add %s. Live at the peak:\n%s\n  The recording: %s" % (
                    shown(grown), device, shown(most), _who_at_peak(path, device), path))
        # A failed test's traceback keeps its variables alive, which is no leak.
        if left is not None and outcome.excinfo is None:
            watch.settle()
            device, grown = watch.grown(watch.allocated())
            if grown > left:
                path = watch.snapshot()
                said.append("the test left %s on GPU %d, and may leave %s. Allocated by:\n%s\n  The recording: %s" % (
                    shown(grown), device, shown(left), _who_is_left(watch.start, path, device), path))
    finally:
        watch.end()
    if said and outcome.excinfo is None:
        try:
            pytest.fail("\n".join(said), pytrace=False)
        except BaseException as failure:
            outcome.force_exception(failure)
