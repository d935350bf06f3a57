"""Storage of the tuner's times by device, in memory and in a JSON file of the cache folder."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from rpukit import _cache as cache
from rpukit._files.schema import (
    FLAG,
    anything,
    as_format_error,
    integer,
    listing,
    number,
    record,
    table,
    text,
)
from rpukit.errors import FormatError

_log = logging.getLogger("rpukit")
_FORMAT = 1
_FILE = record(
    {
        "format": anything,
        "device": text(),
        "records": listing(
            record(
                {
                    **dict.fromkeys(("kernel", "version", "key"), text()),
                    "batch": integer(0, 1 << 62),
                    "times": table(number(0)),
                },
                {"verified": FLAG},
            )
        ),
        "rejected": listing(listing(text(), 3)),
    }
)


@dataclass
class Record:
    """Seconds per call of each variant of a kernel, for one key and one bucket of batches."""

    kernel: str
    version: str  # hash of the source
    key: str
    batch: int  # the largest of the bucket
    times: dict[str, float] = field(default_factory=dict)
    verified: bool = False  # the bits of all variants were compared

    @property
    def title(self) -> str:
        """Key and bucket as text for people."""
        low, high = self.batch // 2 + 1, self.batch
        return f"key {self.key}, batch {high if low >= high else f'{low} to {high}'}"


class Store:
    """Records of one device; with a file name they persist after the process."""

    def __init__(self, device: str, file: str | None) -> None:
        self.device, self._file = device, file
        self._records: dict[tuple[str, str, str, int], Record] = {}
        self._rejected: set[tuple[str, str, str]] = set()
        self._read()

    def record(self, kernel: str, version: str, key: tuple[Any, ...], batch: int) -> Record:
        """Find a record, or create an empty one that is stored when it is saved."""
        where = (kernel, version, repr(key), batch)
        found = self._records.get(where)
        return found if found is not None else Record(*where)

    def save(self, new: Record) -> None:
        """Store a record in memory and in the file; entries of other processes are kept."""
        with cache.locked(self._file) if self._file is not None else nullcontext():
            self._read()
            self._records = {
                where: r
                for where, r in self._records.items()
                if r.kernel != new.kernel or r.version == new.version  # drop older sources
            }
            self._records[new.kernel, new.version, new.key, new.batch] = new
            if self._file is not None:
                content = {
                    "format": _FORMAT,
                    "device": self.device,
                    "records": [asdict(r) for r in self._records.values()],
                    "rejected": sorted(self._rejected),
                }
                cache.write(self._file, json.dumps(content, indent=1).encode())

    def records(self) -> list[Record]:
        """All records that hold times."""
        return [r for r in self._records.values() if r.times]

    def reject(self, kernel: str, version: str, variant: str) -> None:
        """Note that a variant's bits differ; the next `save` writes it down."""
        self._rejected.add((kernel, version, variant))

    def rejected(self, kernel: str, version: str) -> set[str]:
        """Variants of this version of a kernel whose bits differ."""
        return {v for k, text, v in self._rejected if (k, text) == (kernel, version)}

    def rejections(self) -> list[tuple[str, str]]:
        """All rejected variants, with their kernels."""
        return [(kernel, variant) for kernel, _, variant in sorted(self._rejected)]

    def _read(self) -> None:
        data = cache.read(self._file) if self._file is not None else None
        if data is None:
            return
        try:
            with as_format_error(str(self._file)):
                found = _FILE(json.loads(data), "file")
                if found["format"] != _FORMAT or found["device"] != self.device:
                    return
                for r in [Record(**item) for item in found["records"]]:
                    self._records.setdefault((r.kernel, r.version, r.key, r.batch), r)
                self._rejected |= {(k, t, v) for k, t, v in found["rejected"]}
        except FormatError as error:
            _log.warning("times of the tuner are not readable: %s", error)
