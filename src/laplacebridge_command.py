"""The program `laplacebridge`. It stands beside the package, because whatever is in the
package imports torch first, which takes seconds in which a user may change their mind.
"""

import os
import signal
import sys
from typing import NoReturn

INTERRUPTED = 130


def run() -> None:
    """Runs a command line. Ctrl-C while everything is imported ends it without a word of
    where it was: nothing has begun that must be undone.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # in the background it is ignored, and stays so
        signal.signal(signal.SIGINT, _leave)
    from laplacebridge.cli.main import app

    signal.signal(signal.SIGINT, before)
    app()


def _leave(*_: object) -> NoReturn:
    # no exception: importing extensions would turn it into errors of their own
    os.write(sys.stderr.fileno(), b"Interrupted.\n")
    os._exit(INTERRUPTED)
