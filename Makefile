# One word for each thing a person wants to do here; `make setup` comes by itself before the others.

# The best Python 3.11 or newer on the path: 3.12 and up first, where the fast transport engine is available.
PYTHON ?= $(shell \
	for oldest in 12 11; do \
		for python in python3 python3.14 python3.13 python3.12 python3.11; do \
			if $$python -c "import sys; sys.exit(sys.version_info < (3, $$oldest))" 2>/dev/null; then \
				echo $$python; exit; \
			fi; \
		done; \
	done)
VENV ?= .venv
EXTRAS ?= fast,dev
RUN := $(VENV)/bin
STAMP := $(VENV)/.ready
unexport PYTHONDONTWRITEBYTECODE  # hundreds of processes start in the tests: each would compile all modules anew
NODE := cd web_peer && ./with_node.sh $(abspath $(VENV))
PACKAGES := web_peer/node_modules/.package-lock.json
APP := web_peer/dist/index.html
APP_SOURCES := $(shell find web_peer/src web_peer/ui web_peer/public web_peer/index.html web_peer/vite.config.ts -type f)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick soak generate check bench dist clean

help:  ## list these words
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/'

setup: $(STAMP) $(APP)  ## make .venv with everything that Shoal and its checks need, and the page of the tab

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { \
		echo "Shoal needs Python 3.11 or newer and found none: install it, or name one with make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	}
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
		echo "Shoal needs Python 3.11 or newer; $(PYTHON) is not: name another with make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	}
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || { \
		version=$$($(PYTHON) -c "import sys; print('%d.%d' % sys.version_info[:2])"); \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing python$$version-venv, which Debian keeps in a package of its own"; \
			DEBIAN_FRONTEND=noninteractive apt-get update -qq; \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$$version-venv" >/dev/null; \
		else \
			echo "$(PYTHON) cannot make virtual environments: run 'sudo apt-get install python$$version-venv', then make again" >&2; \
			exit 1; \
		fi; \
	}
	@echo "making $(VENV) with $$($(PYTHON) --version); the first time this takes two or three minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $(STAMP)

$(PACKAGES): web_peer/package-lock.json | $(STAMP)
	@echo "installing the packages of web_peer; the first time this takes a minute"
	@$(NODE) npm ci --loglevel=error || { \
		echo "npm could not install the packages of web_peer: is the npm registry within reach? make tries again" >&2; \
		exit 1; \
	}
	@touch $@

$(APP): $(PACKAGES) $(APP_SOURCES)
	@echo "building the page of the tab into web_peer/dist"
	@$(NODE) npm run --silent build -- --logLevel error
	@touch $@

demo: setup  ## three peers on this machine answer a question (ONCE=1: then end)
	@if [ -t 0 ] && [ -z "$(ONCE)" ]; then exec $(RUN)/shoal demo; else exec $(RUN)/shoal demo --once; fi

WITH_NODE := PATH="$$($(NODE) sh -c 'printf %s "$$PATH"')"; export PATH;

test: setup  ## every test: 20 to 45 minutes on two cores (ARGS=...: those of pytest that it names, such as ARGS=tests/planner)
	@if [ -z "$(ARGS)" ]; then sh tests/install.sh; fi; \
	$(WITH_NODE) \
	if [ -z "$(ARGS)" ]; then $(RUN)/python tests/lanes.py test $(abspath $(VENV)); else $(RUN)/python -m pytest $(ARGS); fi || { \
		status=$$?; \
		test $$status -ne 5 || echo "pytest found no test to run: expected some under tests/" >&2; \
		exit $$status; \
	}

test-quick: setup  ## a cross-section of the tests, with one real mesh and one real browser: about 4 minutes
	@sh tests/install.sh; $(WITH_NODE) $(RUN)/python tests/lanes.py quick $(abspath $(VENV))

soak: setup  ## every series of simulated runs, mutants, damaged files and models, of which `make test` runs a part
	@sh tests/install.sh; $(WITH_NODE) $(RUN)/python tests/lanes.py soak $(abspath $(VENV))

generate: setup  ## write what schema/ says into both languages and docs/protocol.md
	@$(RUN)/python -m schema.generate

check: setup  ## format, lint, types, import contracts, generated files, parity of the two languages
	@failed=; \
	for tool in "ruff format --check ." "ruff check ." "mypy" "lint-imports" "python -m schema.generate --check"; do \
		echo "$$tool"; $(RUN)/$$tool || failed="$$failed  $$tool\n"; \
	done; \
	echo "parity"; ($(WITH_NODE) $(RUN)/python -m tests.parity) || failed="$$failed  parity\n"; \
	echo "tsc, eslint, prettier"; ($(NODE) npm run --silent check) || failed="$$failed  tsc, eslint or prettier\n"; \
	if [ -n "$$failed" ]; then printf "not clean:\n$$failed" >&2; exit 1; fi

bench: setup  ## the first two tables of docs/benchmarks.md
	$(RUN)/shoal bench single
	$(RUN)/shoal bench pipeline

dist: setup  ## a wheel and a source archive, both with the page of the tab, in dist/
	@rm -rf dist
	@$(RUN)/python -m build --no-isolation --outdir dist .
	@echo "install it with: pipx install $$(ls dist/*.whl), or pip, or uv tool install"

clean:  ## remove what make and the tools made; the model store in the cache stays
	rm -rf $(VENV) .venv-fast .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist \
		web_peer/node_modules web_peer/dist
	find planner signaling peer tests examples docs -name __pycache__ -type d -prune -exec rm -rf {} +
