"""The page in a real browser: what a user does at it, by mouse, by keyboard, on a phone, in light and in dark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simdnn.teach.server import VIEWS
from tests.teach.browser import CHROMIUM, DRIVER, LEFT, MISSING, TAB, Browser, browser

pytest.importorskip("flask", reason="the page needs Flask: pip install 'simdnn[teach]'")
pytestmark = [
    pytest.mark.skipif(not (DRIVER and CHROMIUM), reason=MISSING),
    pytest.mark.xdist_group("browser"),
]

STRANGER = "evil.localhost"  # leads a browser here, as a hostile site's own name could


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    command = [sys.executable, "-m", "simdnn", "teach", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[0]
        process.terminate()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture
def page(window: Browser, address: str) -> Iterator[Browser]:
    window.look(1280, 900, "light")
    yield window
    # errors of the script, and whatever the page's own policy refused; of the name that is refused below a browser asks
    # for an icon when it likes
    assert [said for said in window.complaints() if STRANGER not in said] == []


def shown(text: str) -> str:
    return f"document.getElementById('result').innerText.includes({text!r}) && !document.querySelector('[aria-busy]')"


def test_an_instruction_is_picked_and_numbers_typed(page: Browser, address: str) -> None:
    page.open(f"{address}instruction?name=vpdpbusd")
    page.until("document.readyState === 'complete' && document.querySelector('[name=\"op.acc\"]')")
    page.type("name", f"vpmaddubsw{TAB}")
    page.until("document.querySelector('[name=\"op.b\"]') && !document.querySelector('[name=\"op.acc\"]')")
    page.type("op.a", f"255,255{TAB}")
    page.until(shown("255 * 1"))
    page.type("op.b", f"127,127{TAB}")
    page.until(shown("saturate to s16: 64770 -> 32767"))
    assert "0111111111111111" in page.text("#result .result").replace("\n", "")
    page.type("op.a", f"300,1{TAB}")
    page.until(shown("operand a is u8 (0 .. 255), met [300, 1]"))
    assert page.text("[role=alert]").startswith("vpmaddubsw")


def test_a_moved_figure_moves_the_cycles(page: Browser, address: str) -> None:
    page.open(f"{address}kernel")
    assert page.text("#cycles") == "143"
    page.until("document.readyState === 'complete'")
    field = "[name='move.core.dispatch_slots']"
    page.js(f'document.querySelector("{field}").focus()')
    for _ in range(5):
        page.keys(LEFT)
    page.until("document.querySelector('#cycles ins')")
    page.until("document.querySelector('#result h2').innerText.endsWith('core.dispatch_slots = 1')")
    before, after = page.text("#cycles").split()
    assert before == "143" and int(after) > 143
    assert page.text("[role=status]") == page.text("#result h2")  # readers of screens are told
    assert page.js(f'return document.activeElement.matches("{field}")')
    assert "dispatch_slots=1" in page.js("return location.search")


def test_keyboard_alone(page: Browser, address: str) -> None:
    """From the top by Tab: each control is reached, shows its focus, and has a name."""
    page.open(f"{address}instruction")
    page.until("document.readyState === 'complete' && document.querySelector('form [name]')")
    met = []
    for _ in range(25):
        page.keys(TAB)
        if page.js("return document.activeElement === document.body"):
            continue  # the focus was in the browser's own controls
        met.append(page.js("return document.activeElement.name || document.activeElement.innerText"))
        if met[-1] == "Show":
            break
        assert page.js("return getComputedStyle(document.activeElement).outlineStyle") != "none", met
    assert ["name", "machine", "op.a", "op.b", "Show"] == met[-5:]
    unnamed = "[...document.querySelectorAll('form [name]:not([type=hidden])')].filter(e => !e.labels?.length)"
    assert page.js(f"return {unnamed}.length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["", *VIEWS])
def test_a_phone_needs_no_sideways_scroll(page: Browser, address: str, view: str, scheme: str) -> None:
    page.look(360, 740, scheme)
    page.open(f"{address}{view}")
    page.until("document.readyState === 'complete' && document.querySelector('main')?.innerText")
    assert page.js("return document.documentElement.scrollWidth") <= 360
    light = page.js(
        "return getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).slice(0, 3)"
        ".map(Number).every(part => part > 200)"
    )
    assert light == (scheme == "light")
    assert page.js(_CONTRAST) == []


#: texts whose colour is nearer to what is behind them than WCAG's 4.5 to 1
_CONTRAST = """
const parts = colour => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
return [...document.querySelectorAll('main *, header *')].filter(e => e.checkVisibility() && !e.disabled &&
  [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && !(e instanceof SVGElement)).filter(e => {
  const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05) < 4.5; }).map(e => `${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`);
"""


def test_another_name_of_this_host_is_refused(page: Browser, address: str) -> None:
    """`*.localhost` leads a browser here, as a hostile site's own name could."""
    page.open(address.replace("127.0.0.1", STRANGER))
    assert "not trusted" in page.text("body")
    page.complaints()  # the status is one


def test_another_origin_reads_nothing(page: Browser, address: str) -> None:
    page.open("data:text/html,<title>elsewhere</title>")
    reading = f"return fetch('{address}').then(() => 'read', () => 'refused')"
    assert page.js(reading) == "refused"
    page.complaints()


def test_it_works_without_its_script(page: Browser, address: str) -> None:
    page._devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(f"{address}instruction?name=vpmaddubsw")
        page.type("op.a", "255,255\n")
    finally:
        page._devtools("Emulation.setScriptExecutionDisabled", value=False)
    page.until("location.search.includes('255%2C255')")


def test_exported_files_open(page: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simdnn.teach import export, instruction

    monkeypatch.setattr(instruction, "names", lambda: ["vpmaddubsw"])
    for module in VIEWS.values():
        monkeypatch.setattr(module, "EXAMPLES", module.EXAMPLES[:1])
    export.export(tmp_path / "page")
    page.open((tmp_path / "page" / "index.html").as_uri())
    link = "[...document.querySelectorAll('a')].find(a => a.innerText === 'A pair of products saturates')"
    page.until(f"document.readyState === 'complete' && !!{link}")
    page.js(f"{link}.click()")
    page.until("document.getElementById('result')?.innerText.includes('32767')")
    assert page.js("return document.styleSheets.length") == 1
