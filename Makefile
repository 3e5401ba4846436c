# make demo        the tour: trains, compares and says what it shows
# make test        lint, types and tests, as CI does
# make test-slow   the tests that take minutes
# make test-extras the tests with other libraries (Hugging Face's, Lightning, Ray, MLflow, …), in an environment of their own
# make test-examples of these, the examples: every training loop, and the notebook
# make docs        the site, built strictly from docs/ and served at http://localhost:8000
# make tables      the tables and figures of docs, made again from results/
# All make .venv first, pinned by constraints.txt; when nothing changed that costs nothing.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
EXTRAS := .venv-extras/.installed
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

.PHONY: demo docs tables test test-slow test-extras test-examples lint format clean

demo: $(INSTALLED)
	$(BIN)/gradreg demo

docs: $(INSTALLED)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs site
	$(BIN)/python -m http.server --bind localhost --directory site 8000

tables: $(INSTALLED)
	$(BIN)/python -m docs.make

test: lint
	$(PYTEST) -m "not slow" --cov --cov-report=term

test-slow: $(INSTALLED)
	$(PYTEST) -m slow

test-extras: $(EXTRAS)
	GRADREG_EXTRAS=1 OMP_NUM_THREADS=1 .venv-extras/bin/pytest tests/extras

test-examples: $(EXTRAS)
	GRADREG_EXTRAS=1 OMP_NUM_THREADS=1 .venv-extras/bin/pytest tests/test_examples.py tests/extras/test_extras_examples.py \
		tests/extras/test_extras_tour.py

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv .venv-extras .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache site

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gradreg needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[dev]'
	touch $(INSTALLED)

$(EXTRAS): pyproject.toml constraints.txt tests/extras/constraints.txt
	$(PYTHON) -m venv .venv-extras
	.venv-extras/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c tests/extras/constraints.txt \
		--editable '.[all,hf,mlflow,tensorboard,wandb]' torch==2.13.0 accelerate datasets lightning peft 'ray[train]' \
		hypothesis ipykernel nbclient pytest
	# Peers pin versions of what they need, or name what they do not need: their needs here, then they themselves.
	.venv-extras/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -c tests/extras/constraints.txt \
		eagerpy GitPython jsonschema onnx onnxruntime onnxscript pandas requests scikit-learn six tqdm
	.venv-extras/bin/python -m pip install --quiet --disable-pip-version-check -c tests/extras/constraints.txt --no-deps \
		adversarial-robustness-toolbox foolbox pyautoattack torchattacks
	touch $(EXTRAS)
