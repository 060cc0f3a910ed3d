"""The vramscope helper: lets vramscope see PyTorch's own memory figures in this process.

    import vramscope_agent        # one line, anywhere; or start the program with: vramscope run train.py

One file, no dependencies, Python 3.8 or newer. It opens a socket that only this user can reach and sleeps until vramscope
connects. It imports nothing heavy: PyTorch is looked up among the modules the program imported itself, a device is asked only when
it has a context already, and no error of the helper reaches the program.

What a connected vramscope may ask for: memory statistics some times a second, the blocks without traces, recording of the
allocation history on or off, a snapshot now or at the next out-of-memory error. Nothing it sends is ever run or unpickled.
"""
import atexit
import json
import os
import socket
import stat
import struct
import sys
import threading
import time

VERSION = 1
# One line of JSON each way; a longer request is not ours.
LONGEST_REQUEST = 65536
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
        self.at_oom = False
        self.has_observer = False


_state = None


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
    target = os.path.join(_private_folder(os.path.join(folder(), "snapshots")),
                          "%d-%s-%d.pickle" % (os.getpid(), kind, time.time_ns() // 1000000))
    part = target + ".part"
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    start = time.perf_counter()
    torch.cuda.memory._dump_snapshot(part)
    os.rename(part, target)
    return {"path": target, "seconds": round(time.perf_counter() - start, 4)}


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


def _history(torch, request):
    record = torch.cuda.memory._record_memory_history
    if not request.get("on"):
        try:
            record(enabled=None)
        except TypeError:
            record(False)
        return {"history": False}
    entries = min(max(int(request.get("max_entries", 100000)), 1000), MOST_ENTRIES)
    stacks = "all" if request.get("cpp") else "python"
    try:
        record(enabled="all", context="all", stacks=stacks, max_entries=entries)
    except TypeError:
        # PyTorch 2.0 had another set of arguments.
        record(True, trace_alloc_max_entries=entries, trace_alloc_record_context=True)
    return {"history": True, "max_entries": entries}


def _observe_oom(torch, on):
    state = _state
    state.at_oom = bool(on)
    if on and not state.has_observer:
        def observer(device, size, total, free):
            # Called between the failed request and the exception, with the cache given back already. It can not be taken
            # away again, so it looks whether it is wanted.
            if state is not _state or not state.at_oom:
                return
            try:
                answer = _snapshot_to(torch, "oom")
                answer.update({"event": "oom", "device": device, "requested": size, "free": free})
                _tell_all(answer)
            except BaseException:
                pass
        torch._C._cuda_attach_out_of_memory_observer(observer)
        state.has_observer = True
    return {"at_oom": state.at_oom}


def _answer(request):
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
        return _snapshot_to(torch, "now")
    return _observe_oom(torch, request.get("on"))


class _Client:
    """A connected vramscope, served by a thread of its own."""

    def __init__(self, connection):
        self.connection = connection
        self.lock = threading.Lock()
        self.period = 0.1
        self.told = None

    def send(self, message):
        message.setdefault("t", time.time_ns() // 1000)
        data = (json.dumps(message, default=str) + "\n").encode()
        with self.lock:
            self.connection.sendall(data)

    def sample(self):
        torch = _torch()
        if torch is None:
            return
        devices = _live_devices(torch)
        if devices != self.told:
            self.told = devices
            self.send({"devices": {str(i): _uuid(torch, i) for i in devices}})
        now = time.time_ns() // 1000
        figures = {str(i): _statistics(torch, i) for i in devices}
        if figures:
            self.send({"t": now, "stats": figures})

    def handle(self, line):
        request = json.loads(line)
        if request.get("cmd") == "hz":
            self.period = 1.0 / min(max(float(request.get("hz", 10)), SLOWEST_HZ), FASTEST_HZ)
            return
        try:
            answer = _answer(request)
        except Exception as error:
            answer = {"error": "%s: %s" % (type(error).__name__, str(error)[:300])}
        answer["re"] = request.get("id")
        self.send(answer)

    def serve(self):
        self.connection.settimeout(5.0)
        self.send(_hello())
        buffer, due = b"", time.monotonic()
        while True:
            wait = due - time.monotonic()
            if wait <= 0:
                self.connection.settimeout(5.0)
                try:
                    self.sample()
                except (OSError, ValueError):
                    raise
                except Exception as error:
                    self.send({"error": "%s: %s" % (type(error).__name__, str(error)[:300])})
                    due = time.monotonic() + 1.0
                due = max(due + self.period, time.monotonic())
                continue
            self.connection.settimeout(wait)
            try:
                data = self.connection.recv(4096)
            except socket.timeout:
                continue
            if not data:
                return
            buffer += data
            if len(buffer) > LONGEST_REQUEST:
                return
            self.connection.settimeout(5.0)
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                self.handle(line)


def _peer_is_us(connection):
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", data)[1] in (os.getuid(), 0)


def _tell_all(message):
    state = _state
    for client in list(state.clients) if state else ():
        try:
            client.send(dict(message))
        except Exception:
            pass


def _serve(state, connection):
    client = None
    try:
        if _peer_is_us(connection):
            client = _Client(connection)
            state.clients.append(client)
            client.serve()
    except BaseException:
        pass
    finally:
        if client in state.clients:
            state.clients.remove(client)
        try:
            connection.close()
        except BaseException:
            pass


def _listen(state):
    while True:
        try:
            connection, _ = state.listener.accept()
        except BaseException:
            return
        try:
            threading.Thread(target=_serve, args=(state, connection), name="vramscope-client", daemon=True).start()
        except BaseException:
            # No more threads at the end of the program.
            return


def _stop(state=None):
    global _state
    state = state or _state
    if state is None:
        return
    try:
        if state.listener is not None:
            state.listener.close()
        # A forked child must not take away its parent's socket.
        if state.path and state.pid == os.getpid():
            os.unlink(state.path)
    except BaseException:
        pass
    if state is _state:
        _state = None


def _after_fork():
    """A forked child has the parent's sockets but none of its threads: let go of them and listen under its own number."""
    global _state
    try:
        old, _state = _state, None
        if old is not None:
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


def start():
    """Begins to listen; returns the socket's path, or None when that is not possible. Calling it again changes nothing."""
    global _state
    state = None
    try:
        if _state is not None and _state.pid == os.getpid():
            return _state.path
        state = _State()
        place = _private_folder(folder())
        _sweep(place)
        path = os.path.join(place, "%d.sock" % state.pid)
        try:
            os.unlink(path)
        except OSError:
            pass
        state.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        state.listener.set_inheritable(False)
        state.path = path
        state.listener.bind(path)
        os.chmod(path, 0o600)
        state.listener.listen(2)
        _state = state
        threading.Thread(target=_listen, args=(state,), name="vramscope-agent", daemon=True).start()
        return path
    except KeyboardInterrupt:
        # Meant for the program, which has not begun yet: it ends as it would without us.
        if state is not None and state.path:
            _stop(state)
        raise
    except BaseException:
        return None


def mark(text):
    """Draws a line with a few words at this instant in every vramscope that watches. Does nothing when none does."""
    try:
        if _state is not None and _state.clients:
            _tell_all({"event": "mark", "text": str(text)[:200]})
    except BaseException:
        pass


if os.environ.get("VRAMSCOPE_HELPER") != "off":
    if start() is not None:
        try:
            atexit.register(_stop)
            os.register_at_fork(after_in_child=_after_fork)
        except KeyboardInterrupt:
            _stop()
            raise
        except BaseException:
            pass
