"""The page's server and its files: this host and this origin alone, no network, errors in the page."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import simdnn.teach
from isa_models import InvalidArgument
from simdnn.cli import main
from simdnn.teach import export as exporting
from simdnn.teach import instruction
from simdnn.teach.server import HOST, VIEWS, create_app

pytest.importorskip("flask", reason="the page needs Flask: pip install 'simdnn[teach]'")
AT = f"http://{HOST}:8733"


@pytest.fixture(scope="module")
def client() -> Any:
    return create_app().test_client()


@pytest.mark.parametrize("host", ["127.0.0.1:8733", "localhost:8733", "127.0.0.1"])
def test_this_host_is_answered(client: Any, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8733", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.0.1", "[::2]"],
)
@pytest.mark.parametrize("path", ["/", "/kernel", "/static/teach.js"])
def test_other_hosts_are_refused(client: Any, host: str, path: str) -> None:
    """A site may point its own name at this host; the browser then still tells that name."""
    assert client.get(path, headers={"Host": host}).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://{HOST}:9999"},
        {"Origin": "http://localhost:8733"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/instruction", "/static/teach.css"])
def test_other_origins_are_refused(client: Any, headers: dict[str, str], path: str) -> None:
    assert client.get(path, base_url=AT, headers=headers).status_code == 403


def test_its_own_origin_is_answered(client: Any) -> None:
    for headers in ({"Origin": AT}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert client.get("/", base_url=AT, headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch", "options"])
def test_nothing_can_be_changed(client: Any, method: str) -> None:
    reply = getattr(client, method)("/kernel", base_url=AT)
    assert reply.status_code == 405 or set(reply.allow) == {"GET", "HEAD", "OPTIONS"}


def test_nobody_may_read_or_frame_it(client: Any) -> None:
    headers = client.get("/", base_url=AT).headers
    assert "Access-Control-Allow-Origin" not in headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "http" not in policy


class Links(HTMLParser):
    """All addresses that a page names, and elements by which it would break its own policy."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "action"):
                self.found.append(value or "")
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
        if tag == "style" or tag == "script" and "src" not in dict(attrs):
            self.inline.append(tag)


@pytest.mark.parametrize("view", ["", *VIEWS])
def test_pages_fetch_nothing_from_elsewhere(client: Any, view: str) -> None:
    page = Links(client.get(f"/{view}", base_url=AT).text)
    assert page.found and not page.inline
    for link in page.found:
        assert link.startswith(("/", "#")) and not link.startswith("//"), link
    for link in {link for link in page.found if link.startswith("/static/")}:
        with client.get(link, base_url=AT) as reply:
            assert reply.status_code == 200


def test_assets_name_no_other_site() -> None:
    folder = Path(simdnn.teach.__file__).parent
    for path in [*folder.glob("static/*"), *folder.glob("templates/*")]:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|@import|url\(|//cdn", text), path.name


def test_what_is_typed_is_text(client: Any) -> None:
    evil = "<script>alert(1)</script>\"'>"
    for view in VIEWS:
        for field in ("name", "machine", "a.machine", "code", "op.a", "dispatch", "m"):
            text = client.get(f"/{view}", base_url=AT, query_string={field: evil}).text
            assert "<script>alert" not in text and "Traceback" not in text


def test_errors_stand_in_the_page(client: Any) -> None:
    reply = client.get("/instruction?name=vpmaddubsw&op.a=300,1", base_url=AT)
    assert reply.status_code == 200 and 'role="alert"' in reply.text and "u8 (0 .. 255)" in reply.text
    assert client.get("/nothing", base_url=AT).status_code == 404


# -- the command -------------------------------------------------------------------------------------------------------
def _interruptible() -> None:
    """A shell has what it runs in the background ignore SIGINT, and children with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "simdnn", "teach", "--no-browser", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_interruptible
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[0]
        process.kill()


def test_it_serves_until_it_is_interrupted(served: tuple[subprocess.Popen[str], str]) -> None:
    process, address = served
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=300) as reply:
        assert b"What number comes out" in reply.read()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 0
    assert process.stderr is not None and process.stderr.read() == ""


def test_it_listens_on_loopback_alone(served: tuple[subprocess.Popen[str], str]) -> None:
    port = int(served[1].rstrip("/").rpartition(":")[2])
    with socket.socket() as other:
        other.bind(("127.0.0.2", port))  # would be taken where it listened at all addresses


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["teach", "--no-browser", "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert f"port {port}" in said and "--port 0" in said


def test_without_flask_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "flask", None)
    for words in (["--no-browser", "--port", "0"], ["--export", str(tmp_path / "page")]):
        assert main(["teach", *words]) == 1
        assert 'pip install "simdnn[teach]"' in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize("words", [["--port", "70000"], ["--port", "x"], ["--export", "d", "--port", "1"], ["more"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert main(["teach", *words]) == 2
    except SystemExit as end:
        assert end.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# -- files -------------------------------------------------------------------------------------------------------------
def test_export_links_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every link leads to a file of the folder; nothing needs a server. For speed, of a few examples alone."""
    for module in VIEWS.values():
        monkeypatch.setattr(module, "EXAMPLES", module.EXAMPLES[:1])
    some = ["vpmaddubsw", "dpas", "ldtilecfg", "vcvtneps2bf16"]
    monkeypatch.setattr(instruction, "names", lambda: some)
    folder = tmp_path / "page"
    assert main(["teach", "--export", str(folder)]) == 0
    pages = list(folder.glob("*.html"))
    assert f"{len(pages)} pages" in capsys.readouterr().out
    met = set()
    for path in pages:
        page = Links(path.read_text(encoding="utf-8"))
        assert not page.inline
        for link in page.found:
            assert link and "://" not in link and not link.startswith("/"), (path.name, link)
            if not link.startswith("#"):
                met.add(folder / link)
    assert all(path.is_file() for path in met)
    assert {*pages} <= met  # each can be reached
    assert "32767" in (folder / "instruction.html").read_text(encoding="utf-8")
    assert main(["teach", "--export", str(folder)]) == 0  # its own files it writes again


def test_export_leaves_other_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match="holds something else"):
        exporting.export(tmp_path)
    with pytest.raises(InvalidArgument, match="holds something else"):
        exporting.export(tmp_path / "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
