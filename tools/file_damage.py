"""Damage to files for `fuzz_files`: bytes, members of archives, arrays, JSON.

A damage is a function of bytes and a random generator. It returns other bytes, and whether they
may hold another valid state: a file whose content was changed together with its checksum, or one
without a checksum, says so itself, and is no damage that a reader could notice.
"""

from __future__ import annotations

import copy
import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
Made = tuple[bytes, bool]
Damage = Callable[[bytes, Random], Made]

HEADER = "header.json.npy"
NUMBERS = (
    *(0, 1, -1, 2, 7, 255, 1 << 20, 1 << 31, 1 << 32, 1 << 40, (1 << 48) - 1, 1 << 48, 1 << 63),
    *(1 << 64, -(1 << 63), 10**400, 0.5, -0.0, 1e-320, 3.5e38, 1e300, -1e300),
    *(float("nan"), float("inf"), float("-inf"), True, False),
)
OTHERS: tuple[Any, ...] = (
    *(None, "", "x", "\ud800", "\0", "nan", "float16", "1", [], {}, [[]], [1, 2, 3], {"class": 1}),
    *({"class": "object"}, {"class": "Cell"}, {"class": "Ideal"}, {"": None}, "é" * 50, [0] * 40),
)


# ---- bytes -------------------------------------------------------------------------------------


def truncated(data: bytes, rng: Random) -> Made:
    """Cut off the end, most often near a boundary."""
    return data[: int(rng.integers(len(data)))], False


def flipped(data: bytes, rng: Random) -> Made:
    """Flip some bits."""
    changed = bytearray(data)
    for place in rng.integers(len(data), size=int(rng.integers(1, 9))):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed), False


def spliced(data: bytes, rng: Random) -> Made:
    """Copy, insert or remove a run of bytes."""
    a, b, c = sorted(int(n) for n in rng.integers(len(data) + 1, size=3))
    how = int(rng.integers(4))
    if how == 0:
        return data[:a] + data[b:], False
    if how == 1:
        return data[:b] + data[a:b] + data[b:], False
    if how == 2:
        return data[:a] + bytes(c - a) + data[c:], False
    return data[:a] + data[b:c] + data[a:b] + data[c:], False


def foreign(data: bytes, rng: Random) -> Made:
    """Bytes that never were a file of this kind."""
    noise = rng.bytes(int(rng.integers(1, 400)))
    buffer = io.BytesIO()
    np.savez(buffer, a=np.arange(3))
    options = (b"", noise, b"PK\x03\x04" + noise, b"PK\x05\x06" + bytes(18), buffer.getvalue(),
               b"PK\x05\x06" + b"\xff" * 18, data + noise, noise + data)  # fmt: skip
    return options[int(rng.integers(len(options)))], False


# ---- members -----------------------------------------------------------------------------------


