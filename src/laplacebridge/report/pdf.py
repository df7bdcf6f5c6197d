"""A page on paper: printed to PDF by a Chromium, where there is one."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from laplacebridge._files import atomic_write
from laplacebridge.errors import LaplaceBridgeError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 120


def find_browser() -> str | None:
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def require_browser() -> str:
    """The path of a Chromium.

    Raises:
        LaplaceBridgeError: If there is none.
    """
    found = find_browser()
    if found is None:
        raise LaplaceBridgeError(
            f"A PDF needs Chromium: none of {', '.join(PROGRAMS)} was found. Install one, or open"
            " the page in any browser and print it."
        )
    return found


def write_pdf(text: str, path: str | Path) -> None:
    """Prints a page, whole or not at all.

    Args:
        text: The page.
        path: Where to write; a file that is there is replaced.

    Raises:
        LaplaceBridgeError: If there is no Chromium, or it fails.
    """
    program = require_browser()
    with tempfile.TemporaryDirectory() as folder:
        page, printed = Path(folder, "page.html"), Path(folder, "page.pdf")
        page.write_text(text, encoding="utf-8")
        # a Chromium of the superuser does not start with a sandbox; the page loads nothing
        as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command = [
            program,
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-pdf-header-footer",
            *as_root,
            f"--user-data-dir={Path(folder, 'profile')}",
            f"--print-to-pdf={printed}",
            page.as_uri(),
        ]
        try:
            result = subprocess.run(  # noqa: S603 - a browser found on the path
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            problem = result.stderr.strip().splitlines()[-1:] if result.returncode else []
        except subprocess.TimeoutExpired:
            problem = [f"it took more than {SECONDS} seconds"]
        if not printed.exists():
            raise LaplaceBridgeError(
                f"{program} could not print the page: {' '.join(problem) or 'it wrote nothing'}."
            )
        with atomic_write(Path(path)) as temporary:
            shutil.copyfile(printed, temporary)
