"""`python tests/fuzz`: puts the tests' folders on the path, as pytest does, and runs the campaign."""

import sys
from importlib import import_module
from pathlib import Path

TESTS = Path(__file__).parents[1]

if __name__ == "__main__":
    sys.path += [str(TESTS), str(TESTS.parent)]
    import_module("fuzz_campaign").main()
