"""Layer tables: reads a CSV of layers, shipped or the user's own, into a `Workload`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from isa_models.errors import InvalidArgument, counted, shortly
from isa_models.records.display import Brief, InNotebooks
from workloads import untrusted
from workloads.layer import ConvLayer, Layer, MatmulLayer

CONV_COLUMNS = ("layer", "ic", "ih", "iw", "oc", "oh", "ow", "kh", "kw", "stride", "pad", "groups", "count", "macs")
MATMUL_COLUMNS = ("layer", "M", "N", "K", "batch", "count", "macs", "kind")


@dataclass(frozen=True, repr=False)
class Workload(Brief, InNotebooks):
    """The work of a network, layer by layer, at batch 1, in the order of execution."""

    name: str
    title: str
    source: str
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        given = isinstance(self.layers, (tuple, list)) and all(isinstance(layer, Layer) for layer in self.layers)
        if not given:
            raise InvalidArgument(
                f"layers={shortly(self.layers)} of Workload; a tuple of ConvLayer and MatmulLayer is needed"
            )
        object.__setattr__(self, "layers", tuple(self.layers))

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole network: each layer's times its `count`."""
        return sum(layer.macs * layer.count for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Weights of the whole network, without bias, normalization and embedding tables."""
        return sum(layer.parameters for layer in self.layers)


def read_layers(path: Path) -> tuple[Layer, ...]:
    """The layers of a CSV file with the columns `CONV_COLUMNS` or `MATMUL_COLUMNS`.

    `macs` (of one occurrence) is checked against the sizes. Raises `InvalidArgument` naming file, line and value.
    """
    try:
        text = io.StringIO(untrusted.plain(path).decode("utf-8-sig"), newline="")
        rows = [row for row in csv.reader(text, strict=True) if row]
    except OSError as error:
        raise InvalidArgument(f"workload file {str(path)!r} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"workload file {str(path)!r} is no CSV text: {error}") from None
    header = tuple(cell.strip() for cell in rows[0]) if rows else ()
    columns = _columns(path, header)
    layers = tuple(_layers(path, columns, header, rows[1:]))
    if not layers:
        raise InvalidArgument(f"workload file {str(path)!r} holds no layer below its header")
    return layers


def _columns(path: Path, header: tuple[str, ...]) -> tuple[str, ...]:
    """The set of columns that the header means: exactly one of the two, in any order."""
    for columns in (CONV_COLUMNS, MATMUL_COLUMNS):
        if sorted(header) == sorted(columns):
            return columns
    nearest = max((CONV_COLUMNS, MATMUL_COLUMNS), key=lambda columns: len({*columns} & {*header}))
    missing = [c for c in nearest if c not in header]
    unknown = [c for c in header if c not in nearest]
    repeated = sorted({c for c in header if header.count(c) > 1})
    faults = [("missing", missing), ("unknown", unknown), ("repeated", repeated)]
    detail = "; ".join(f"{what}: {', '.join(map(repr, names))}" for what, names in faults if names)
    raise InvalidArgument(
        f"workload file {str(path)!r}: wrong columns ({detail}); needed: {','.join(CONV_COLUMNS)} for convolutions, "
        f"or {','.join(MATMUL_COLUMNS)} for matmuls"
    )


def _layers(
    path: Path, columns: tuple[str, ...], header: tuple[str, ...], rows: Sequence[Sequence[str]]
) -> Iterator[Layer]:
    for number, cells in enumerate(rows, start=1):
        where = f"workload file {str(path)!r}, layer {number}"
        if len(cells) != len(header):
            raise InvalidArgument(f"{where}: {counted(len(cells), 'value')} under {counted(len(header), 'column')}")
        row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        try:
            size = {key: _integer(key, value) for key, value in row.items() if key not in ("layer", "kind")}
            macs = size.pop("macs")
            layer: Layer
            if columns is CONV_COLUMNS:
                layer = ConvLayer(row["layer"], **size)
            else:
                layer = MatmulLayer(row["layer"], kind=row["kind"], **{key.lower(): v for key, v in size.items()})
            if macs != layer.macs:
                raise InvalidArgument(f"layer {layer.name!r}: macs={macs}, but the sizes give {layer.macs}")
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {error}") from None
        yield layer


def _integer(column: str, text: str) -> int:
    # int() alone would take "1_000" and digits of other scripts; 15 digits keep every product of sizes sensible
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidArgument(f"{column}={text!r}; an integer of at most 15 digits is needed")
    return int(text)
