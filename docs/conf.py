"""How Sphinx makes the site out of docs/; `make docs` builds and serves it, a test builds it strictly."""

from docs.site import EXTENSIONS
from gradreg._version import __version__

project = "gradreg"
author = "the gradreg authors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", *EXTENSIONS]
exclude_patterns = ["make", "site"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# Docstrings are plain text with code between backticks; docs.site.docstrings makes them what Sphinx reads.
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
add_module_names = False

smartquotes = False
# Blocks without a language are commands and their output.
highlight_language = "text"

html_theme = "furo"
html_title = f"gradreg {version}"
html_static_path = ["site/static"]
html_css_files = ["gradreg.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_math_renderer = "mathml"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5394", "color-brand-content": "#0b5394"},
    "dark_css_variables": {"color-brand-primary": "#7fb8f0", "color-brand-content": "#7fb8f0"},
}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
# What a reader copies is the command and not its prompt.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
