"""The program `laplacebridge`. It stands beside the package, because whatever is in the
package imports torch first, which takes seconds in which a user may change their mind.
"""

import os
import signal
import sys
from typing import NoReturn

INTERRUPTED = 130


def run() -> None:
    """Runs a command line. Ctrl-C while everything is imported ends it without a word
    of where it was: nothing has begun that must be undone.
    """
    # in the background the signal is ignored, and stays so
    listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if listens:
        signal.signal(signal.SIGINT, _leave)
    from laplacebridge.cli.main import app

    if listens:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()


def _leave(*_: object) -> NoReturn:
    # no exception: importing extensions would turn it into errors of their own
    os.write(sys.stderr.fileno(), b"Interrupted.\n")
    os._exit(INTERRUPTED)
