# shellcheck shell=bash disable=SC2034
# The database layer of Laravel.  See ../run.sh and ../behaviours.py.

packages=(php-cli php-illuminate-database php-pgsql python3)

have_packages() {
	php -r 'require "Illuminate/Database/autoload.php"; exit(extension_loaded("pdo_pgsql") ? 0 : 1);' && command -v python3
}

run_tests() {
	../behaviours.py php illuminate.php
}
