# shellcheck shell=bash
# TypeORM with pg, in TypeScript: entities, a migration, its command line tool, tests.  typeorm.mjs is its adapter
# for ../behaviours.py.  See ../run.sh.
# shellcheck disable=SC2034
packages=(nodejs npm python3)

have_packages() {
	command -v node && command -v npm && command -v python3
}

# package.json pins yargs, so that TypeORM's command line tool also runs on Node.js 18.
prepare() {
	npm ci && npm run build
}

run_tests() {
	../behaviours.py node typeorm.mjs && npm test
}
