# shellcheck shell=bash
# Django with psycopg2: models, migrations, tests.  See ../run.sh.
# shellcheck disable=SC2034
packages=(python3-django python3-psycopg2)

have_packages() {
	/usr/bin/python3 -c 'import django, psycopg2'
}

# The role may not create databases, so the test runner uses the existing one (see TEST in
# project/settings.py).
run_tests() {
	/usr/bin/python3 manage.py test --keepdb --noinput
}
