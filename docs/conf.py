"""The documentation site: ``python -m sphinx -W --keep-going docs OUT``.

It builds without a network: names of other libraries are then looked up in the short lists below
``inventories``, beside which intersphinx has no complaint. A reader's browser fetches nothing
either; formulas are MathML.
"""

import re
import sys
from pathlib import Path

from docutils.nodes import SkipNode
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from docutils.utils.math.unichar2tex import uni2tex_table
from sphinx.util import logging

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # the checkout, before any installed version

import semiring_mm  # noqa: E402

project = "semiring_mm"
author = "the semiring_mm developers"
copyright = "the semiring_mm developers, BSD 3-Clause licence"
version = release = semiring_mm.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "myst_parser",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_templates", "inventories"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(cupy|dask|distributed|jax|networkx|numpy|scipy|sklearn|torch)\..*")
]

# Other libraries' names: their own inventory, or else the names in a file here that docstrings use.
OTHERS = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "sklearn": "https://scikit-learn.org/stable/",
    "networkx": "https://networkx.org/documentation/stable/",
    "matplotlib": "https://matplotlib.org/stable/",
    "cupy": "https://docs.cupy.dev/en/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "jax": "https://docs.jax.dev/en/latest/",
    "dask": "https://docs.dask.org/en/stable/",
}
NAMES = {path.stem for path in HERE.glob("inventories/*.txt")}
intersphinx_mapping = {
    name: (url, (None, f"inventories/{name if name in NAMES else 'none'}.txt"))
    for name, url in OTHERS.items()
}
intersphinx_timeout = 5

# Pages are Markdown that reads as well where the code is hosted.
myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 3

# API reference: the signature says which arguments there are, the docstring what they may be.
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_validation_checks = {
    "all",
    "ES01", "EX01", "SA01",  # not every name needs more sentences, an example, neighbours
    "PR04", "PR07", "RT03", "RT04",  # `a, b`: as elsewhere; types with shapes that say it all
    "SS05",  # "All-pairs ..." is no verb in the third person
}  # fmt: skip
#: Made by the library, not by its users: they have attributes, not parameters.
MADE = (
    r"\.(NegativeCycleError|SemiringLawError|Graph|LabelledArray|PreparedGraph|Statistics|Histogram"
    r"|Nearest|Flows|CRFLoss|Eigen|Paths|Within|Places|Route|Streets|Alignment)$"
)
numpydoc_validation_exclude = {MADE, r"\.LabelledArray\.(copy|sort|partition)$"}  # these as NumPy's
toc_object_entries_show_parents = "hide"
viewcode_line_numbers = True

# What is shown with its prompt is copied without it.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../apps",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/apps/[a-z]\w*\.py$",
    "ignore_pattern": r"^_",
    "backreferences_dir": "gallery/uses",
    "doc_module": ("semiring_mm",),
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1,
    "plot_gallery": True,
}

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "semiring_mm"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "semiring_mm", "alt_text": "semiring_mm: home"},
    "footer_start": ["copyright"],
    "footer_center": [],
    "footer_end": ["sphinx-version"],
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"index": [], "**": ["page-toc"]},
}
html_sidebars = {"index": [], "performance": []}


def picture_first(page):
    """A page of the gallery, with the picture that its program draws below the title too."""
    image = re.search(r"^\.\. image-sg::.*\n(?:   .*\n)+", page, re.MULTILINE)
    if not image:  # its program was not run
        return page
    title = re.search(r"^.+\n=+\n", page, re.MULTILINE)
    return f"{page[: title.end()]}\n{image[0]}\n{page[title.end() :]}"


def setup(app):
    """Connect: the table of semirings, MathML by docutils, pictures and headers of the gallery."""

    def tables(app, page, source):  # the semirings, as they are in the code
        begin, end = "<!-- bench-semirings:begin -->", "<!-- bench-semirings:end -->"
        head, found, rest = source[0].partition(begin)
        if found:
            rest = rest.partition(end)[2]
            source[0] = f"{head}{semiring_mm.semirings._repr_markdown_()}\n{rest}"

    app.connect("source-read", tables)

    def signatures(app, what, name, *_):
        return ("", "") if re.search(MADE, name) else None

    app.connect("autodoc-process-signature", signatures)

    def pictures(app, page, source):
        if page.startswith("gallery/"):
            source[0] = picture_first(source[0])

    app.connect("source-read", pictures)

    def headers(app):  # README.md in a folder below apps would make a part of the gallery of it
        app.config.sphinx_gallery_conf["source_suffix"] = {".rst": "restructuredtext"}

    app.connect("builder-inited", headers, priority=1)

    def visit(self, node):
        formula = node.astext().translate({**uni2tex_table, ord("·"): r"\cdot "})
        try:
            self.body.append(tex2mathml(formula, as_block=node.tagname == "math_block"))
        except MathError as error:
            logging.getLogger(__name__).warning("%s: %s", formula, error, location=node)
        raise SkipNode

    app.add_html_math_renderer("mathml", (visit, None), (visit, None))
