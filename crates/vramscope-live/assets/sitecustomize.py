"""Starts the vramscope helper in every Python process of a job, then runs the sitecustomize that this file hides."""
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
try:
    from vramscope import _agent
    _agent.begin()
    if "VRAMSCOPE_CATCH" in os.environ:
        from vramscope import _catch
        _catch.begin_from_environment()
except Exception:
    pass
try:
    # Import the other one without this folder in sys.path, and restore the path so that child processes find this file too.
    _path = sys.path[:]
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _here]
    _me = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        if _me is not None:
            sys.modules["sitecustomize"] = _me
    finally:
        sys.path[:] = [p for p in _path if os.path.abspath(p or ".") != _here]
except Exception:
    pass
