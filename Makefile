.PHONY: papers dist addon demo pictures test all-tests plain-tests quick quick-tests mutants soak bench docs constraints \
    lint setup-demo setup-test

# Tests wait as much as they compute: five at a time keep two cores busy.
FIVE = --workers 5

# Those of `make quick` compute only.
TWO = --workers 2

# `make lint` looks at the form of code and pages.
FORM = tests/test_words.py
NO_FORM = --ignore $(FORM)

# What was compiled is kept, whatever the environment says: compiling all tests takes longer than running most of them.
export PYTHONDONTWRITEBYTECODE =

demo: setup-demo
	.venv/bin/fugu demo

# The README's picture, of a new run: what it says in the README is to be written again then.
pictures: setup-demo
	.venv/bin/fugu demo --no-browser --out demo
	cp demo/watch-N10.svg docs/pictures/night.svg
	cp demo/watch-N10-dark.svg docs/pictures/night-dark.svg

# The kernels' plain twins run while the tests of all begin, which one processor does.
test: setup-test
	$(MAKE) --no-print-directory --jobs 2 all-tests plain-tests

all-tests:
	.venv/bin/python -m pytest $(FIVE) $(NO_FORM)

plain-tests:
	NUMBA_DISABLE_JIT=1 .venv/bin/python -m pytest $(TWO) tests/chains tests/privacy/accountant/test_inner_maximum.py \
	    --ignore tests/chains/test_kernel.py -k 'not recovers and not long_stream and not expects_to_win'

# No broker, no other processes, nothing that takes long. With ROOM=gateway.releases, of that room and those above it.
quick: setup-test
	$(MAKE) --no-print-directory --jobs 2 lint quick-tests

quick-tests:
	.venv/bin/python -m pytest $(TWO) $(NO_FORM) -m 'not soak and not processes and not long' \
	    $(if $(ROOM),$$(.venv/bin/python -m tests.support.rooms $(ROOM)))

# Seeded faults, and whether the tests find them: a sample, by SEED if given, or with ALL=1 all of them, which takes long.
mutants: setup-test
	.venv/bin/python -m tests.mutants.run $(if $(ALL),--all) $(if $(SEED),--seed $(SEED))

# All of it within four hours on two cores: a test that takes an hour is ended. Afterwards tests/soak.tsv has a row of
# each test; those that have not run say so.
soak:
	deploy/bootstrap.sh fuzz mosquitto=mosquitto faketime=faketime pg_createcluster=postgresql chromium=chromium \
	    chromedriver=chromium-driver
	TESTS_PATIENCE=1000 .venv/bin/python -m pytest --workers 3 -m soak --timeout 3600

bench:
	deploy/bootstrap.sh bench mosquitto=mosquitto pg_createcluster=postgresql chromium=chromium chromedriver=chromium-driver
	.venv/bin/python benchmarks/edge.py
	.venv/bin/python benchmarks/wear.py
	.venv/bin/python benchmarks/firmware.py
	.venv/bin/python benchmarks/latency.py
	.venv/bin/python benchmarks/estimates.py
	.venv/bin/python benchmarks/ingest.py
	.venv/bin/python benchmarks/flood.py
	.venv/bin/python benchmarks/start.py
	.venv/bin/python benchmarks/scale.py
	.venv/bin/python benchmarks/broker.py
	.venv/bin/python benchmarks/postgres.py
	.venv/bin/python benchmarks/chain.py
	.venv/bin/python benchmarks/privacy.py
	.venv/bin/python benchmarks/dphmm.py
	.venv/bin/python benchmarks/tracking.py
	.venv/bin/python benchmarks/real.py
	.venv/bin/python benchmarks/history.py
	.venv/bin/python benchmarks/cluster.py
	.venv/bin/python benchmarks/dashboard.py
	.venv/bin/python benchmarks/first_seconds.py
	.venv/bin/python benchmarks/weight.py
	.venv/bin/python benchmarks/install.py
	.venv/bin/python benchmarks/walks.py
	.venv/bin/python benchmarks/stretches.py
	.venv/bin/python benchmarks/stretch_attacks.py
	.venv/bin/python benchmarks/recordings.py
	.venv/bin/python benchmarks/reading.py
	.venv/bin/python benchmarks/classes.py
	.venv/bin/python benchmarks/classes.py --truths 40
	.venv/bin/python benchmarks/means.py
	.venv/bin/python benchmarks/groups.py
	.venv/bin/python benchmarks/sums.py

# Every published figure and table, ours beside it: reproduction/report.html.
papers: setup-test
	.venv/bin/python -m papers all

# The manual as a site that needs no network: build/site/index.html.
docs: setup-test
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict

# Asks the package index for versions and hashes; its address is written nowhere.
constraints: setup-test
	.venv/bin/python deploy/constraints.py

# The form of code and pages: style, types and words. The tests need none of it.
lint: setup-test
	.venv/bin/ruff check .
	.venv/bin/ruff check --preview --select DOC102 .
	.venv/bin/ruff format --check .
	.venv/bin/python -m pytest $(FORM)
	.venv/bin/mypy

# What an index would be given: source and wheel, and whether it would take them. Nothing is sent anywhere.
dist:
	deploy/bootstrap.sh demo
	deploy/bootstrap.sh dist
	rm -rf dist deploy/man
	.venv/bin/python deploy/manual.py deploy/man
	.venv/bin/python -m build --outdir dist .
	.venv/bin/twine check --strict dist/*

# The gateway as an app of Home Assistant: copy dist/fugu_edge to its folder /addons. It is built on the image that you
# have looked up: make addon PYTHON_DIGEST=sha256:...   Who publishes it says where: URL=https://...
addon: dist
	@printf '%s\n' '$(PYTHON_DIGEST)' | grep -Eqx 'sha256:[0-9a-f]{64}' || \
	    { echo "say which image to build on, as in docs/home-assistant.md: make addon PYTHON_DIGEST=sha256:..." >&2; exit 1; }
	cp -r deploy/home-assistant dist/fugu_edge
	sed -i 's|^ARG PYTHON_DIGEST$$|ARG PYTHON_DIGEST=$(PYTHON_DIGEST)|' dist/fugu_edge/Dockerfile
	sed -i $(if $(URL),'s|@URL@|$(URL)|','/@URL@/d') dist/fugu_edge/config.yaml dist/fugu_edge/repository.yaml
	mv dist/fugu_edge/repository.yaml dist
	cp dist/*.whl deploy/constraints/gateway.txt CHANGELOG.md dist/fugu_edge

setup-demo:
	deploy/bootstrap.sh demo

setup-test:
	deploy/bootstrap.sh dev mosquitto=mosquitto mosquitto_sub=mosquitto-clients faketime=faketime curl=curl \
	    pg_createcluster=postgresql chromium=chromium chromedriver=chromium-driver
