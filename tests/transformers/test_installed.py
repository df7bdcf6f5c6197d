"""Without Hugging Face's package, a word about what to install."""

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["transformers"] = None  # as if it were not installed
import laplacebridge
try:
    import laplacebridge.transformers
except laplacebridge.LaplaceBridgeError as error:
    print(error)
"""


def test_what_is_missing_is_said():
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert "pip install 'laplacebridge[transformers]'" in done.stdout, done.stderr
