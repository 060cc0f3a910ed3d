"""Writes a snapshot when a program fails: for `vramscope run --at-oom DIR` and `vramscope.on_oom(DIR)`.

From the first use of CUDA on, PyTorch records its newest allocations. A snapshot is written at the first out-of-memory error
(even if the program catches it), at an uncaught error, at SIGTERM and SIGINT, and when `vramscope snap` asks. The error, the exit
code and the program's own signal handling stay unchanged. A process without CUDA, such as a data loader's worker, is left alone.
"""
import atexit
import contextlib
import json
import os
import signal
import sys
import threading
import time

from . import _agent
from ._keep import APART, Keeper, described, is_out_of_memory, save, stacks

VARIABLE = "VRAMSCOPE_CATCH"
MAX_ENTRIES, MAX_SNAPSHOTS, MAX_BYTES = 100000, 8, 20 << 30
NOTHING = "no snapshot is written when this program fails: %s"
# Seconds after SIGTERM that a stuck program still gets, if SIGTERM alone would have ended it.
PATIENCE = 60


def _ends_by_ctrl_c():
    """Makes Python end by SIGINT, as after an uncaught Ctrl+C. Python does so only if the last code that it ran as a
    whole ended with KeyboardInterrupt. Our imports may have run other code since (namedtuple uses eval), so this runs one more."""
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        pass


class Settings:
    """What to catch, and the limits."""

    def __init__(self, folder, stacks="python", max_entries=MAX_ENTRIES, max_snapshots=MAX_SNAPSHOTS, max_bytes=MAX_BYTES, run="",
                 exceptions=True, signals=True, mark=""):
        if stacks not in ("python", "all", "none"):
            raise ValueError('stacks is %r; it is one of "python", "all" and "none"' % (stacks,))
        for name, value in (("max_entries", max_entries), ("max_snapshots", max_snapshots), ("max_bytes", max_bytes)):
            if value < 1:
                raise ValueError("%s is %r; it is at least 1" % (name, value))
        self.folder = os.path.abspath(folder)
        self.stacks, self.max_entries = stacks, int(max_entries)
        self.max_snapshots, self.max_bytes = int(max_snapshots), int(max_bytes)
        self.run, self.exceptions, self.signals, self.mark = run, exceptions, signals, mark


def why_not_writable(folder):
    """Why this user cannot write into a folder, or None. The folder need not exist yet."""
    there = folder
    while not os.path.lexists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return "%s is not a folder" % there
    import tempfile
    try:
        # Permissions alone do not tell: root may write everywhere, but not to a disk that is mounted to be read.
        tempfile.TemporaryFile(dir=there).close()
    except PermissionError:
        return "this user may not write to %s" % there
    except OSError as error:
        return "%s cannot be written to: %s" % (there, error.strerror)
    return None


_settings = None
_catcher = None


def begin_from_environment():
    """Starts catching with the settings of `vramscope run --at-oom`."""
    try:
        settings = Settings(**json.loads(os.environ[VARIABLE]))
        _leave(settings.mark and settings.mark + ".in")
        begin(settings)
    except Exception as error:
        _say(NOTHING % error)


def begin(settings):
    """Starts catching at the first use of CUDA, in this process and in processes forked before that. Never imports torch. The
    settings replace those of an earlier call."""
    global _settings
    is_first, _settings = _settings is None, settings
    torch = sys.modules.get("torch")
    if torch is not None and not getattr(getattr(torch, "__spec__", None), "_initializing", False):
        _on_torch(torch)
    elif is_first:
        sys.meta_path.insert(0, _WhenTorchComes())


def end():
    """Stops catching and recording."""
    global _settings, _catcher
    _settings = None
    if _catcher is not None:
        _catcher.let_go()
        _agent.stop_history(_catcher.torch)
    _catcher = None


def catches_signals():
    """True if the settings in force catch SIGTERM and Ctrl+C."""
    return _settings is not None and _settings.signals


def is_commanded():
    """True under `vramscope run --at-oom`, whose settings win."""
    return _settings is not None and _settings.run != ""


def keeper():
    """The Keeper of this process, or None if nothing is caught here."""
    return _catcher.keeper if _catcher is not None and _catcher.is_ours() else None


