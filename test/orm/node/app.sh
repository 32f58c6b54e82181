# shellcheck shell=bash disable=SC2034
# ORMs, session stores and caches for Node.js, each in one file.  See ../run.sh, ../behaviours.py and
# ../stores.py.

packages=(nodejs npm python3)

have_packages() {
	command -v node && command -v npm && command -v python3
}

prepare() {
	npm ci
}

run_tests() {
	local name status=0
	for name in sequelize knex mikro-orm; do
		in_new_schema ../behaviours.py node "$name.js" || status=1
	done
	for name in connect-pg-simple keyv rate-limiter-flexible; do
		in_new_schema ../stores.py node "$name.js" || status=1
	done
	return "$status"
}

# All adapters use the same names of tables.
in_new_schema() {
	psql -Xq -c 'DROP SCHEMA public CASCADE' -c 'CREATE SCHEMA public' && "$@"
}
