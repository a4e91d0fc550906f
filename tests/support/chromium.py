"""Chromium without a screen, driven through its DevTools protocol over a pair of pipes."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TIMEOUT = 120.0  # seconds, for any answer


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A process of the browser. `net_log` is written when it ends."""

    def __init__(self, program: str, folder: Path) -> None:
        self.net_log = folder / "requests.json"
        (there, self._out), (self._in, back) = os.pipe(), os.pipe()
        # The browser reads descriptor 3 and writes 4, which may be taken here.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (there, back)]

        def settle() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self._process = subprocess.Popen(
            [
                *(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"),
                *("--disable-background-networking", "--disable-component-update"),
                f"--log-net-log={self.net_log}",
            ],
            pass_fds=(3, 4, *ends),
            preexec_fn=settle,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (there, back, *ends):
            os.close(end)
        self._buffer, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """The result of a command. Raises RuntimeError for one that fails."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") != self._number:
                self.events.append(found)
                continue
            if "error" in found:
                raise RuntimeError(f"{method}: {found['error']}")
            result: dict[str, Any] = found["result"]
            return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], _TIMEOUT)[0]:
                raise TimeoutError(f"Chromium says nothing for {_TIMEOUT} s")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError("Chromium has ended")
            self._buffer += data
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def close(self) -> None:
        try:
            self.send("Browser.close")
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._in)
            os.close(self._out)


class Tab:
    """A page of the browser, `width` pixels wide."""

    def __init__(self, browser: Chromium, width: int = 1280, *, dark: bool = False) -> None:
        self._browser = browser
        context = browser.send("Target.createBrowserContext")["browserContextId"]
        target = browser.send("Target.createTarget", url="about:blank", browserContextId=context)
        self._target = target["targetId"]
        attached = browser.send("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.send(f"{domain}.enable")
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **params)

    def run(self, script: str) -> Any:
        """The value of an expression, or of what it promises. Raises RuntimeError if it throws."""
        found = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, script: str, seconds: float = _TIMEOUT) -> None:
        """Until the expression is true."""
        end = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > end:
                raise TimeoutError(f"not true after {seconds} s: {script}")
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Keys by their names, such as Tab or ArrowDown, or characters."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            code = _CODES.get(key, 0)
            self.send(
                "Input.dispatchKeyEvent",
                **{"type": "keyDown", "key": key, "windowsVirtualKeyCode": code, **text},
            )
            self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def give_files(self, selector: str, *files: Path) -> None:
        """As a user who chooses files in a field for them."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def drop(self, *paths: Path) -> None:
        """Files and folders, as from a file manager, in the middle of what is shown."""
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.send("Input.dispatchDragEvent", type=kind, x=200, y=200, data=data)

    def complaints(self) -> list[str]:
        """What the console and the browser's log hold of this page."""
        self.run("0")  # what has been said until now is in
        said = [e for e in self._browser.events if e.get("sessionId") == self._session]
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in said if event["method"] in kinds]

    def close(self) -> None:
        self._browser.send("Target.closeTarget", targetId=self._target)


_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, " ": 32} | {
    **{"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
}


@contextmanager
def chromium(program: str, folder: Path) -> Iterator[Chromium]:
    browser = Chromium(program, folder)
    try:
        yield browser
    finally:
        browser.close()
