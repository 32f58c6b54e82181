# shellcheck shell=bash disable=SC2034
# Prisma on the driver pg.  See ../run.sh and ../behaviours.py.

packages=(nodejs npm python3)

have_packages() {
	command -v node && command -v npm && command -v python3
}

# "prisma generate" downloads a program for migrations, which it does not use.  With the variable, it takes the
# program that is named there.
prepare() {
	npm ci && CHECKPOINT_DISABLE=1 PRISMA_SCHEMA_ENGINE_BINARY=$(type -P true) DATABASE_URL=postgresql://localhost/none \
		npx --no-install prisma generate
}

run_tests() {
	../behaviours.py node prisma.js
}
