"""A result as one page: tables, pictures, and where every figure comes from."""

from __future__ import annotations

import html
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from isa_models import InvalidArgument, Machine
from isa_models.errors import counted, shortly
from isa_models.keywords import keywords
from isa_models.machines.figures import figure_rows
from isa_models.machines.provenance import CONFIDENCES
from isa_models.machines.variants import named
from simdnn import files
from simdnn.progress import each
from simdnn.reporting.provenance import known, recorded, unchanged
from workloads import untrusted

MOST_ROWS = 1000  # of a table
SHORT = 40  # letters that stay on one line
STUDY_HEAD = {"results": "simdnn study"}
_SINCE = {True: "as it is here", False: "not that of the table here"}
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #2563a8; }
@media (prefers-color-scheme: dark) { :root { --accent: #7db4ee; } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; color: var(--accent); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { background: var(--soft); } .number { text-align: right; }
.number, .short { white-space: nowrap; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; background: white; }
code { overflow-wrap: anywhere; }
"""


class Told(Protocol):
    """A result that tells itself as JSON."""

    def to_json(self) -> str: ...


@keywords
def report(result: str | os.PathLike[str] | Mapping[str, Any] | Told, path: str | os.PathLike[str]) -> Path:
    """Write one page of a result into an HTML file that needs nothing besides, and return the file's path.

    `result`: a file that `simdnn run`, `study` or `bench` wrote (`-o FILE.json`), a study's `FILE.jsonl`, the content
    of one, or what `matmul`, `estimate`, `Network.run` and their like return. Raises `InvalidArgument` for anything
    else, and where `path` is there already and was not written by this package (`simdnn.files`).

    >>> import simdnn, tempfile
    >>> estimate = simdnn.estimate("matmul", m=4, n=64, k=64, dt="u8:s8:s32", machine="zen4")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = report(estimate, f"{folder}/report.html").read_text(encoding="utf-8")
    >>> "gemm:avx512_core_vnni" in text, "http" in text
    (True, False)
    """
    name, content = _content(result)
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InvalidArgument(f"report {str(target)!r}; a page ends in .html")
    files.write_text(target, page(name, content))
    return target


def page(name: str, content: Mapping[str, Any]) -> str:
    """The page's text. `name`: what the result was read from, empty where it is no file."""
    from simdnn.reporting.pictures import pictures  # matplotlib takes a second to load

    title = _title(content)
    parts = [f"<h1>{_text(title)}</h1>"]
    if scalars := _flat({key: value for key, value in content.items() if key != "provenance"}):
        parts += ["<h2>Summary</h2>", _pairs(scalars)]
    for caption, uri in each(pictures(content), lambda picture: picture[0]):
        said = _text(caption)
        parts.append(f'<figure><img src="{uri}" alt="{said}"><figcaption>{said}</figcaption></figure>')
    for heading, rows in _tables(content):
        parts += [f"<h2>{_text(heading)}</h2>", _table(rows)]
    parts += [f"<h2>{heading}</h2>{body}" for heading, body in _standing(name, content)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{files.HTML_MARK}\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _content(result: str | os.PathLike[str] | Mapping[str, Any] | Told) -> tuple[str, Mapping[str, Any]]:
    if isinstance(result, Mapping):
        if not any(_tables(result)):
            raise InvalidArgument(f"a report of {shortly(dict(result))}; the content of a file of results has rows")
        return "", result
    if hasattr(result, "to_json"):
        told = json.loads(result.to_json())
        return "", told if isinstance(told, dict) else {"rows": told}
    if not isinstance(result, str | os.PathLike):
        raise InvalidArgument(f"a report of {type(result).__name__}; a file of results or a result is needed")
    path = Path(result)
    return str(path), _read(path)


def _read(path: Path) -> Mapping[str, Any]:
    """The content of a file of results."""
    try:
        text = untrusted.plain(path).decode("utf-8")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _no_result(path) from None
    try:
        head, _, rest = text.partition("\n")
        found = json.loads(head) if rest.strip() and head.startswith('{"results"') else json.loads(text)
        if isinstance(found, dict) and found.items() >= STUDY_HEAD.items():
            return _kept(path, rest)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise _no_result(path) from None
    if isinstance(found, list) and found and all(isinstance(row, dict) for row in found):
        return {"rows": found}
    if not isinstance(found, dict) or not any(_tables(found)):
        raise _no_result(path)
    return found


def _no_result(path: Path) -> InvalidArgument:
    return InvalidArgument(f"{path} is no file of results; simdnn run, study or bench writes one with -o FILE.json")


def _kept(path: Path, lines: str) -> dict[str, Any]:
    """The content of a study's own file of results, in which each row stands with the digests that it rests on."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines.splitlines(keepends=True):
        if not line.endswith("\n"):  # the last one, cut off
            break
        record = json.loads(line)
        found[record["key"]] = record
    records = [record for record in found.values() if record["row"] is not None]  # others were forgotten
    points = [_with_its_machine(record["point"], [one["point"] for one in records]) for record in records]
    varied = [
        key for key in dict.fromkeys(key for p in points for key in p) if len({str(p.get(key)) for p in points}) > 1
    ]
    rows = [point | record["row"] for point, record in zip(points, records, strict=True)]
    machines = {str(r["point"].get("machine", "")): r["stamp"].get("machine") for r in records}
    code = " ".join(dict.fromkeys(r["stamp"].get("simdnn", "") for r in records))
    made = {"code": code, "machines": machines}
    return {"study": path.stem, "axes": varied, "points": rows, "provenance": made}


def _with_its_machine(point: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A point whose figures are in its machine's name, unless every point has them: then they are parameters."""
    figures = {key: value for key, value in point.items() if "." in key and not all(key in one for one in others)}
    rest = {key: value for key, value in point.items() if key not in figures}
    return rest | {"machine": named(str(point["machine"]), figures)} if figures else rest


def _title(content: Mapping[str, Any]) -> str:
    subject = content.get("workload") or content.get("study") or content.get("primitive")
    if not subject:
        nodes = content.get("nodes")
        rows = [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []
        operators = {str(node["op"]) for node in rows if "op" in node and node.get("cycles")}  # a primitive has one
        subject = operators.pop() if len(operators) == 1 else "results" if nodes is None else "network"
    machine = content.get("machine")
    return f"{subject} on {machine}" if machine else str(subject)


def _tables(content: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Headings and rows: totals before what they sum up."""
    for key in sorted(content, key=lambda key: key != "totals"):
        rows = content[key]
        repeated = key == "rows" and rows == content.get("totals")
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows) and not repeated:
            yield key.replace("_", " ").capitalize(), rows


def _flat(content: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The values that are no table, by dotted key."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{key}.")
        elif not isinstance(value, list):
            found[before + key] = value
        elif value and not any(isinstance(one, dict | list) for one in value):
            found[before + key] = ", ".join(map(str, value))
    return {key: value for key, value in found.items() if value not in (None, "") and key != "written_by"}


def _standing(name: str, content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Sections that say where the figures come from."""
    made = recorded(content)
    said: dict[str, Any] = {"file": name} if name else {}
    said |= {key: value for key, value in made.items() if key != "machines"}
    tables = ""
    for machine_name, then in made["machines"].items():
        target = known(machine_name)
        if target is None:
            said[f"machine {machine_name}"] = f"not known here; digest {then or 'not recorded'}"
            continue
        told = f"digest {then}, {_SINCE[unchanged(target, then)]}" if then else "digest not recorded"
        said[f"machine {machine_name}"] = f"{target.title}; {told}"
        rows = figure_rows(target)
        if isinstance(target, Machine):
            counts = Counter(row.confidence for row in target.instructions.values())
            kinds = ", ".join(f"{counts[kind]} {kind}" for kind in CONFIDENCES if counts[kind])
            said[f"instructions of {machine_name}"] = f"{counted(len(target.instructions), 'form')}: {kinds}"
        tables += (
            f"<details><summary>Figures of {_text(machine_name)} and their sources</summary>{_table(rows)}</details>"
        )
    rows_met = Counter(
        row["confidence"] for _, rows in _tables(content) for row in rows if row.get("confidence") in CONFIDENCES
    )
    for kind in CONFIDENCES:
        if rows_met[kind]:
            said[f"rows that rest on {kind} figures"] = rows_met[kind]
    words = (
        "<p>The confidence of a row is the weakest standing of any machine figure that it rests on: measured, "
        "documented (published), or estimated. Values are bits that the modelled instructions yield; cycles are "
        "predictions.</p>"
    )
    yield "Where the figures come from", _pairs(said) + words + tables


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The columns in which rows differ, and below the table what is alike in all of them; never without confidence."""
    names = list(dict.fromkeys(key for row in rows for key in row if not isinstance(row[key], list | dict)))
    names = [name for name in names if any(row.get(name) not in (None, "") for row in rows)]
    alike = [n for n in names if len(rows) > 1 and n != "confidence" and len({str(row.get(n)) for row in rows}) == 1]
    columns = [name for name in names if name not in alike]
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    cells = ("".join(_cell(name, row.get(name)) for name in columns) for row in rows[:MOST_ROWS])
    body = "".join(f"<tr>{row}</tr>\n" for row in cells)
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
    if alike:
        table += f"<p>Alike in all rows: {_text(', '.join(f'{n} {shown(n, rows[0].get(n))}' for n in alike))}.</p>"
    return table + (f"<p>… and {len(rows) - MOST_ROWS} rows more in the file.</p>" if len(rows) > MOST_ROWS else "")


def _pairs(said: Mapping[str, Any]) -> str:
    rows = "".join(f"<tr><th>{_text(key)}</th>{_cell(key, value, False)}</tr>\n" for key, value in said.items())
    return f'<div class="wide"><table><tbody>\n{rows}</tbody></table></div>'


def _cell(name: str, value: Any, right: bool = True) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    said = shown(name, value)
    kind = "number" if number and right else "short" if len(said) <= SHORT else ""
    return f'<td class="{kind}">{_text(said)}</td>' if kind else f"<td>{_text(said)}</td>"


def shown(name: str, value: Any) -> str:
    """A value as people read it.

    >>> shown("cycles", 33533.727), shown("saturated_share", 0.0683), shown("refused", None), shown("pareto", True)
    ('33,534', '6.83 %', '–', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and (name.endswith("_share") or name.startswith("share") or name == "accuracy"):
        return f"{100 * value:.4g} %"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _text(value: Any) -> str:
    return html.escape(str(value))