class _WhenTorchComes:
    """An import hook that calls _on_torch right after torch was imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._listen(spec)
                return spec
        return None

    def _listen(self, spec):
        loader = spec.loader
        run = getattr(loader, "exec_module", None)

        def exec_module(module):
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _on_torch(module)
        try:
            # Replace only the method, since other code may look at the loader.
            loader.exec_module = exec_module
        except AttributeError:
            pass


def _on_torch(torch):
    try:
        # Runs _on_cuda now if CUDA is initialized, else when it will be: recording initializes CUDA, which breaks later forks.
        torch.cuda._lazy_call(_on_cuda)
    except AttributeError:
        _say(NOTHING % "this torch has no CUDA, or is older than 1.11")
    except Exception as error:
        _say(NOTHING % error)


def _on_cuda():
    global _catcher
    try:
        before = _catcher if _catcher is not None and _catcher.is_ours() else None
        if _settings is None or (before is not None and before.settings is _settings):
            return
        catcher = Catcher(sys.modules["torch"], _settings)
        if before is not None:
            before.let_go()
        # Starting the history again would discard what is recorded.
        catcher.start(has_history=before is not None and before.history() == catcher.history())
        _catcher = catcher
        _leave(_settings.mark)
    except Exception as error:
        _say(NOTHING % ("%s: %s" % (type(error).__name__, error)))


def _leave(mark):
    """Makes a file that tells `vramscope run` how far a process came: into Python (.in), or to CUDA. The first process makes it."""
    if mark:
        with contextlib.suppress(OSError):
            open(mark, "x").close()


def _say(sentence):
    try:
        sys.stderr.write("vramscope: %s\n" % sentence)
    except Exception:
        pass


def last_error():
    """The error that ends the program, or None."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def is_interactive():
    return hasattr(sys, "ps1") or "IPython" in sys.modules


