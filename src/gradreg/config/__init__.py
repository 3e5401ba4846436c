"""Settings as text and as typed values: TOML, tables to dataclasses, and radii as people write them."""
