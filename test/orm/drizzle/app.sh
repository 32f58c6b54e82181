# shellcheck shell=bash disable=SC2034
# How test/orm/run.sh runs this application.

packages=(nodejs npm)

have_packages() {
	command -v node && command -v npm
}

prepare() {
	npm ci
}

run_tests() {
	# tsx leaves a cache of what it compiled.
	mkdir -p tmp && export TMPDIR=$PWD/tmp
	npm run check && npm test
}
