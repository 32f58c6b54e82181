# shellcheck shell=bash
# See ../run.sh.
# shellcheck disable=SC2034
packages=(python3-sqlalchemy python3-alembic python3-psycopg2)

have_packages() {
	/usr/bin/python3 -c 'import sqlalchemy, alembic, psycopg2'
}

run_tests() {
	/usr/bin/python3 -m alembic upgrade head &&
		/usr/bin/python3 -m unittest discover --verbose --top-level-directory . tests
}
