"""Configuration of Sphinx, which builds these pages: `make docs`."""

import inspect
import pathlib
import pkgutil
import re
import sys

import sphinx.util.logging
from sphinx.ext import autodoc

DOCS = pathlib.Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "extensions")]

import agents  # noqa: E402

project = "agents"
author = "The agents developers"
version = release = agents.__version__
html_title = "agents"
html_theme = "furo"
html_math_renderer = "mathml"
html_copy_source = html_show_copyright = False
highlight_language = "none"
exclude_patterns = ["_build"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "fields",
    "mathml",
    "results",
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
default_role = "code"  # Docstrings mark code as Markdown does.
autodoc_inherit_docstrings = False  # The page of the base class has them.
autodoc_member_order = "bysource"
autodoc_mock_imports = ["ray"]
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
napoleon_use_ivar = True
toc_object_entries = False  # Contents of pages are modules; more takes long.
# Types in signatures link to this site only, which has no page for private ones.
nitpick_ignore_regex = [("py:.*", r"(?!agents\.).*|.*\._\w+")]
# Many classes have a field called `type`, which the builtin in signatures is not.
suppress_warnings = ["ref.python"]


def write_reference(app) -> None:
    """Write one page per package into `api`, with all of its modules."""
    folder = DOCS / "api"
    folder.mkdir(exist_ok=True)
    packages = ["agents"] + [
        name
        for _, name, is_package in pkgutil.walk_packages(agents.__path__, "agents.")
        if is_package and name != "agents.scripts"
    ]
    for name in packages:
        path = pathlib.Path(DOCS.parent, *name.split("."))
        text = [name, "=" * len(name), "", f".. automodule:: {name}", ""]
        for module in pkgutil.iter_modules([str(path)]):
            if not module.ispkg:
                text += [module.name, "-" * len(module.name), ""]
                text += [f".. automodule:: {name}.{module.name}", "   :members:"]
                text += ["   :show-inheritance:", ""]
        write(folder / f"{name}.rst", "\n".join(text))
    for page in folder.glob("agents*.rst"):
        if page.stem not in packages:  # Of a package that is gone.
            page.unlink()
    entries = "\n".join(f"   {name}" for name in packages)
    head = "API reference\n=============\n\n.. toctree::\n   :maxdepth: 1\n\n"
    write(folder / "index.rst", head + entries + "\n")


def write(path: pathlib.Path, text: str) -> None:
    """Write a file unless it has this text, so that Sphinx reads only what is new."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def name_exports(app, what, name, obj, options, lines) -> None:
    """Link what a package exports from its page."""
    if what == "module" and hasattr(obj, "__path__") and getattr(obj, "__all__", ()):
        with autodoc.mock(autodoc_mock_imports):  # Exports are imported only now.
            modules = {name: getattr(obj, name).__module__ for name in obj.__all__}
        links = [f":py:obj:`{x} <{module}.{x}>`" for x, module in modules.items()]
        lines += ["", f"It exports {', '.join(links)}.", ""]


def hide_bounds(app, what, name, obj, options, signature, result):
    """Leave the bounds of numbers, which fields show, out of signatures."""
    if signature is None:
        return None
    pattern = r"(?:~?typing\.)?Annotated\[(.*?), ~?[\w.]*Bounds\([^()]*\)\]"
    return re.sub(pattern, r"\1", signature), result


def mark_code(app, what, name, obj, options, lines) -> None:
    """Turn code in a docstring, marked as in Markdown, into literals."""
    block = "\n.. code-block:: default\n\n"
    text = re.sub(r"(?<=\n)\n(?=    )", block, "\n".join(lines))
    text = re.sub(r"(?<![`:])`([^`<]+)`", r"``\1``", text)
    if what == "attribute":  # After this comment, a colon is no end of a type.
        text = f"..\n\n{text}"
    lines[:] = text.split("\n")


def refuse_undocumented(app, what, name, obj, skip, options) -> None:
    """Warn of public classes and functions of this package without docstring."""
    public = inspect.isroutine(obj) or inspect.isclass(obj)
    ours = str(getattr(obj, "__module__", "")).startswith("agents.")
    if public and ours and not name.startswith("_") and not inspect.getdoc(obj):
        logger = sphinx.util.logging.getLogger(__name__)
        logger.warning("%s.%s has no docstring", obj.__module__, name)


def setup(app) -> None:
    """Write the reference, and connect to autodoc, before and after Napoleon."""
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-signature", hide_bounds)
    app.connect("autodoc-process-docstring", mark_code, priority=400)
    app.connect("autodoc-process-docstring", name_exports, priority=600)
    app.connect("autodoc-skip-member", refuse_undocumented)