class Catcher:
    """The hooks of one process that uses CUDA."""

    def __init__(self, torch, settings):
        self.torch, self.settings = torch, settings
        self.pid = os.getpid()
        # The forking thread's signal mask before the fork.
        self.of_thread = threading.local()
        self.keeper = Keeper(torch, settings.folder, settings.max_snapshots, settings.max_bytes, settings.run)
        self.is_over = False
        # Out-of-memory errors so far; then the number of the one that has a snapshot, and its page.
        self.ooms = 0
        self.oom_page = (0, None)
        self.seen_error = None
        self.is_ending = False
        self.previous_hook = None
        # When Ctrl+C began to end the program.
        self.interrupted = None
        self.pipe = None
        self.is_seen = threading.Event()

    def start(self, has_history=False):
        if not has_history:
            self.start_history()
        _agent.history_of = self
        attach = getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is not None:
            attach(self.observe_oom)
        if self.settings.exceptions:
            self.previous_hook, sys.excepthook = sys.excepthook, self.hook
        atexit.register(self.at_exit)
        _agent.write_asked = self.asked
        if self.settings.signals and threading.current_thread() is threading.main_thread():
            self.listen()

    def start_history(self):
        _agent.record_history(self.torch, self.settings.max_entries, self.settings.stacks)

    def let_go(self):
        """Removes the hooks that can be removed; the others do nothing from now on."""
        self.is_over = True
        if _agent.history_of is self:
            _agent.history_of = None
        if sys.excepthook == self.hook:
            sys.excepthook = self.previous_hook
        atexit.unregister(self.at_exit)
        if _agent.write_asked == self.asked:
            _agent.write_asked = None
        self.forget_signals()

    def is_ours(self):
        return not self.is_over and os.getpid() == self.pid

    def history(self):
        return {"stacks": self.settings.stacks, "max_entries": self.settings.max_entries}

    def write(self, why, **facts):
        page = self.keeper.write(why, history=self.history(), **facts)
        if self.is_ending:
            self.die()
        return page

    # ------------------------------------------------------------ out of memory

    def observe_oom(self, device, size, limit, free):
        """Called by PyTorch between the failed request and the exception."""
        try:
            if not self.is_ours():
                return
            self.ooms += 1
            # Only the first: a program that catches the error may meet it a hundred times.
            if self.oom_page[1] is None:
                number = self.ooms
                facts = {"device": device, "requested_bytes": size, "limit_bytes": limit, "free_bytes": free}
                self.oom_page = (number, self.write("oom", oom=facts, stacks=stacks()))
        except BaseException:
            pass

    # ------------------------------------------------------------ uncaught errors

    def hook(self, kind, error, trace):
        for _ in range(2):
            try:
                if self.is_ours():
                    if isinstance(error, KeyboardInterrupt) and not is_interactive():
                        self.hold_ctrl_c()
                    self.uncaught(error)
                break
            except KeyboardInterrupt:
                # The second SIGINT came before it was held, so try again; a much later one ends the snapshot.
                continue
        self.previous_hook(kind, error, trace)

    def hold_ctrl_c(self):
        """Passes over a second SIGINT within a second: whoever signals the process group reaches this process twice, as `vramscope
        run` passes on what it gets. The program is ending; the second one would end its last words and the snapshot."""
        if self.interrupted is None:
            self.interrupted = time.monotonic()
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self.again)

    def again(self, number, frame):
        if time.monotonic() - self.interrupted > APART:
            signal.default_int_handler(number, frame)

    def at_exit(self):
        """For programs that replaced our excepthook, or that end themselves after a signal."""
        if not self.is_ours():
            return
        if isinstance(last_error(), KeyboardInterrupt) and not is_interactive():
            self.hold_ctrl_c()
        if self.pipe is not None:
            try:
                # The thread answers once it has handled every earlier signal.
                os.write(self.pipe[1], b"\0")
                self.is_seen.wait(PATIENCE)
            except OSError:
                pass
        if not self.settings.exceptions:
            return
        error = last_error()
        if error is not None and not is_interactive():
            self.uncaught(error)
            if isinstance(error, KeyboardInterrupt):
                _ends_by_ctrl_c()

    def uncaught(self, error):
        try:
            if error is self.seen_error or not isinstance(error, BaseException):
                return
            self.seen_error = error
            is_oom = is_out_of_memory(error)
            number, page = self.oom_page
            if is_oom and page is not None and number == self.ooms:
                page["error"] = described(error)
                save(page)
            elif isinstance(error, KeyboardInterrupt):
                self.signalled("sigint")
            else:
                self.write("oom" if is_oom else "exception", error=described(error))
        except Exception:
            pass

    # ------------------------------------------------------------ when it is asked for

    def asked(self):
        page = self.write("asked", stacks=stacks())
        if page is None or "snapshot" not in page:
            return {"error": (page or {}).get("not_kept", "a snapshot is being written")}
        return {"path": os.path.join(self.settings.folder, page["snapshot"]), "seconds": page["seconds"]["snapshot"]}

    # ------------------------------------------------------------ signals

    def listen(self):
        """Watches SIGTERM and SIGINT. If the program has no handler for SIGTERM, it gets ours. Python's C handler also wakes a
        thread for every signal, even if the program handles the signal itself or its main thread is busy for long."""
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self.on_term)
        read, write = os.pipe()
        os.set_blocking(write, False)
        previous = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if previous != -1:
            # An event loop uses the wakeup descriptor.
            signal.set_wakeup_fd(previous)
            os.close(read)
            os.close(write)
        else:
            self.pipe = (read, write)
            threading.Thread(target=self.watch, name="vramscope-signals", daemon=True).start()
        os.register_at_fork(before=self.before_fork, after_in_parent=self.restore_mask, after_in_child=self.after_fork)

    def forget_signals(self):
        try:
            if signal.getsignal(signal.SIGTERM) == self.on_term:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self.pipe is not None:
                read, write = self.pipe
                other = signal.set_wakeup_fd(-1)
                if other != write:
                    signal.set_wakeup_fd(other)
                else:
                    # This ends the thread.
                    os.close(write)
                self.pipe = None
        except ValueError:
            # Not the main thread, which alone may change handlers. Ours do nothing from now on.
            pass

    def before_fork(self):
        """Delays signals until the child has its own handlers: through the shared pipe they would end the parent."""
        try:
            if self.is_ours():
                self.of_thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        except BaseException:
            pass

    def restore_mask(self):
        try:
            mask, self.of_thread.mask = getattr(self.of_thread, "mask", None), None
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        except BaseException:
            pass

    def after_fork(self):
        """Detaches a forked child, whose signals must not reach its parent's pipe."""
        try:
            if os.getpid() != self.pid and not self.is_over:
                self.is_over = True
                pipe = self.pipe
                self.forget_signals()
                if pipe is not None:
                    os.close(pipe[0])
        except BaseException:
            pass
        self.restore_mask()

    def signalled(self, why):
        """Writes a snapshot, unless the last one is younger than APART seconds."""
        with self.keeper.lock:
            if self.keeper.seconds_since_last() >= APART:
                return self.write(why, stacks=stacks())
        return None

    def on_term(self, number, frame):
        """Replaces the default action of SIGTERM, which ends the process."""
        self.is_ending = True
        if self.is_ours():
            if self.keeper.is_busy and self.keeper.lock.acquire(blocking=False):
                # This thread is writing a snapshot; `write` ends the process after it.
                self.keeper.lock.release()
                return
            try:
                self.signalled("sigterm")
            except Exception:
                pass
        self.die()

    def die(self):
        """Ends the process by SIGTERM's default action."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        else:
            import ctypes
            restore = ctypes.CDLL(None).signal
            restore.argtypes, restore.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
            restore(int(signal.SIGTERM), None)
        os.kill(os.getpid(), signal.SIGTERM)

    def watch(self):
        """The thread that signals wake: it reads their numbers from the pipe."""
        read = self.pipe[0]
        while True:
            try:
                data = os.read(read, 64)
                if not data:
                    os.close(read)
                    return
                for number in sorted(set(data), reverse=True):
                    if number == 0:
                        self.is_seen.set()
                    elif not self.is_ours():
                        continue
                    elif number == signal.SIGINT:
                        self.signalled("sigint")
                    elif number == signal.SIGTERM:
                        self.term_from_thread()
            except Exception:
                time.sleep(0.1)

    def term_from_thread(self):
        ends = signal.getsignal(signal.SIGTERM) == self.on_term
        if ends and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0):
            # SIGALRM ends the process if CUDA never answers, whoever holds the GIL.
            signal.alarm(PATIENCE)
        self.signalled("sigterm")
        if ends:
            # The main thread's handler ends the process, unless a long call delays it.
            time.sleep(1.0)
            self.die()