def members_of(data: bytes) -> dict[str, bytes]:
    """Contents of the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def packed(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Make an archive of members; two may have one name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as zipped:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            zipped.NameToInfo.pop(name, None)  # no warning about a second one
            zipped.writestr(info, content)
    return buffer.getvalue()


def rearranged(data: bytes, rng: Random) -> Made:
    """Leave out, double, exchange, rename or add a member."""
    members = list(members_of(data).items())
    k, j = (int(n) for n in rng.integers(len(members), size=2))
    how = int(rng.integers(6))
    if how == 0:
        del members[k]
    elif how == 1:
        members.append((members[k][0], members[j][1]))
    elif how == 2:
        (a, x), (b, y) = members[k], members[j]
        members[k], members[j] = (a, y), (b, x)
    elif how == 3:
        members[k] = (f"{members[k][0][:-5]}.npy", members[k][1])
    elif how == 4:
        members.append(("more.npy", members[j][1]))
    else:
        members.append(("header.json", b"{}"))
    method = int(rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2]))
    return packed(members, method), False


def claiming(data: bytes, rng: Random) -> Made:
    """Change a field of the archive's directory or of a member's head: sizes, methods, flags."""
    changed = bytearray(data)
    places = [n for n in range(len(data) - 4) if data[n : n + 4] in (b"PK\x01\x02", b"PK\x03\x04")]
    start = places[int(rng.integers(len(places)))]
    central = data[start : start + 4] == b"PK\x01\x02"
    field = int(rng.choice([6, 8, 10, 16, 20, 24, 28, 30, 42] if central else [6, 8, 14, 18, 22]))
    value = int(rng.choice([0, 1, 8, 12, 99, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]))
    width = 2 if field in (6, 8, 10, 28, 30) else 4
    changed[start + field : start + field + width] = (value & ((1 << 8 * width) - 1)).to_bytes(
        width, "little"
    )
    return bytes(changed), False


def bomb(data: bytes, rng: Random) -> Made:
    """Replace a member by one that unpacks to a gigabyte, or claims to."""
    members = members_of(data)
    name = str(rng.choice(sorted(members)))
    n = int(rng.choice([1 << 20, 1 << 28, 1 << 34, 1 << 44]))
    head = npy_head("|u1" if name == HEADER else "<f4", (n,))
    if n <= 1 << 28:
        return packed([*((k, v) for k, v in members.items() if k != name),
                       (name, head + bytes(min(n, 1 << 24)))]), False  # fmt: skip
    members[name] = head
    return packed(list(members.items())), False


# ---- arrays ------------------------------------------------------------------------------------


def npy_head(descr: str, shape: tuple[int, ...], fortran: Any = False) -> bytes:
    """Make the head of a ``.npy`` member that says anything."""
    text = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) & 0xFFFF) + text


def headed(data: bytes, rng: Random) -> Made:
    """Replace the head of a member of an archive."""
    members = members_of(data)
    name = str(rng.choice(sorted(members)))
    old = members[name]
    body = old[10 + int.from_bytes(old[8:10], "little") :]
    descr = str(rng.choice(["<f4", ">f4", "<f8", "|O", "<U8", "|V4", "<c8", "|b1", "|u1", "x",
                            "<f2", "<M8[s]", "<i8", "[('a', '<f4')]", "|S4"]))  # fmt: skip
    n = len(body) // 4
    shapes: list[Any] = [(n,), (n, 0), (1 << 62, 4), (-1,), (n, 1), (1,) * 70, (1 << 34,), ("x",)]
    head = npy_head(descr, shapes[int(rng.integers(len(shapes)))], rng.choice([False, True, 3]))
    how = int(rng.integers(4))
    if how == 0:
        head = head[:6] + bytes([int(rng.integers(5)), int(rng.integers(3))]) + head[8:]
    elif how == 1:
        head = head[:8] + b"\xff\xff" + head[10:]
    elif how == 2:
        deep = b"(" * int(rng.choice([50, 5000])) + b"\n"
        head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(deep)) + deep
    members[name] = head + body
    return packed(list(members.items())), False


def renumbered(data: bytes, rng: Random) -> Made:
    """Change numbers, the shape or the type of an array, with or without the checksum."""
    members = members_of(data)
    name = str(rng.choice(sorted(members.keys() - {HEADER})))
    array = np.load(io.BytesIO(members[name]))
    how = int(rng.integers(8))
    if how < 4 and array.size:
        array = array.copy()
        flat = array.reshape(-1)
        some = rng.integers(flat.size, size=int(rng.integers(1, 4)))
        pool = NUMBERS if array.dtype.kind == "f" else (-1, 0, 1, -(1 << 62), 1 << 62, 127, -128)
        with np.errstate(all="ignore"):
            value = pool[int(rng.integers(len(pool)))] if how < 3 else np.nan
            value = np.inf if isinstance(value, int) and value > 1 << 70 else value
            flat[some] = np.float64(value).astype(array.dtype)
    elif how == 4:
        array = array.reshape(-1)[: int(rng.integers(array.size + 1))]
    elif how == 5:
        array = np.concatenate([array.reshape(-1)] * 2)
    elif how == 6:
        with np.errstate(all="ignore"):
            array = array.astype(str(rng.choice(["<f8", ">f4", "<f2", "<i8", "|u1", "|b1"])))
    else:
        array = array[None]
    buffer = io.BytesIO()
    np.save(buffer, array)
    members[name] = buffer.getvalue()
    header = json.loads(np.load(io.BytesIO(members[HEADER])).tobytes())
    return rewritten(members, header, rng)


# ---- JSON --------------------------------------------------------------------------------------


def paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the places of all values within JSON."""
    if not isinstance(data, (dict, list)):
        return []
    found = []
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        found += [(*path, key), *paths(value, (*path, key))]
    return found


def revalued(data: Any, rng: Random) -> Any:
    """Change one to three values of JSON in place."""
    for _ in range(int(rng.integers(1, 4))):
        every = paths(data)
        if not every:
            break
        *path, last = every[int(rng.integers(len(every)))]
        part = data
        for key in path:
            part = part[key]
        how = int(rng.integers(8))
        if how == 0:
            del part[last]
        elif how == 1 and isinstance(part, list):
            part.insert(last, copy.deepcopy(part[last]))
        elif how == 1:
            part[f"{last}_more"] = copy.deepcopy(part[last])
        elif how < 5:
            part[last] = NUMBERS[int(rng.integers(len(NUMBERS)))]
        elif how == 5 and isinstance(part[last], (int, float)) and abs(part[last]) < 1e300:
            part[last] = part[last] + int(rng.choice([-1, 1, 2])) * type(part[last])(1)
        else:
            part[last] = copy.deepcopy(OTHERS[int(rng.integers(len(OTHERS)))])
    return data


