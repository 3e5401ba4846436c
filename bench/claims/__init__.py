"""The paper's claims, each with what checks it here: `python -m bench claims`."""
