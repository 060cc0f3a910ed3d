"""The vramscope helper: lets vramscope see PyTorch's own memory figures in this process.

    import vramscope_agent        # one line, anywhere; or start the program with: vramscope run train.py

One file, no dependencies, Python 3.8 or newer: `vramscope agent` prints it, and the Python package has it as vramscope._agent, where
begin() starts it. It opens a socket that only this user can reach and sleeps until vramscope
connects. It imports nothing heavy: PyTorch is looked up among the modules the program imported itself, a device is asked only when
it has a context already, and no error of the helper reaches the program.

What a connected vramscope may ask for: memory statistics some times a second, the blocks without traces, recording of the
allocation history on or off, a snapshot now or at the next out-of-memory error (one; it can be asked for again). Nothing it sends
is ever run or unpickled, and the program never waits for it.
"""
import atexit
import contextlib
import errno
import json
import os
import select
import socket
import stat
import struct
import sys
import threading
import time
import types

VERSION = 1
# One line of JSON each way; a longer request is not ours, and a longer answer is not taken at the other end.
LONGEST_REQUEST = 65536
LONGEST_ANSWER = 32 << 20
# Each costs the program a thread and a file.
MOST_CLIENTS = 4
# Marks that wait for a vramscope that is busy; more are dropped and counted.
MOST_WAITING = 65536
# A vramscope that takes nothing in for so long is let go, in seconds.
PATIENCE = 10.0
SLOWEST_HZ, FASTEST_HZ = 0.2, 50.0
MOST_ENTRIES = 1000000
ENVIRONMENT = (
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING",
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "CUBLAS_WORKSPACE_CONFIG", "NCCL_CUMEM_ENABLE",
)
FIGURES = (
    ("reserved", "reserved_bytes", "current"), ("active", "active_bytes", "current"),
    ("allocated", "allocated_bytes", "current"), ("requested", "requested_bytes", "current"),
    ("reserved_peak", "reserved_bytes", "peak"), ("allocated_peak", "allocated_bytes", "peak"),
)
SEGMENT_KEYS = ("device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
                "segment_pool_id", "is_expandable")
BLOCK_KEYS = ("address", "size", "requested_size", "state")


class _State:
    """Everything of one process; thrown away in a forked child."""

    def __init__(self):
        self.pid = os.getpid()
        self.path = None
        self.listener = None
        self.clients = []
        self.lock = threading.Lock()
        # Who wants a snapshot at the next out-of-memory error.
        self.at_oom = []
        self.has_observer = False
        self.is_over = False


_state = None
# Set by what keeps snapshots in a folder of its own (vramscope._catch): writes one that was asked for.
write_asked = None
# Who has the allocation history recorded all the time, so that nobody else ends it.
history_of = None


def folder():
    """Where the sockets of this user are: a folder that nobody else can enter."""
    chosen = os.environ.get("VRAMSCOPE_DIR")
    if chosen:
        return chosen
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        return os.path.join(runtime, "vramscope")
    return "/tmp/vramscope-%d" % os.getuid()


def _private_folder(path):
    """Makes the folder; refuses one that another user could have laid out for us."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise PermissionError("%s is not a folder of this user" % path)
    if info.st_mode & 0o077:
        os.chmod(path, 0o700)
    return path


def _torch():
    torch = sys.modules.get("torch")
    # While torch is being imported on another thread its parts appear one by one.
    return torch if torch is not None and hasattr(torch, "cuda") and hasattr(torch, "_C") else None


def _live_devices(torch):
    """Devices that have a context: asking any other would create one, half a gigabyte large."""
    if not torch.cuda.is_initialized():
        return []
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return [torch.cuda.current_device()]
    return [i for i in range(torch.cuda.device_count()) if has_context(i)]


def _statistics(torch, device):
    """`memory_stats` of a device. The nested form costs a seventh of the public one, which flattens and sorts it."""
    nested = getattr(torch._C, "_cuda_memoryStats", None)
    if nested is not None:
        s = nested(device)
        out = {name: s.get(key, {}).get("all", {}).get(which, 0) for name, key, which in FIGURES}
    else:
        s = torch.cuda.memory_stats(device)
        out = {name: s.get("%s.all.%s" % (key, which), 0) for name, key, which in FIGURES}
    out["retries"] = s.get("num_alloc_retries", 0)
    out["ooms"] = s.get("num_ooms", 0)
    return out


def _pinned(torch):
    """Pinned host memory of PyTorch's allocator: all it owns, and what tensors use. None where PyTorch does not tell."""
    stats = getattr(torch._C, "_cuda_hostMemoryStats", None)
    if stats is None or not torch.cuda.is_initialized():
        return None
    try:
        s = stats()
    except Exception:
        return None
    owned, used = (s.get(key, {}).get("current") for key in ("allocated_bytes", "active_bytes"))
    return None if owned is None else {"pinned": owned, "used": used}


