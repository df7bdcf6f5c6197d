"""A real browser: Chromium, driven through a pair of pipes (its DevTools protocol),
which needs no package.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from io import BytesIO

import pytest
from matplotlib.image import imread

SECONDS = 60
WIDE = 1280
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
]
# events that mean that something went wrong in the page, and those that mean that it
# asked for something
COMPLAINTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
REQUEST = "Network.requestWillBeSent"


@dataclass
class Browser:
    """One tab of a running browser."""

    to_browser: int
    from_browser: int
    events: list = field(default_factory=list)
    received: bytes = b""
    count: int = 0
    session: str | None = None

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def next_message(self):
        until = time.monotonic() + SECONDS
        while b"\0" not in self.received:
            ready, _, _ = select.select(
                [self.from_browser], [], [], max(0, until - time.monotonic())
            )
            part = os.read(self.from_browser, 1 << 20) if ready else b""
            assert part, f"the browser ended, or was silent for {SECONDS} s"
            self.received += part
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def open(self, path, *, width=WIDE, scheme="light", media="screen", scripts=True):
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.events.clear()
        self.call("Page.navigate", url=path if isinstance(path, str) else path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next_message())
        if scripts:  # late requests come too
            self.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        else:  # for what is asked about the page
            self.call("Emulation.setScriptExecutionDisabled", value=False)

    def value(self, expression):
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self):
        return [event for event in self.events if event["method"] in COMPLAINTS]

    def requested(self):
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == REQUEST
        ]

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))
        return imread(BytesIO(path.read_bytes()), format="png")[..., :3]


@contextlib.contextmanager
def opened(folder):
    """A browser with its files in a folder; skips the test if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip(
            "needs Chromium: `apt install chromium`, or any of " + ", ".join(names) + " on the path"
        )
    in_browser, to_browser = os.pipe()
    from_browser, out_browser = os.pipe()
    # the browser reads file 3 and writes file 4
    script = f'exec "$@" 3<&{in_browser} 4>&{out_browser}'
    process = subprocess.Popen(  # noqa: S603 - a browser found on the path
        ["/bin/bash", "-c", script, "chromium", program, *FLAGS, f"--user-data-dir={folder}"],
        pass_fds=(in_browser, out_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(in_browser)
    os.close(out_browser)
    try:
        tab = Browser(to_browser, from_browser)
        target = tab.call("Target.createTarget", url="about:blank")["targetId"]
        tab.session = tab.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        yield tab
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=SECONDS)
        os.close(to_browser)
        os.close(from_browser)
