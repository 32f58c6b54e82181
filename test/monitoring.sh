#!/usr/bin/env bash
# Tests contrib/monitoring with a real Prometheus and its exporter ("make test-monitoring").
#
# Debian's packages of these programs start services at once, which listen on fixed ports of this machine.
# So this script does not install them: it unpacks them into a directory of its own, which it removes
# afterwards.  It runs test/run.sh with this directory on the PATH.  A program that is on the PATH
# already is not fetched.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

readonly PACKAGES=(prometheus prometheus-postgres-exporter)

UNPACKED=
trap '[[ -z $UNPACKED ]] || rm -rf "$UNPACKED"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Unpacks a package into UNPACKED.  apt-get checks the signature of what it downloads.
unpack() {
	local package=$1
	say "fetching $package"
	(cd "$UNPACKED" && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg-deb -x "$package"_*.deb .) ||
		die "could not fetch $package; install it, or start apt-get update as root and try again"
}

for package in "${PACKAGES[@]}"; do
	if command -v "$package" >/dev/null; then
		continue
	fi
	command -v apt-get >/dev/null || die "there is no $package on the PATH, and only Debian and Ubuntu can fetch it here"
	if [[ -z $UNPACKED ]]; then
		UNPACKED=$(mktemp -d "${TMPDIR:-/tmp}/ttl_docs-monitoring.XXXXXX") || die "could not create a directory"
		# The user of the server runs the programs.
		chmod 755 "$UNPACKED"
		[[ -n $(apt-cache show "$package" 2>/dev/null) ]] || require_apt || die "there are no package lists"
	fi
	unpack "$package"
done

PATH=${UNPACKED:+$UNPACKED/usr/bin:}$PATH TESTS=${TESTS:-051_monitoring 052_citus_monitoring} "$REPO/test/run.sh"
