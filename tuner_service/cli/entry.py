"""Where the ``tuner`` command begins. It imports nothing that takes time: Ctrl-C is answered from here on."""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130  # as in ``exit_codes``, which is one of the imports that take time


def main() -> int:
    """Runs the command line of this process; returns its exit code.

    Until everything is imported, and once the command has ended, Ctrl-C ends the process at once: there is nothing to
    be tidied up, and a traceback of the import system would help nobody. Where SIGINT is ignored, it stays so.
    """
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:
        signal.signal(signal.SIGINT, _leave)
    from tuner_service.cli.main import main as run

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    except KeyboardInterrupt:  # a second one, while the first is told
        return INTERRUPTED
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)
