"""House rules on text: lengths, spelling, and nothing that belongs to one machine."""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]


def project_files() -> list[Path]:
    """List the files that git tracks or would take; in an sdist, all files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        names = [name for name in done.stdout.split("\0") if name]
        return sorted(p for p in (ROOT / n for n in names) if p.is_file())
    found = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
    left_out = re.compile(r"(^|/)(\.\w+_cache|\.venv|__pycache__|build|dist|[^/]*\.egg-info)/")
    return sorted(ROOT / p for p in found if not left_out.search(p.as_posix()))


BINARY = {".npz", ".onnx", ".png", ".ico"}
DATA = {".json"}
FILES = [path for path in project_files() if path.suffix not in BINARY]
PYTHON = [path for path in FILES if path.suffix == ".py"]
CUDA = [path for path in FILES if path.suffix in (".cu", ".cuh")]
TEXTS = [path for path in FILES if path.suffix not in DATA and path.name != "LICENSE"]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def hits(pattern: str, path: Path) -> list[str]:
    """List "file:line: text" of every match in a file."""
    text = path.read_text(encoding="utf-8")
    found = re.finditer(pattern, text)
    return [f"{name(path)}:{text.count(chr(10), 0, m.start()) + 1}: {m[0]}" for m in found]


def fail_on(problems: list[str]) -> None:
    """Fail with all problems at once, one a line."""
    assert not problems, "\n" + "\n".join(problems)


def test_files_are_found():
    assert len(PYTHON) > 20
    assert len(CUDA) > 10


def test_files_end():
    """The aim is 400 lines of Python; past 450, and past 250 of CUDA, a file has to be split."""
    limits = [(path, 450) for path in PYTHON] + [(path, 250) for path in CUDA]
    lengths = [(p, limit, len(p.read_text(encoding="utf-8").splitlines())) for p, limit in limits]
    fail_on([f"{name(p)}: {n} lines, at most {limit}" for p, limit, n in lengths if n > limit])


def length(function: ast.FunctionDef) -> int:
    """Count the lines of a function after its signature and docstring."""
    body = function.body
    skip = ast.get_docstring(function) is not None and len(body) > 1
    return (function.end_lineno or 0) - body[skip].lineno + 1


def test_functions_fit_a_screen():
    """Up to 66 lines, a page; 90 in a mirror, which keeps the shape of its kernel."""
    problems = []
    for path in PYTHON:
        limit = 90 if "_mirror" in name(path) else 66
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and length(node) > limit:
                problems.append(f"{name(path)}:{node.lineno}: {node.name}, {length(node)} lines")
    fail_on(problems)


def test_nothing_of_one_machine():
    """No absolute path into somebody's folders, no address, no option that names a registry."""
    machine = r"(?<![\w.:])/(?:home|root|work|Users|mnt|opt)/[\w.]+"
    address = r"\b(?:localhost|(?:\d{1,3}\.){3}\d{1,3}):\d+|index-url|trusted-host"
    fail_on([hit for path in FILES for hit in hits(machine, path)])
    fail_on([hit for path in FILES if path != Path(__file__) for hit in hits(address, path)])


KNOWN_HOSTS = {
    "arxiv.org",
    "doi.org",
    "download.pytorch.org",
    "github.com",
    "keepachangelog.com",
    "semver.org",
    "www.apache.org",
}


def test_links_go_to_known_hosts():
    """A new host is added to the list when readers should go there."""
    links = [hit for path in FILES for hit in hits(r"https?://[\w.-]+", path)]
    fail_on([hit for hit in links if hit.split("//")[1] not in KNOWN_HOSTS])


def test_nothing_is_left_for_later():
    marks = "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"])
    fail_on([hit for path in TEXTS for hit in hits(rf"\b(?:{marks})\b", path)])


def test_lines_are_clean():
    problems = []
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        problems += [f"{name(path)}: no line end at the end"] * bool(text and text[-1] != "\n")
        problems += hits(r"[ \t\r]+\n", path)
    fail_on(problems)


def prose(path: Path) -> str:
    """Return what is written for people: comments and docstrings of code, all of other texts."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".cu", ".cuh"):
        return "\n".join(re.findall(r"//[^\n]*|/\*.*?\*/", text, re.S))
    if path.suffix != ".py":
        return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)  # code in pages
    parts = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    return "\n".join(parts + [ast.get_docstring(node) or "" for node in nodes])


# The project writes British English. Names of other libraries (color=, "center") are code.
AMERICAN = (
    r"(?i)\b(?:behavior|neighbor|favor(?:s|ed|able)?\b|honor|labeled|labeling|modeled|modeling"
    r"|canceled|artifact|analyz|initializ|optimiz|normaliz|minimiz|maximiz(?!e\b)|serializ|synchroniz"
    r"|vectoriz|quantiz(?!e\b)|summariz|parametriz(?!e\b)|recogniz|fulfill)\w*"
)


def test_spelling_is_british():
    problems = []
    for path in TEXTS:
        if path.suffix not in (".py", ".cu", ".cuh", ".md") or path == Path(__file__):
            continue
        if re.search(AMERICAN, path.read_text(encoding="utf-8")):  # `prose` takes much longer
            words = {m[0] for m in re.finditer(AMERICAN, prose(path))}
            problems += [f"{name(path)}: {word}" for word in sorted(words)]
    fail_on(problems)
