# shellcheck shell=bash disable=SC2034
# ActiveRecord without Rails: models, migrations, the rake tasks, tests.  See ../run.sh.

packages=(ruby-activerecord ruby-pg ruby-minitest rake postgresql-client)

have_packages() {
	/usr/bin/ruby -e 'require "active_record"; require "pg"; require "minitest"; require "rake"' &&
		command -v pg_dump && command -v psql
}

# An administrator does this for developers who create databases with db:create and
# db:test:prepare: it creates a template with the extension, and a role that may copy it.
allow_new_databases() {
	psql -U postgres -d postgres -X -q -v ON_ERROR_STOP=1 \
		-c "CREATE DATABASE ${PGDATABASE}_template IS_TEMPLATE true" \
		-c "CREATE ROLE ${PGDATABASE}_developer LOGIN CREATEDB" \
		-c "GRANT SET ON PARAMETER ttl_docs.clock_offset TO ${PGDATABASE}_developer" &&
		psql -U postgres -d "${PGDATABASE}_template" -X -q -c 'CREATE EXTENSION ttl_docs'
}

run_tests() {
	allow_new_databases && /usr/bin/rake db:migrate && /usr/bin/rake test
}
