"""In a forked child: the script, exactly as ``python script.py`` would run it.

The interpreter is the fork server's, with its modules; everything that belongs to one run is made anew, and its end is
the interpreter's own in the order of ``Py_FinalizeEx``, except that modules of libraries are not taken apart.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # no stubs: it is private; docs/speed.md tells why it is used
import atexit
import gc
import os
import signal
import sys
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from itertools import takewhile
from types import CodeType, ModuleType, TracebackType
from typing import NoReturn

from trials.agent.forks import seeding
from trials.agent.forks.script import Script, script_of
from trials.agent.supervision.starting import Start
from trials.files import read_bytes, to_json, write_atomically
from trials.processes.libc import LIBC

FILE_IMPORTS = "imports.json"  # in the attempt's folder: what the first trial of an experiment imported
EXIT_FLUSH_FAILED = 120  # of the interpreter, where standard output cannot be written
EXIT_NO_SCRIPT = 2
SHOWS_CODE = (3, 13)  # the version from which on tracebacks show the lines of what -c was given


def become(start: Start) -> NoReturn:
    """Run the script of ``start`` in this process, and end it as the interpreter would."""
    script = script_of(start.command)
    _renew_process(start)
    main = _new_main()
    status = _run(script, main, start.code)
    _finish(status, start)


# ── the state of a new process ──────────────────────────────────────────────────────────────────
def _renew_process(start: Start) -> None:
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    for name in start.removed:
        os.environ.pop(name, None)
    for name, text in start.changed.items():
        os.environ[name] = text
    sys.orig_argv[:] = start.command
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]  # noqa: PTH109  kept for children that are spawned
        processes.current_process().authkey = os.urandom(32)
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]  # chosen by TMPDIR, which is the trial's own now
    start.restore(start.variables)
    seeding.seed(start.seed)
    gc.enable()


def _new_main() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=sys.modules["builtins"])
    del sys.modules["__main__"]
    sys.modules["__main__"] = main  # the last one: what the script imports comes after it
    return main


def _imported() -> list[str]:
    """What was imported since the script began, the newest first.

    Looks at nothing older: what a process looks at, it gets its own copy of.
    """
    return list(takewhile(lambda name: name != "__main__", reversed(sys.modules)))


# ── running ─────────────────────────────────────────────────────────────────────────────────────
def _run(script: Script, main: ModuleType, code: CodeType | None) -> int:
    """The exit code; minus a signal where that should end the process. ``code`` of the script, if it is known."""
    try:
        _execute(script, main, code)
    except SystemExit as error:
        return _code_of(error)
    except KeyboardInterrupt as error:
        _report(error)
        return -signal.SIGINT
    except BaseException as error:  # noqa: BLE001  this is what the interpreter itself does with it
        _report(error)
        return 1
    return 0


def _execute(script: Script, main: ModuleType, known: CodeType | None) -> None:
    sys.argv = list(script.arguments)
    if script.kind == "module":
        _put_first(os.getcwd())  # noqa: PTH109  as the interpreter does
        import runpy

        # What the interpreter calls for -m; run_module() would leave other names behind.
        runpy._run_module_as_main(script.name)  # type: ignore[attr-defined]  # noqa: SLF001  not public
        return
    if script.kind == "code":
        _put_first("")
        main.__dict__["__loader__"] = sys.modules["_frozen_importlib"].BuiltinImporter
        source = f"{script.name}\n"
        if sys.version_info >= SHOWS_CODE:
            import linecache

            linecache.cache["<string>"] = (len(source), None, source.splitlines(keepends=True), "<string>")
        exec(compile(source, "<string>", "exec", dont_inherit=True), main.__dict__)  # noqa: S102
        return
    folder = os.getcwd()  # noqa: PTH109  as the kernel has it, without links
    path = os.path.join(folder, script.name)  # noqa: PTH118  with all its dots, as the interpreter does
    code = known if known is not None and known.co_filename == path else _code_of_file(path)
    if "/" in script.name or os.path.islink(path):  # noqa: PTH114
        folder = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
    _put_first(folder)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    exec(code, main.__dict__)  # noqa: S102


def _code_of_file(path: str) -> CodeType:
    try:
        source = read_bytes(path)
    except OSError as error:
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n")
        raise SystemExit(EXIT_NO_SCRIPT) from None
    code: CodeType = compile(source, path, "exec", dont_inherit=True)
    return code


def _put_first(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)


def _code_of(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stdout.flush()
    sys.stderr.write(f"{error.code}\n")
    return 1


def _report(error: BaseException) -> None:
    """As the interpreter does, by the script's own hook if it has one, without the frames that led to the script."""
    trace = _own(error.__traceback__)
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    try:
        sys.excepthook(type(error), error, trace)
    except BaseException:  # noqa: BLE001  whatever the script's hook raises, too
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(*sys.exc_info())
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, trace)


def _own(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


# ── ending ──────────────────────────────────────────────────────────────────────────────────────
def _finish(status: int, start: Start) -> NoReturn:
    if start.learn and status == 0:  # one that fails has perhaps not come to what others import
        _write_imports(start.folder)
    threading = sys.modules.get("threading")
    if threading is not None:
        # What the interpreter does first of all when it ends: there is no public way to ask for it.
        threading._shutdown()  # noqa: SLF001  waits for threads that are no daemons
    atexit._run_exitfuncs()  # noqa: SLF001  no public way to ask for it
    status = _flush(status)
    _drop_own_modules(f"{start.work}{os.sep}")
    status = _flush(status)
    LIBC.fflush(None)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _flush(status: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError, AttributeError):
            status = status if stream is sys.stderr else EXIT_FLUSH_FAILED
    return status


def _drop_own_modules(prefix: str) -> None:
    """What the script's modules hold is let go, so that open files are written and finalizers run."""
    for name in ("last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)
    own = [name for name in _imported() if str(getattr(sys.modules[name], "__file__", "")).startswith(prefix)]
    for name in ["__main__", *own]:
        module = sys.modules.pop(name, None)
        if isinstance(module, ModuleType):
            _clear(module)
    gc.collect()


def _clear(module: ModuleType) -> None:
    """In the interpreter's order: private names first."""
    for name in sorted(module.__dict__, key=lambda name: not name.startswith("_")):
        if name != "__builtins__":
            module.__dict__[name] = None


def _write_imports(folder: str) -> None:
    """What of the libraries the script has imported, in that order; nothing of its own."""
    roots = tuple(f"{folder}{os.sep}" for folder in sys.path[1:] if folder)
    work = f"{folder}{os.sep}"
    found = []
    for name in reversed(_imported()):
        origin = str(getattr(sys.modules[name], "__file__", None) or "")
        if origin.startswith(roots) and not origin.startswith(work):
            found.append(name)
    with suppress(OSError):  # else the next trial tells it
        write_atomically(f"{folder}/{FILE_IMPORTS}", to_json({"modules": found}))
