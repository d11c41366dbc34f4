"""A forked trial does what ``python script.py`` does: each script runs both ways, and both must say the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trials.fake_service import FakeService

pytestmark = pytest.mark.usefixtures("agent")

WHO_AM_I = """
import os, sys, __main__
print(__name__, __file__, __spec__, __package__, __doc__, __cached__, type(__loader__).__name__, __annotations__)
print(sorted(vars()), __builtins__ is sys.modules["builtins"])
print(sys.argv, sys.path, os.getcwd(), __main__ is sys.modules["__main__"], __main__.__dict__ is globals())
print(sys.flags, sys.orig_argv[1:], sys.executable, sys.stdin.read(), sys.dont_write_bytecode)
print({n: t for n, t in sorted(os.environ.items()) if n != "TUNER_NONCE"})
"""
STREAMS = """
import os, resource, sys
print(resource.getrlimit(resource.RLIMIT_NOFILE))
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.write_through)
print(os.isatty(1), sys.getrecursionlimit(), sorted(os.listdir("/proc/self/fd"))[:-1])
os.write(1, b"raw\\n"); print("after raw")
"""
SIGNALS = """
import gc, signal, threading, warnings, logging
print([(n.name, str(signal.getsignal(n))[:30]) for n in sorted(signal.valid_signals(), key=int)
       if isinstance(n, signal.Signals)])
print(signal.set_wakeup_fd(-1), signal.pthread_sigmask(signal.SIG_BLOCK, []), gc.isenabled(), gc.get_threshold())
print(threading.main_thread() is threading.current_thread(), threading.active_count(), logging.root.handlers)
print(len(warnings.filters))
"""
TRACEBACK = """
def outer():
    inner()


def inner():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("what went wrong") from error

outer()
"""
HOOK = """
import sys, traceback
def hook(kind, error, trace):
    print("hook", kind.__name__, error, [f.name for f in traceback.extract_tb(trace)])
sys.excepthook = hook
def fail(): raise RuntimeError("x")
fail()
"""
ENDING = """
import atexit, threading, sys, weakref
class Kept:
    def __del__(self): print("deleted")
kept = Kept()
file = open("unclosed.txt", "w"); file.write("everything")
atexit.register(print, "first registered")
atexit.register(print, "last registered")
def late():
    import time; time.sleep(0.05); print("thread")
