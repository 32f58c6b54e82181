# shellcheck shell=bash disable=SC2034
# pgx, a driver for Go, from Debian's package of its source.  See ../run.sh and ../behaviours.py.

packages=(golang-go golang-github-jackc-pgx-v4-dev python3)

have_packages() {
	command -v go && [[ -d /usr/share/gocode/src/github.com/jackc/pgx/v4 ]] && command -v python3
}

run_tests() {
	GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$PWD/cache go build -o adapter pgx.go && ../behaviours.py ./adapter
}