def reheaded(data: bytes, rng: Random) -> Made:
    """Change values of the header, with or without the checksum."""
    members = members_of(data)
    header = revalued(json.loads(np.load(io.BytesIO(members[HEADER])).tobytes()), rng)
    return rewritten(members, header, rng)


def rewritten(members: dict[str, bytes], header: Any, rng: Random) -> Made:
    """Make an archive with the old checksum, without one, or with one that fits."""
    how = int(rng.integers(3))
    if how and isinstance(header, dict):
        header.pop("checksum", None)
    if how == 2 and isinstance(header, dict):
        try:
            from rpukit._files.archive import digest

            arrays = {k.removesuffix(".npy"): np.load(io.BytesIO(v)) for k, v in members.items()
                      if k != HEADER}  # fmt: skip
            header["checksum"] = digest(header, arrays)
        except (ImportError, ValueError):
            pass
    return with_text(members, dumped(header)), how > 0 or "checksum" not in header


def dumped(data: Any) -> bytes:
    """Write JSON, integers of any length included."""
    return json.dumps(data).encode()


def with_text(members: dict[str, bytes], text: bytes) -> bytes:
    """Make an archive with another text of the header."""
    head = npy_head("|u1", (len(text),))
    return packed([(HEADER, head + text), *((k, v) for k, v in members.items() if k != HEADER)])


def hostile_text(rng: Random, text: bytes) -> bytes:
    """JSON that no program writes."""
    depth = int(rng.choice([100, 900, 1100, 100_000]))
    long = b": 1" + b"0" * 5000
    options = (
        *(b"", b"null", b"[]", b"{", b"\xff\xfe{}", b"NaN", b'{"format": 1}', text + text),
        *(b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, text[:-1]),
        *(text.replace(b": ", b": [", 1), text.replace(b"{", b'{"version": 1, "version": 1,', 1)),
        *(text.replace(b": 1", b": 1e999"), text.replace(b": 1", long), b'"' + text),
        *(text.replace(b"0", b"-Infinity"), b"1" * 5000, b'{"nodes": ' + b"[{}," * 1000),
    )
    return options[int(rng.integers(len(options)))]


def retexted(data: bytes, rng: Random) -> Made:
    """Replace the text of the header by hostile JSON."""
    members = members_of(data)
    text = np.load(io.BytesIO(members[HEADER])).tobytes()
    return with_text(members, hostile_text(rng, text)), False


def json_values(data: bytes, rng: Random) -> Made:
    """Change values of a file of JSON, with or without its checksum."""
    values = revalued(json.loads(data), rng)
    old = isinstance(values, dict) and rng.random() < 0.8 and values.pop("checksum", None)
    return dumped(values), old is not False or "checksum" not in values


def json_text(data: bytes, rng: Random) -> Made:
    """Replace a file of JSON by a hostile one."""
    return hostile_text(rng, data), False


def in_table(damage: Damage) -> Damage:
    """Take a damage of bytes for a table, whose format has no checksum."""

    def changed(data: bytes, rng: Random) -> Made:
        return damage(data, rng)[0], True

    changed.__name__ = damage.__name__
    return changed


def cells(data: bytes, rng: Random) -> Made:
    """Change cells of a table of text."""
    rows = [row.split(b",") for row in data.split(b"\n")]
    row = rows[int(rng.integers(len(rows)))]
    pool = (b"", b"-1", b"nan", b"1e3", b"\xff", b"9" * 5000, b"x" * 200_000, b'"', b"\0", b"7")
    row[int(rng.integers(len(row)))] = pool[int(rng.integers(len(pool)))]
    return b"\n".join(b",".join(row) for row in rows), True


def checksum_free(data: bytes, rng: Random) -> Made:
    """Flip bits of stored members and mend the CRC, so that only the checksum can tell."""
    members = members_of(data)
    name = str(rng.choice(sorted(members)))
    changed, _ = flipped(members[name], rng)
    again = packed([(k, changed if k == name else v) for k, v in members.items()])
    return again, False


BYTES: tuple[Damage, ...] = (truncated, flipped, spliced, foreign)
ARCHIVE: tuple[Damage, ...] = (
    *(*BYTES, rearranged, claiming, bomb, headed, renumbered, reheaded, reheaded, reheaded),
    *(retexted, checksum_free),
)
JSON: tuple[Damage, ...] = (truncated, flipped, spliced, json_values, json_values, json_text)
TABLE: tuple[Damage, ...] = (*map(in_table, (truncated, flipped, spliced)), cells, cells)
