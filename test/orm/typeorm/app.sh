# shellcheck shell=bash
# TypeORM with pg, in TypeScript: entities, a migration, its command line tool, tests.  See ../run.sh.
# shellcheck disable=SC2034
packages=(nodejs npm)

have_packages() {
	command -v node && command -v npm
}

# package.json pins yargs, so that TypeORM's command line tool also runs on Node.js 18.
prepare() {
	npm ci && npm run build
}

run_tests() {
	npm test
}
