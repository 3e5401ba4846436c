"""What the site needs beyond Sphinx: links into the repository, plain docstrings, equations without a network."""

EXTENSIONS = [f"docs.site.{name}" for name in ("docstrings", "mathml", "reference", "repository")]
