"""Check all links, anchors and images within the built site, without a network.

    python tools/check_links.py docs/_build/html

Links to other hosts are not followed; ``python -m sphinx -b linkcheck docs docs/_build/links``
does that.
"""

import sys
from html.parser import HTMLParser
from os.path import normpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src"}


class Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the target of a link, and every name that others may link to."""
        given = dict(attrs)
        self.anchors |= {given[name] or "" for name in ("id", "name") if given.get(name)}
        if target := given.get(LINKS.get(tag, "")):
            self.links.add(target)


def faults(root: Path) -> tuple[list[str], int]:
    """List the links that lead nowhere, and count all that stay within the site."""
    pages = {
        path.resolve(): Page(path)
        for path in sorted(root.rglob("*.html"))
        if "_static" not in path.parts
    }
    wrong, count = [], 0
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = Path(normpath(path.parent / unquote(parts.path))) if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists():
                wrong.append(f"{path.relative_to(root.resolve())}: no file for {link}")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                wrong.append(f"{path.relative_to(root.resolve())}: no anchor for {link}")
    return wrong, count


def main(folder: str = "docs/_build/html") -> int:
    """Print the faults of a site."""
    wrong, count = faults(Path(folder))
    print("\n".join(wrong) or f"{count} links within the site lead somewhere")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
