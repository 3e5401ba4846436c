"""What the site needs beyond Sphinx: links into the repository, plain docstrings, equations without a network."""

EXTENSIONS = [f"docs.site.{name}" for name in ("commands", "docstrings", "mathml", "reference", "repository")]
