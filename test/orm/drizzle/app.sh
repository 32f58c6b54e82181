# shellcheck shell=bash disable=SC2034
# Drizzle with pg, in TypeScript: a schema, migrations by drizzle-kit, tests.  drizzle.js is its
# adapter for ../behaviours.py.  See ../run.sh.

packages=(nodejs npm python3)

have_packages() {
	command -v node && command -v npm && command -v python3
}

prepare() {
	npm ci
}

run_tests() {
	# tsx leaves a cache in TMPDIR.
	mkdir -p tmp && export TMPDIR=$PWD/tmp
	npm run check && ../behaviours.py node --import tsx drizzle.js && npm test
}
