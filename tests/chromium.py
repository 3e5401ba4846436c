"""A headless Chromium driven over the DevTools protocol's pipe: NUL-ended JSON on descriptors 3 and 4, no websocket."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Without a sandbox, as root has no user namespace for one; and without whatever talks to anybody by itself.
_FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"),
    "--hide-scrollbars",
)
# Puts the pipes' ends where Chromium looks for them: 3 to read commands, 4 to write answers.
_WIRING = """
import os, sys
ends = [os.dup(int(end)) for end in sys.argv[1:3]]
for place, end in enumerate(ends, 3):
    os.dup2(end, place)
    os.set_inheritable(place, True)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """The browser's path; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page: commands go out, events are kept in the order they came."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers, self._buffer, self._last, self._session = commands, answers, b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Run a command and wait for its answer."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(30)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._answers, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError(f"Chromium said nothing for {seconds:g} s.")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def screen(self, width: int, height: int = 900, dark: bool = False) -> None:
        """A window of that size, scheme and nothing else of the machine's."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path) -> None:
        """Load a file, until its load event."""
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(30))

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def centre(self, selector: str) -> tuple[float, float]:
        """The middle of an element, scrolled into view."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return x, y

    def hover(self, x: float, y: float) -> None:
        """Move the mouse there."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """A real click, through hit testing."""
        x, y = self.centre(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key to whatever has the focus."""
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, text=text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def problems(self) -> list[str]:
        """Everything that the console and the page's policy complained of since it was opened."""
        self.run("new Promise(done => setTimeout(done, 50))")
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """Every address asked for since it was opened; what a data: URI holds needs no asking."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [url for event in sent if not (url := str(event["request"]["url"])).startswith("data:")]


@contextmanager
def browsing(executable: str, profile: Path) -> Iterator[Tab]:
    """A browser of its own with one tab; it is gone afterwards."""
    (their_read, our_write), (our_read, their_write) = os.pipe(), os.pipe()
    wired = [sys.executable, "-c", _WIRING, str(their_read), str(their_write)]
    command = [*wired, executable, *_FLAGS, f"--user-data-dir={profile}"]
    silent, kept = subprocess.DEVNULL, (their_read, their_write)
    process = subprocess.Popen(command, pass_fds=kept, stdout=silent, stderr=silent)
    for end in kept:
        os.close(end)
    try:
        yield Tab(our_write, our_read)
    finally:
        os.close(our_write)
        os.close(our_read)
        process.terminate()  # it ends by itself once the pipe is closed; this is for one that hangs
        process.wait(timeout=20)