threading.Thread(target=late).start()
weakref.finalize(kept, print, "finalized")
print("end of script")
"""
MULTIPROCESSING = """
import multiprocessing, os, sys
def work(number):
    return number * number, __name__, os.path.basename(sys.argv[0])
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(method, pool.map(work, range(3)))
"""
IMPORTING = """
import sys
import helper, package.part
print(helper.where(), package.part.__name__, helper.__file__)
import pickle, dataclasses
@dataclasses.dataclass
class Point: x: int = 1
print(pickle.loads(pickle.dumps(Point())), Point.__module__)
"""
HELPER = "import sys\ndef where(): return sys._getframe(1).f_code.co_filename\n"

AT_ONCE = 6
CASES = {
    "identity": WHO_AM_I,
    "streams": STREAMS,
    "signals": SIGNALS,
    "traceback": TRACEBACK,
    "hook": HOOK,
    "ending": ENDING,
    "multiprocessing": MULTIPROCESSING,
    "importing": IMPORTING,
    "syntax error": "print(1)\nif True print(2)\n",
    "exit with text": "import sys; sys.exit('the reason')",
    "exit with a code": "import sys; print('x'); sys.exit(7)",
    "exit with a large code": "import sys; sys.exit(-1)",
    "exit with nothing": "import sys; sys.exit()",
    "exit at once": "import os; print('x'); os._exit(3)",
    "exit in atexit": "import atexit, sys; atexit.register(lambda: 1/0); print('x')",
    "abort": "import os; os.abort()",
    "own signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "interrupt": "raise KeyboardInterrupt",
    "closed stdout": "import sys; sys.stdout.close()",
    "exception in a thread": "import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start()\nt.join()",
    "group of exceptions": "raise ExceptionGroup('several', [ValueError(1), TypeError('x')])",
    "print stack": "import traceback\ndef f(): return [x.name for x in traceback.extract_stack()][-2:]\nprint(f())",
}


COMMANDS = {
    "arguments": ("python", "train.py", "--flag", "a b", ""),
    "module": ("python", "-m", "train", "x"),
    "module of a package": ("python", "-m", "package.part"),
    "no such module": ("python", "-m", "no.such.module"),
    "code": ("python", "-c", "import train as entry; print(entry.__name__)", "1"),
    "path with a dot": ("python", "./train.py"),
    "path in a folder": ("python", "package/part.py"),
    "missing file": ("python", "missing.py"),
}
PACKAGE = {"package/part": "import sys; print(sys.path[0], sys.argv, __name__, __package__)", "package/__init__": ""}


def run_both_ways(service: FakeService, *, script: str, name: str, **spec: Any) -> None:
    code = service.code(train=script, helper=HELPER, **PACKAGE)
    for number, isolation in enumerate(("fork", "spawn"), start=1):
        service.launch(
            script, nonce=f"{name}-{isolation}", number=number, isolation=isolation, code_digest=code, **spec
        )


def outcome(service: FakeService, *, name: str, number: int, isolation: str) -> tuple[Any, ...]:
    nonce = f"{name}-{isolation}"
    record = service.wait_for_exit(nonce).exit
    assert record.isolation == isolation, record.why_spawned
    folder = service.folder(nonce, number=number)
    texts = [_plain(folder, stream) for stream in ("stdout.log", "stderr.log")]
    files = {path.name: path.read_text() for path in (folder / "work").glob("*.txt")}
    return record.code, record.signal, *texts, files


def _plain(folder: Path, stream: str) -> str:
    path = folder / stream
    text = path.read_text().replace(str(folder), "ATTEMPT") if path.exists() else ""
    return re.sub(r"0x[0-9a-f]{6,}", "0x", text.replace("'TUNER_TRIAL_NUMBER': '2'", "'TUNER_TRIAL_NUMBER': '1'"))


def differences(service: FakeService, names: Iterable[str]) -> list[str]:
    found = []
    for name in names:
        forked, plain = (
            outcome(service, name=name, number=n, isolation=i) for n, i in enumerate(("fork", "spawn"), start=1)
        )
        if forked != plain:
            found.append(f"{name}:\n  forked {forked}\n  plain  {plain}")
    return found


# Where metrics are read from the output, the fork server has not imported the SDK, and little else.
@pytest.mark.parametrize("pattern", [None, r"loss=(?P<loss>\S+)"], ids=["by the SDK", "by a pattern"])
def test_a_forked_script_does_as_a_plain_one(service: FakeService, pattern: str | None) -> None:
    found = []
    cases = [(name.replace(" ", "-"), script) for name, script in CASES.items()]
    for begin in range(0, len(cases), AT_ONCE):
        some = dict(cases[begin : begin + AT_ONCE])
        for name, script in some.items():
            run_both_ways(service, script=script, name=name, metrics_pattern=pattern)
        found += differences(service, some)

    assert found == []


def test_every_form_of_the_command_is_read_as_the_interpreter_reads_it(service: FakeService) -> None:
    for name, command in COMMANDS.items():
        run_both_ways(service, script=WHO_AM_I, name=name.replace(" ", "-"), command=command)

    assert differences(service, [name.replace(" ", "-") for name in COMMANDS]) == []


def test_no_two_trials_of_one_fork_server_have_the_same_secret(service: FakeService) -> None:
    """Connections of ``multiprocessing`` are protected by it: a trial does not enter those of another one."""
    script = "import multiprocessing\nprint(multiprocessing.current_process().authkey.hex())"
    said: set[str] = set()
    for number in (1, 2):
        nonce = f"secret-{number}"
        service.launch(script, nonce=nonce, number=number, preload=("multiprocessing",))
        assert service.wait_for_exit(nonce).exit.isolation == "fork"
        said.add((service.folder(nonce, number=number) / "stdout.log").read_text())

    assert len(said) == 2
