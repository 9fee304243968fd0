# Two commands: `make run` and `make test`. Each installs what it needs, says so, and works offline once that is done.
# Everything else is `cargo xtask`.

.PHONY: help run test check plugins clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build everything and start `sluice dev`: edge on 127.0.0.1:8080, admin on 127.0.0.1:9090
	@sh xtask/install.sh run
	cargo xtask plugins
	cargo build --locked --workspace
	@exec target/debug/sluice dev

test: ## Run every test on private copies of Redis, NATS, MariaDB and Chromium
	@sh xtask/install.sh test
	cargo xtask test

check: ## Format, lints and the direction of imports
	cargo xtask check

plugins: ## Build the policies to target/plugins
	cargo xtask plugins

clean: ## Remove what was built
	cargo clean
