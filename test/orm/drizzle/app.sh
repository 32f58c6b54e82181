# shellcheck shell=bash disable=SC2034
# Drizzle with pg, in TypeScript: a schema, migrations by drizzle-kit, tests.  See ../run.sh.

packages=(nodejs npm)

have_packages() {
	command -v node && command -v npm
}

prepare() {
	npm ci
}

run_tests() {
	# tsx leaves a cache in TMPDIR.
	mkdir -p tmp && export TMPDIR=$PWD/tmp
	npm run check && npm test
}
