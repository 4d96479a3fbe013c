"""A headless Chromium by the WebDriver protocol (https://www.w3.org/TR/webdriver2), as far as the tests want it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
MISSING = "Chromium and its driver are not here (Debian: apt-get install chromium chromium-driver)"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
RELEASE, TAB, CONTROL, LEFT = "\ue000", "\ue004", "\ue009", "\ue012"


class Browser:
    """One window."""

    def __init__(self, driver: str) -> None:
        options = ["--headless=new", "--no-proxy-server", "--disable-gpu", "--disable-dev-shm-usage"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        wanted = {"goog:chromeOptions": {"binary": CHROMIUM, "args": options}, "goog:loggingPrefs": {"browser": "ALL"}}
        made = _asked(f"{driver}/session", {"capabilities": {"alwaysMatch": wanted}})
        self.at = f"{driver}/session/{made['sessionId']}"

    def ask(self, command: str, content: Any = None, method: str = "POST") -> Any:
        return _asked(f"{self.at}/{command}", content, method)

    def open(self, address: str) -> None:
        self.ask("url", {"url": address})

    def js(self, body: str, *arguments: Any) -> Any:
        return self.ask("execute/sync", {"script": body, "args": list(arguments)})

    def type(self, field: str, text: str) -> None:
        """Type into a field as a user does, over what stands in it."""
        found = self.ask("element", {"using": "css selector", "value": f'[name="{field}"]'})[_ELEMENT]
        self.ask(f"element/{found}/value", {"text": f"{CONTROL}a{RELEASE}{text}"})

    def keys(self, text: str) -> None:
        """Press keys wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self.ask("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def until(self, condition: str, seconds: float = 20) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.js(f"return {condition}"):
                return found
            time.sleep(0.05)
        seen = self.js("return document.body?.innerText ?? ''")
        raise AssertionError(f"{condition} is not so after {seconds} s: {seen[:2000]}")

    def text(self, selector: str) -> str:
        """The text of an element, once it is there and says anything: a page is read while it is still being drawn."""
        return str(self.until(f"document.querySelector({json.dumps(selector)})?.innerText.trim()"))

    def look(self, width: int, height: int, scheme: str) -> None:
        """Set the width in CSS pixels, and the colour scheme that the user prefers."""
        self._devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True
        )
        self._devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """A picture of the page from its top on, as high as the window."""
        path.write_bytes(base64.b64decode(self.ask("screenshot", method="GET")))

    def complaints(self) -> list[str]:
        """Messages of the page's console since the last call: errors, refused content."""
        return [
            str(entry["message"]) for entry in self.ask("se/log", {"type": "browser"}) if entry["level"] == "SEVERE"
        ]

    def _devtools(self, command: str, **parameters: Any) -> None:
        self.ask("goog/cdp/execute", {"cmd": command, "params": parameters})


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile in `folder`; both programs are ended with the block."""
    assert DRIVER is not None
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder)}
    with subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            found = next(m for line in process.stdout if (m := re.search(r"successfully on port (\d+)", line)))
            made = Browser(f"http://127.0.0.1:{found[1]}")
            try:
                yield made
            finally:
                _asked(made.at, None, "DELETE")
        finally:
            process.terminate()


def _asked(address: str, content: Any = None, method: str = "POST") -> Any:
    body = json.dumps(content or {}).encode() if method == "POST" else None
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=300) as reply:
            return json.load(reply)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{address}: {error.read().decode()[:500]}") from None


def main(path: Path) -> None:
    """Take the picture of docs/teach.md: `python -m tests.teach.browser docs/images/teach.png`."""
    import tempfile

    from PIL import Image  # matplotlib's

    command = [sys.executable, "-m", "simdnn", "teach", "--no-browser", "--port", "0"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        browser(Path(folder)) as page,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        page.look(1200, 860, "light")
        page.open(f"{address}kernel?machine=zen4&m=2&move.core.dispatch_slots=2")
        page.picture(path)
        process.terminate()
    picture = Image.open(path).convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
    picture.save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
