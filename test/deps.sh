#!/usr/bin/env bash
# Installs the Debian packages that "make test" and other goals need, and nothing else.
#
#	test/deps.sh                 for make test and make demo ("make deps")
#	FOR="lint orm" test/deps.sh  for these goals; "all" is all of them
#
# Each goal also installs its missing packages itself.  If nothing is missing, this script
# does nothing.
set -uo pipefail
export LC_ALL=C

# shellcheck source=test/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

readonly GOALS="test torture lint orm sanitize valgrind bench deb matrix"

goals=()
for goal in ${FOR:-test}; do
	case " $GOALS all " in
		*" $goal "*) ;;
		*) die "unknown goal $goal; the goals are: $GOALS, all" ;;
	esac
	if [[ $goal == all ]]; then
		read -ra goals <<<"$GOALS"
		break
	fi
	goals+=("$goal")
done
require_packages "${goals[@]}"
