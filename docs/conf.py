"""Settings of the documentation: `make docs` writes docs/_build/html."""

import base64
import dataclasses
import enum
import inspect
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

from docutils.nodes import Element, SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

import rpukit

project = "rpukit"
author = "The rpukit developers"
project_copyright = author
version = release = rpukit.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
# reStructuredText first: autosummary writes its pages with the first suffix
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}
templates_path = ["_templates"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `make notebooks` runs them and compares; here they are shown
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"

HERE = Path(__file__).parent
FIGURES = HERE / "generated" / "gallery"


def show_notebooks(source: Path, place: Path) -> None:
    """Copy the notebooks, which live beside the code, to where Sphinx reads; list them."""
    place.mkdir(exist_ok=True)
    names = sorted(path.name for path in source.glob("*.ipynb"))
    for name in names:
        shutil.copy2(source / name, place)
    lines = [
        "# Notebooks",
        "",
        "Longer studies, executed. The files are in the folder `notebooks`.",
    ]
    lines += ["", "```{toctree}", ":maxdepth: 1", "", *(Path(n).stem for n in names), "```", ""]
    (place / "index.md").write_text("\n".join(lines), encoding="utf-8")


def draw_out(notebook: Path) -> None:
    """Write each figure of a notebook to a file of its own, for the gallery."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [one.get("data", {}) for cell in cells for one in cell.get("outputs", ())]
    figures = [data["image/png"] for data in outputs if "image/png" in data]
    for number, figure in enumerate(figures, 1):
        content = base64.b64decode("".join(figure))
        (FIGURES / f"{notebook.stem}-{number}.png").write_bytes(content)


show_notebooks(HERE.parent / "notebooks", HERE / "notebooks")
for notebook in sorted((*HERE.glob("tutorials/*.ipynb"), *HERE.glob("notebooks/*.ipynb"))):
    draw_out(notebook)

autosummary_generate = True


def public_modules(owner: ModuleType, place: str) -> dict[str, ModuleType]:
    """Modules below one, by the names under which users reach them."""
    found = {}
    for name in owner.__all__:
        if inspect.ismodule(module := getattr(owner, name)):
            found[f"{place}.{name}"] = module
            sys.modules.setdefault(f"{place}.{name}", module)  # rk.presets is defined elsewhere
            found |= public_modules(module, f"{place}.{name}")
    return found


_MODULES = public_modules(rpukit, "rpukit")
_EXPORTS = {name: list(module.__all__) for name, module in _MODULES.items()}
autosummary_context = {
    # names that have a page below their module, and names that have one as rk.<name>
    "exports": {m: [n for n in all_ if n not in rpukit.__all__] for m, all_ in _EXPORTS.items()},
    "shared": {m: [n for n in all_ if n in rpukit.__all__] for m, all_ in _EXPORTS.items()},
    # inherited members are shown, but for those of classes that are not ours
    "foreign_bases": [
        *("object", "str", "int", "Enum", "BaseException"),
        *("BaseEstimator", "ClassifierMixin", "RegressorMixin"),
    ],
    "foreign_members": [
        "get_metadata_routing",
        *(
            f"set_{call}_request"
            for call in ("fit", "partial_fit", "predict", "predict_proba", "score", "sample")
        ),
    ],
}
autodoc_typehints = "none"  # types are said in the docstrings, with shapes and units
numpydoc_show_class_members = False  # the class template lists them

html_math_renderer = "mathml"  # browsers draw it themselves: no script, no network
html_static_path = ["_static"]
html_css_files = ["rpukit.css"]
html_theme = "pydata_sphinx_theme"
html_title = f"rpukit {version}"
html_sidebars = {"**": ["sidebar-pages"]}  # all pages on the left, by their captions
html_theme_options = {
    "navbar_center": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
}


def visit_inline_math(writer: HTML5Translator, node: Element) -> None:
    """Write a formula within a line as MathML."""
    writer.body.append(tex2mathml(node.astext()))
    raise SkipNode


def visit_display_math(writer: HTML5Translator, node: Element) -> None:
    """Write a formula of its own as MathML."""
    writer.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode


def link_to_copies(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to notebooks, which are right in the repository, lead to their copies here."""
    up = "../" * page.count("/")
    source[0] = source[0].replace(f"](../{up}notebooks/", f"]({up}notebooks/")


def show_fields(
    app: Sphinx, what: str, name: str, value: object, *others: object
) -> tuple[str, str] | None:
    """Show the parameters of a dataclass, with plain defaults, where Sphinx sees ``*args``."""
    if what != "class" or not dataclasses.is_dataclass(value):
        return None
    shown = [
        one.replace(
            annotation=one.empty,
            default=one.default.value if isinstance(one.default, enum.Enum) else one.default,
        )
        for one in inspect.signature(value).parameters.values()
    ]
    return str(inspect.Signature(shown)), ""


def widen(app: Sphinx, doctree: Element) -> None:
    """Leave out the right bar where code or figures stand side by side."""
    page = app.env.docname
    if page.startswith("coming_from/") or page in ("gallery", "index"):
        app.env.metadata[page]["html_theme.sidebar_secondary.remove"] = "true"


def setup(app: Sphinx) -> None:
    """Tell Sphinx how to write formulas and signatures, and which pages are wide."""
    app.connect("source-read", link_to_copies)
    app.connect("doctree-read", widen)
    app.connect("autodoc-process-signature", show_fields)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(visit_inline_math, None),
        block_renderers=(visit_display_math, None),
    )