def _uuid(torch, device):
    try:
        uuid = str(torch.cuda.get_device_properties(device).uuid)
    except Exception:
        return ""
    return uuid if uuid.startswith(("GPU-", "MIG-")) else "GPU-" + uuid


def _hello():
    torch = _torch()
    facts = {
        "hello": VERSION, "pid": os.getpid(), "t": time.time_ns() // 1000, "python": sys.version.split()[0],
        "argv": [str(a)[:200] for a in getattr(sys, "argv", [])[:8]],
        "env": {k: os.environ[k] for k in ENVIRONMENT if k in os.environ},
    }
    if torch is not None:
        facts["torch"] = str(getattr(torch, "__version__", ""))
        facts["cuda"] = str(getattr(getattr(torch, "version", None), "cuda", ""))
        try:
            facts["backend"] = str(torch.cuda.get_allocator_backend())
        except Exception:
            pass
    return facts


def _snapshot_to(torch, kind):
    """Writes a snapshot into our folder; it appears under its name only when it is whole."""
    place = _private_folder(os.path.join(folder(), "snapshots"))
    target = os.path.join(place, "%d-%s-%d.pickle" % (os.getpid(), kind, time.time_ns() // 1000000))
    start = time.perf_counter()
    write_snapshot(torch, target)
    return {"path": target, "seconds": round(time.perf_counter() - start, 4)}


class _Bounded:
    """A file that takes no more than so many bytes."""

    def __init__(self, file, most):
        self.file, self.left = file, most

    def write(self, data):
        # Large values come as views.
        self.left -= len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        if self.left < 0:
            raise OSError(errno.EFBIG, "the snapshot is larger than what may be written")
        return self.file.write(data)


@contextlib.contextmanager
def _without_compiler(torch):
    """PyTorch names frames of compiled code with the help of torch._inductor, and asks for it in a way that imports all of it: six seconds
    where the program has not. Such a program has compiled nothing, so an empty module stands in meanwhile."""
    if "_inductor" in vars(torch):
        yield
        return
    stand_in = types.ModuleType("torch._inductor")
    torch._inductor = stand_in
    try:
        yield
    finally:
        # Another thread may have imported it.
        if vars(torch).get("_inductor") is stand_in:
            del torch._inductor


def write_snapshot(torch, target, most=None):
    """Writes a snapshot; it appears under its name only when it is whole. `most`: the most bytes it may have."""
    place, name = os.path.split(target)
    part = os.path.join(place, "." + name + ".part")
    _sweep_parts(place)
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "wb") as file, _without_compiler(torch):
            if most is not None and hasattr(torch.cuda.memory, "_snapshot"):
                # What _dump_snapshot does.
                import pickle
                pickle.dump(torch.cuda.memory._snapshot(), _Bounded(file, most), protocol=4)
            else:
                torch.cuda.memory._dump_snapshot(part)
        os.rename(part, target)
    except BaseException:
        os.unlink(part)
        raise


def _blocks(torch):
    """Segments and blocks without traces, in the shape of a snapshot."""
    try:
        segments = torch.cuda.memory.memory_snapshot(include_traces=False)
    except TypeError:
        segments = torch.cuda.memory.memory_snapshot()
    out = []
    for segment in segments:
        slim = {k: segment[k] for k in SEGMENT_KEYS if k in segment}
        address = slim.get("address", 0)
        slim["blocks"] = []
        for block in segment.get("blocks", ()):
            entry = {k: block[k] for k in BLOCK_KEYS if k in block}
            # PyTorch before 2.0 does not say where a block is: they stand one after the other.
            entry.setdefault("address", address)
            address = entry["address"] + entry.get("size", 0)
            slim["blocks"].append(entry)
        out.append(slim)
    return {"segments": out, "device_traces": []}


def record_history(torch, max_entries, stacks="python"):
    """Records the newest `max_entries` events of the allocator; stacks are "python", "all" (C++ too) or "none"."""
    import inspect
    record = torch.cuda.memory._record_memory_history
    # No stacks of frees: with them torch.utils.checkpoint(use_reentrant=False) ends in a SystemError (seen with PyTorch 2.11).
    words = {"enabled": "all", "context": None if stacks == "none" else "alloc", "stacks": "all" if stacks == "all" else "python",
             "max_entries": max_entries}
    try:
        # Ranges of every thread, not only of the one that asks: since PyTorch 2.9.
        if "global_record_annotations" in inspect.signature(record).parameters:
            words["global_record_annotations"] = True
    except (TypeError, ValueError):
        pass
    try:
        record(**words)
    except TypeError:
        # PyTorch 2.0 had another set of arguments.
        record(True, trace_alloc_max_entries=max_entries, trace_alloc_record_context=stacks != "none")


def stop_history(torch):
    """Records no more, and forgets what was recorded."""
    record = torch.cuda.memory._record_memory_history
    try:
        record(enabled=None)
    except TypeError:
        record(False)


def _history(torch, request):
    if not request.get("on"):
        if history_of is None:
            stop_history(torch)
        return {"history": False}
    entries = min(max(int(request.get("max_entries", 100000)), 1000), MOST_ENTRIES)
    record_history(torch, entries, "all" if request.get("cpp") else "python")
    return {"history": True, "max_entries": entries}


def _observe_oom(torch, on, client):
    state = _state
    with state.lock:
        if client in state.at_oom:
            state.at_oom.remove(client)
        if on:
            state.at_oom.append(client)
        is_first = on and not state.has_observer
        state.has_observer = state.has_observer or is_first
    if is_first:
        def observer(device, size, total, free):
            # Called between the failed request and the exception, with the cache given back already. It can not be taken
            # away again, so it looks whether it is wanted: once for each time it was asked for, since a program that catches
            # the error may run into it a hundred times.
            try:
                if state is not _state:
                    return
                with state.lock:
                    wanted, state.at_oom = state.at_oom, []
                if not wanted:
                    return
                answer = _snapshot_to(torch, "oom")
                answer.update({"event": "oom", "device": device, "requested": size, "free": free})
                for client in wanted:
                    client.post(answer)
            except BaseException:
                pass
        torch._C._cuda_attach_out_of_memory_observer(observer)
    return {"at_oom": bool(on)}


def _answer(request, client):
    command = request.get("cmd")
    if command not in ("blocks", "history", "dump", "at_oom"):
        return {"error": "there is no command %s" % str(command)[:40]}
    torch = _torch()
    if torch is None:
        return {"error": "this program has not imported torch"}
    if not torch.cuda.is_initialized():
        return {"error": "this program has not used CUDA yet"}
    if command == "blocks":
        return {"blocks": _blocks(torch)}
    if command == "history":
        return _history(torch, request)
    if command == "dump":
        return write_asked() if write_asked is not None else _snapshot_to(torch, "now")
    return _observe_oom(torch, request.get("on"), client)


class _Client:
    """A connected vramscope, served by a thread of its own. Nothing here waits for it but that thread."""

    def __init__(self, connection):
        self.connection = connection
        connection.setblocking(False)
        # Held only for moments: the program's own threads take it in `mark`.
        self.lock = threading.Lock()
        self.waiting = bytearray()
        self.dropped = 0
        self.moved = time.monotonic()
        self.period = 0.1
        self.told = None

    def post(self, message, longest=MOST_WAITING):
        """Sends what the socket takes now, and keeps the rest for the thread. Drops the message where too much waits already."""
        message = dict(message)
        message.setdefault("t", time.time_ns() // 1000)
        data = (json.dumps(message, default=str) + "\n").encode()
        # Not for ever: a signal may have come while this very thread had it.
        has_lock = self.lock.acquire(timeout=0.05)
        try:
            if not has_lock or len(self.waiting) + len(data) > longest:
                self.dropped += message.get("event") == "mark"
                return False
            self.waiting += data
            self._push()
            return True
        finally:
            if has_lock:
                self.lock.release()

    def _push(self):
        while self.waiting:
            try:
                sent = self.connection.send(self.waiting[:65536])
            except (BlockingIOError, InterruptedError):
                return
            del self.waiting[:sent]
            self.moved = time.monotonic()

    def push(self):
        with self.lock:
            self._push()
            n = self.dropped if not self.waiting else 0
            self.dropped -= n
        if n:
            self.post({"dropped": n})

    def sample(self):
        torch = _torch()
        if torch is None:
            return
        devices = _live_devices(torch)
        if devices != self.told:
            self.told = devices
            self.post({"devices": {str(i): _uuid(torch, i) for i in devices}})
        now = time.time_ns() // 1000
        figures = {str(i): _statistics(torch, i) for i in devices}
        if figures:
            host = _pinned(torch)
            self.post({"t": now, "stats": figures} if host is None else {"t": now, "stats": figures, "host": host})

    def handle(self, line):
        request = json.loads(line)
        if request.get("cmd") == "hz":
            self.period = 1.0 / min(max(float(request.get("hz", 10)), SLOWEST_HZ), FASTEST_HZ)
            return
        try:
            answer = _answer(request, self)
        except Exception as error:
            answer = {"error": "%s: %s" % (type(error).__name__, str(error)[:300])}
        answer["re"] = request.get("id")
        if not self.post(answer, LONGEST_ANSWER):
            self.post({"error": "the answer is too long to send; take a snapshot instead", "re": request.get("id")}, LONGEST_ANSWER)

    def serve(self):
        # Not select: it knows no file above number 1023, and the program may have more.
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        self.post(_hello())
        buffer, due = b"", time.monotonic()
        while True:
            now = time.monotonic()
            if self.waiting:
                # Nothing is asked of PyTorch, and no request is taken, before the last answer is out.
                if now - self.moved > PATIENCE:
                    return
                poll.modify(self.connection, select.POLLOUT)
                poll.poll(200)
                self.push()
                due = max(due, time.monotonic())
                continue
            if self.dropped:
                self.push()
            if now >= due:
                try:
                    self.sample()
                except (OSError, ValueError):
                    raise
                except Exception as error:
                    self.post({"error": "%s: %s" % (type(error).__name__, str(error)[:300])})
                    due = now + 1.0
                due = max(due + self.period, time.monotonic())
                self.moved = time.monotonic()
                continue
            poll.modify(self.connection, select.POLLIN)
            # Short, so that marks that did not go at once need not wait for the next reading.
            if not poll.poll(max(1, int(min(due - now, 0.2) * 1000))):
                continue
            try:
                data = self.connection.recv(4096)
            except (BlockingIOError, InterruptedError):
                continue
            if not data:
                return
            buffer += data
            if len(buffer) > LONGEST_REQUEST:
                return
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                self.handle(line)


def _peer_is_us(connection):
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", data)[1] in (os.getuid(), 0)


def _refuse(connection, sentence):
    """Says why in one line, without waiting, and hangs up."""
    try:
        connection.setblocking(False)
        connection.send((json.dumps({"error": sentence}) + "\n").encode())
    except BaseException:
        pass
    try:
        connection.close()
    except BaseException:
        pass


def _serve(state, client):
    try:
        client.serve()
    except BaseException:
        pass
    finally:
        with state.lock:
            state.clients.remove(client)
            if client in state.at_oom:
                state.at_oom.remove(client)
        try:
            client.connection.close()
        except BaseException:
            pass


def _listen(state):
    while True:
        try:
            connection, _ = state.listener.accept()
        except OSError as error:
            # The program has no file left for us: it may have one later.
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED):
                time.sleep(1.0)
                continue
            return
        except BaseException:
            return
        try:
            if not _peer_is_us(connection):
                _refuse(connection, "this program belongs to another user")
                continue
            with state.lock:
                is_full = len(state.clients) >= MOST_CLIENTS
                if not is_full:
                    client = _Client(connection)
                    state.clients.append(client)
            if is_full:
                _refuse(connection, "%d others watch this program already; close one of them" % MOST_CLIENTS)
                continue
        except BaseException:
            _refuse(connection, "the helper failed")
            continue
        try:
            threading.Thread(target=_serve, args=(state, client), name="vramscope-client", daemon=True).start()
        except BaseException:
            # No more threads at the end of the program.
            return


def _stop(state=None):
    global _state
    state = state or _state
    if state is None:
        return
    # A forked child must not take away its parent's socket.
    if state.pid == os.getpid():
        for client in list(state.clients):
            try:
                # Marks of the last moment.
                client.push()
            except BaseException:
                pass
        _remove(state)
    if state is _state:
        _state = None


def _remove(state):
    """Takes the socket away, also when Ctrl+C comes once more meanwhile."""
    for _ in range(3):
        try:
            state.is_over = True
            # Whoever binds it is done with that.
            if state.lock.acquire(timeout=1.0):
                state.lock.release()
            if state.listener is not None:
                state.listener.close()
            if state.path:
                os.unlink(state.path)
            return
        except OSError:
            return
        except BaseException:
            pass


def _after_fork():
    """A forked child has the parent's sockets but none of its threads: let go of them and listen under its own number."""
    global _state
    try:
        old, _state = _state, None
        if old is not None:
            if old.listener is not None:
                old.listener.close()
            for client in old.clients:
                client.connection.close()
            start()
    except BaseException:
        pass


def _sweep(place):
    """Removes sockets of processes that were killed: the number runs no more here, and nobody answers (in a container another
    number may be meant)."""
    for name in os.listdir(place):
        number = name[: -len(".sock")]
        if not name.endswith(".sock") or not number.isdigit():
            continue
        try:
            os.kill(int(number), 0)
            continue
        except ProcessLookupError:
            pass
        except (OSError, OverflowError):
            continue
        path = os.path.join(place, name)
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            probe.settimeout(0.2)
            probe.connect(path)
        except ConnectionRefusedError:
            try:
                os.unlink(path)
            except OSError:
                pass
        except OSError:
            pass
        finally:
            probe.close()


def _sweep_parts(place):
    """Removes what a killed program left of a snapshot that it was writing."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        try:
            # In a container another number may be meant; nobody writes one snapshot for an hour.
            if name.endswith(".part") and time.time() - os.lstat(path).st_mtime > 3600:
                os.unlink(path)
        except OSError:
            pass


def _outermost(frame):
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _startup():
    """The outermost frame of Python's own start, when it is what imports the helper: through a .pth file or sitecustomize."""
    frame = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "site":
        frame = frame.f_back
    return _outermost(frame) if threading.current_thread() is threading.main_thread() else None


def _wait_for_program(startup):
    """Waits until the program runs. Ctrl+C before that ends Python without any of the cleanup that modules registered."""
    main, over = threading.main_thread().ident, None
    while over is None or time.monotonic() - over < 1.0:
        frame = _outermost(sys._current_frames().get(main))
        if frame is startup:
            over = None
        elif frame is not None and frame.f_globals.get("__name__") in ("__main__", "runpy"):
            return
        else:
            over = over or time.monotonic()
        time.sleep(0.005)


def _bind(state):
    """Begins to listen, unless that is done or the program ends."""
    with state.lock:
        if state.listener is not None or state.is_over:
            return False
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.set_inheritable(False)
        try:
            os.unlink(state.path)
        except OSError:
            pass
        listener.bind(state.path)
        os.chmod(state.path, 0o600)
        listener.listen(MOST_CLIENTS)
        state.listener = listener
    return True


def _bind_later(state, startup):
    try:
        _wait_for_program(startup)
        if _bind(state):
            _listen(state)
    except BaseException:
        pass


def start():
    """Begins to listen; returns the socket's path, or None when that is not possible. While Python itself starts, the socket comes
    with the program. Calling it again changes nothing."""
    global _state
    state, made = _state, None
    try:
        startup = _startup()
        if state is None or state.pid != os.getpid():
            state = made = _State()
            place = _private_folder(folder())
            _sweep(place)
            state.path = os.path.join(place, "%d.sock" % state.pid)
            _state = state
        if startup is not None:
            work, words = _bind_later, (state, startup)
        elif _bind(state):
            work, words = _listen, (state,)
        else:
            return state.path
        threading.Thread(target=work, args=words, name="vramscope-agent", daemon=True).start()
        return state.path
    except KeyboardInterrupt:
        # Meant for the program, which has not begun yet: it ends as it would without us.
        if made is not None:
            _stop(made)
        raise
    except BaseException:
        if made is not None:
            _stop(made)
        return None


def mark(text):
    """Draws a line with a few words at this instant in every vramscope that watches. Does nothing when none does, and never waits for
    one: what it can not take now is kept for it, up to a bound, and counted beyond."""
    state = _state
    for client in list(state.clients) if state is not None else ():
        try:
            client.post({"event": "mark", "text": str(text)[:200]})
        except Exception:
            pass


def begin():
    """Starts the helper for the rest of the program, unless VRAMSCOPE_HELPER=off."""
    if os.environ.get("VRAMSCOPE_HELPER") == "off":
        return
    # Also by the name of the single file: the package's copy and that file are never both at work.
    if sys.modules.setdefault("vramscope_agent", sys.modules[__name__]) is not sys.modules[__name__]:
        return
    try:
        # Before the socket is there: a signal right after it would leave it behind.
        atexit.register(_stop)
        if start() is not None:
            os.register_at_fork(after_in_child=_after_fork)
    except KeyboardInterrupt:
        _stop()
        raise
    except BaseException:
        pass


if __name__ == "vramscope_agent":
    begin()
