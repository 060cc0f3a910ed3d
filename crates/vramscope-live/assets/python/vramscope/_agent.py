"""The vramscope helper: lets vramscope see PyTorch's own memory figures in this process.

    import vramscope_agent        # one line, anywhere; or start the program with: vramscope run train.py

This is one file without dependencies, for Python 3.8 or newer. `vramscope agent` prints it; in the Python package it is
vramscope._agent, and begin() starts it. It opens a socket that only this user can reach, and sleeps until vramscope connects. It
never imports PyTorch: it uses the torch that the program imported. It queries only devices that already have a CUDA context. None
of its errors reach the program.

A connected vramscope can ask for memory statistics (up to 50 times a second), for the blocks without traces, to turn the recording
of the allocation history on or off, and for a snapshot: now, or at the next out-of-memory error (once for each request). The helper
never runs or unpickles what it receives, and the program never waits for it.
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
# Bytes of one message, a line of JSON. We disconnect a client that sends more, and vramscope takes no longer answer.
LONGEST_REQUEST = 65536
LONGEST_ANSWER = 32 << 20
# Each client costs the program a thread and a file descriptor.
MOST_CLIENTS = 4
# Bytes of messages that wait for a busy vramscope. Further ones are dropped; dropped marks are counted.
MOST_WAITING = 65536
# Seconds after which we disconnect a vramscope that reads nothing.
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
    """The helper's state in one process. A forked child makes its own."""

    def __init__(self):
        self.pid = os.getpid()
        self.path = None
        self.listener = None
        self.clients = []
        self.lock = threading.Lock()
        # Clients that want a snapshot at the next out-of-memory error.
        self.at_oom = []
        self.has_observer = False
        self.is_over = False


_state = None
# A function that writes a requested snapshot. vramscope._catch sets it, to keep the snapshot in its own folder.
write_asked = None
# The object that needs the allocation history (a Catcher or a `record`), so that no client turns it off.
history_of = None


def folder():
    """The folder of this user's sockets, which nobody else can enter."""
    chosen = os.environ.get("VRAMSCOPE_DIR")
    if chosen:
        return chosen
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        return os.path.join(runtime, "vramscope")
    return "/tmp/vramscope-%d" % os.getuid()


def _private_folder(path):
    """Makes the folder. Refuses a link and a folder of another user, who could have put it there for us."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise PermissionError("%s is not a folder of this user" % path)
    if info.st_mode & 0o077:
        os.chmod(path, 0o700)
    return path


def _torch():
    torch = sys.modules.get("torch")
    # Another thread may be importing torch: its parts then appear one by one.
    return torch if torch is not None and hasattr(torch, "cuda") and hasattr(torch, "_C") else None


def _live_devices(torch):
    """Devices that have a CUDA context. Querying any other would create one, of about half a gigabyte."""
    if not torch.cuda.is_initialized():
        return []
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return [torch.cuda.current_device()]
    return [i for i in range(torch.cuda.device_count()) if has_context(i)]


def _statistics(torch, device):
    """Memory statistics of a device. The internal nested dict costs a seventh of `memory_stats`, which flattens and sorts it."""
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
    """Pinned host memory in bytes: what PyTorch's allocator owns, and what tensors use. None if PyTorch does not count it."""
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
    """Writes a snapshot into our own folder."""
    place = _private_folder(os.path.join(folder(), "snapshots"))
    target = os.path.join(place, "%d-%s-%d.pickle" % (os.getpid(), kind, time.time_ns() // 1000000))
    start = time.perf_counter()
    write_snapshot(torch, target)
    return {"path": target, "seconds": round(time.perf_counter() - start, 4)}


class _Bounded:
    """A file that raises OSError once more than `most` bytes are written."""

    def __init__(self, file, most):
        self.file, self.left = file, most

    def write(self, data):
        # pickle passes large values as buffers, whose len() may not be bytes.
        self.left -= len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        if self.left < 0:
            raise OSError(errno.EFBIG, "the snapshot is larger than what may be written")
        return self.file.write(data)


@contextlib.contextmanager
def _without_compiler(torch):
    """Keeps a snapshot from importing torch._inductor, which takes six seconds. PyTorch looks there for the names of compiled
    frames. A program that has not imported it has compiled nothing, so an empty module stands in."""
    if "_inductor" in vars(torch):
        yield
        return
    stand_in = types.ModuleType("torch._inductor")
    torch._inductor = stand_in
    try:
        yield
    finally:
        # Another thread may have imported the real one meanwhile.
        if vars(torch).get("_inductor") is stand_in:
            del torch._inductor


def write_snapshot(torch, target, most=None):
    """Writes a snapshot; the file gets its name only when it is complete. `most`: its size limit in bytes."""
    place, name = os.path.split(target)
    part = os.path.join(place, "." + name + ".part")
    _sweep_parts(place)
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "wb") as file, _without_compiler(torch):
            if most is not None and hasattr(torch.cuda.memory, "_snapshot"):
                # As _dump_snapshot does it, but with a limit.
                import pickle
                pickle.dump(torch.cuda.memory._snapshot(), _Bounded(file, most), protocol=4)
            else:
                torch.cuda.memory._dump_snapshot(part)
        os.rename(part, target)
    except BaseException:
        os.unlink(part)
        raise


def _blocks(torch):
    """Segments and blocks without traces, in the format of a snapshot."""
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
            # PyTorch before 2.0 gives no block addresses; the blocks of a segment follow one another without gaps.
            entry.setdefault("address", address)
            address = entry["address"] + entry.get("size", 0)
            slim["blocks"].append(entry)
        out.append(slim)
    return {"segments": out, "device_traces": []}


def record_history(torch, max_entries, stacks="python"):
    """Makes PyTorch record the newest `max_entries` allocator events. `stacks`: "python", "all" (C++ too) or "none"."""
    import inspect
    record = torch.cuda.memory._record_memory_history
    # No stacks for frees: they make torch.utils.checkpoint(use_reentrant=False) raise SystemError (seen with PyTorch 2.11).
    words = {"enabled": "all", "context": None if stacks == "none" else "alloc", "stacks": "all" if stacks == "all" else "python",
             "max_entries": max_entries}
    try:
        # Since PyTorch 2.9: also record the profiler ranges of other threads than this one.
        if "global_record_annotations" in inspect.signature(record).parameters:
            words["global_record_annotations"] = True
    except (TypeError, ValueError):
        pass
    try:
        record(**words)
    except TypeError:
        # PyTorch 2.0 has other arguments.
        record(True, trace_alloc_max_entries=max_entries, trace_alloc_record_context=stacks != "none")


def stop_history(torch):
    """Stops the recording and discards what was recorded."""
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
            # PyTorch calls this between the failed request and the exception, after it released its cache. An observer cannot
            # be detached, so this one checks whether a client wants a snapshot. A request is good for one snapshot, since a
            # program that catches the error may meet it a hundred times.
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
    """A connected vramscope. It has its own thread, and no other thread waits for it."""

    def __init__(self, connection):
        self.connection = connection
        connection.setblocking(False)
        # Hold it only for moments: the program's own threads take it in `mark`.
        self.lock = threading.Lock()
        self.waiting = bytearray()
        self.dropped = 0
        self.moved = time.monotonic()
        self.period = 0.1
        self.told = None

    def post(self, message, longest=MOST_WAITING):
        """Sends what the socket takes now; the thread sends the rest. Drops the message and returns False if too much waits."""
        message = dict(message)
        message.setdefault("t", time.time_ns() // 1000)
        data = (json.dumps(message, default=str) + "\n").encode()
        # With a timeout: a signal handler may call this in the thread that holds the lock.
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
        # poll, not select: select fails for file descriptors above 1023.
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        self.post(_hello())
        buffer, due = b"", time.monotonic()
        while True:
            now = time.monotonic()
            if self.waiting:
                # Do not query PyTorch or take a request before the last answer is sent.
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
            # At most 0.2 s, so that unsent marks need not wait for the next sample.
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
    """Sends the reason without waiting, and disconnects."""
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
            # Out of file descriptors or memory: there may be some later.
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
            # Python starts no thread while it shuts down.
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
                # Send the last marks.
                client.push()
            except BaseException:
                pass
        _remove(state)
    if state is _state:
        _state = None


def _remove(state):
    """Closes and deletes the socket, even if another Ctrl+C interrupts this."""
    for _ in range(3):
        try:
            state.is_over = True
            # Wait for a thread that is in _bind.
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
    """A forked child inherits the parent's sockets but none of its threads: close them and listen under its own pid."""
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
    """Removes the sockets of killed processes. A pid that does not run here may run in another container, so the socket must also
    refuse a connection."""
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
    """Removes partial snapshots that killed programs left."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        try:
            # Judged by age, not by the pid in its name, which may be of another container. No snapshot takes an hour.
            if name.endswith(".part") and time.time() - os.lstat(path).st_mtime > 3600:
                os.unlink(path)
        except OSError:
            pass


def _outermost(frame):
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _startup():
    """The outermost frame of Python's startup if a .pth file or sitecustomize imports the helper, else None."""
    frame = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "site":
        frame = frame.f_back
    return _outermost(frame) if threading.current_thread() is threading.main_thread() else None


def _wait_for_program(startup):
    """Waits until the program's own code runs. A Ctrl+C before that ends Python without calling atexit functions."""
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
    """Creates the socket and listens. False if that is done already or the program ends."""
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
    """Listens for vramscope; returns the socket's path, or None if that fails. Called during Python's startup, it creates the
    socket only when the program begins to run. Further calls change nothing."""
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
        # Ctrl+C is for the program, which has not begun: it must end as it would without us.
        if made is not None:
            _stop(made)
        raise
    except BaseException:
        if made is not None:
            _stop(made)
        return None


def mark(text):
    """Shows a line with this text (at most 200 characters) at this instant in every connected vramscope. Never waits for one: marks
    that cannot be sent now are kept up to a limit; more are dropped and counted."""
    state = _state
    for client in list(state.clients) if state is not None else ():
        try:
            client.post({"event": "mark", "text": str(text)[:200]})
        except Exception:
            pass


def begin():
    """Starts the helper until the program ends, unless VRAMSCOPE_HELPER=off."""
    if os.environ.get("VRAMSCOPE_HELPER") == "off":
        return
    # Registered under the single file's name too, so that this file and the package's copy never both run.
    if sys.modules.setdefault("vramscope_agent", sys.modules[__name__]) is not sys.modules[__name__]:
        return
    try:
        # Before start(): a signal right after it would leave the socket behind.
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
