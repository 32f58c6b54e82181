# ttl_docs: builds and installs the extension with PGXS, and starts the tests
# and the demo.  "make help" lists what can be asked for.
#
# No list of files is kept by hand: a source, script or test that lies in its
# directory takes part.

EXTENSION = ttl_docs
MODULE_big = ttl_docs
OBJS := $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))
DATA := $(sort $(wildcard sql/ttl_docs--*.sql))

REGRESS := $(sort $(patsubst test/sql/%.sql,%,$(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=test --load-extension=ttl_docs
ISOLATION := $(sort $(patsubst test/specs/%.spec,%,$(wildcard test/specs/*.spec)))
# PGXS gives isolation tests an output directory of their own, where they would
# not find the expected/ that they share with the regression tests.
ISOLATION_OPTS = --inputdir=test --outputdir=. --load-extension=ttl_docs
PROVE_TESTS := $(sort $(wildcard test/t/*.pl))
TAP_TESTS := $(if $(PROVE_TESTS),1)

EXTRA_CLEAN = test-results .built-for

# These goals find, or install, a PostgreSQL by themselves: they have to work on
# a machine that has no pg_config yet.
SCRIPT_GOALS = test torture test-orm lint sanitize matrix bench bench-quick deb demo demo-stop help

ifneq ($(or $(if $(MAKECMDGOALS),,all),$(filter-out $(SCRIPT_GOALS),$(MAKECMDGOALS))),)

PG_CONFIG ?= pg_config
OLDEST_PG = 15

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq ($(wildcard $(PGXS)),)
$(error "$(PG_CONFIG)" leads to no PostgreSQL with development files; install them (Debian: postgresql-server-dev-NN), or say which PostgreSQL to use: make PG_CONFIG=/path/to/pg_config)
endif

PG_VERSION := $(shell $(PG_CONFIG) --version)
PG_MAJOR := $(shell echo '$(PG_VERSION)' | sed -n 's/^PostgreSQL \([0-9][0-9]*\).*/\1/p')
ifneq ($(shell test '$(PG_MAJOR)' -ge $(OLDEST_PG) && echo new enough),new enough)
$(error ttl_docs needs PostgreSQL $(OLDEST_PG) or later, but "$(PG_CONFIG)" belongs to $(PG_VERSION))
endif

# PostgreSQL's headers are not written for -Wextra.  As a system directory they
# keep quiet, and warnings are about our code only.
PG_CPPFLAGS = -I$(srcdir)/src -isystem $(shell $(PG_CONFIG) --includedir-server)
PG_CFLAGS = -Wall -Wextra

# The headers of version 15 declare callbacks without arguments, which C23, the default of
# newer compilers, takes at their word.
PG_CFLAGS += $(if $(filter 15,$(PG_MAJOR)),-std=gnu17)

# A server with JIT makes PGXS want bitcode as well, by the very clang and LLVM
# that built the server.  Bitcode only lets the server inline our functions, so
# where those tools are missing the build goes without.
makefile_global := $(dir $(PGXS))../Makefile.global
clang_of_server := $(or $(CLANG),$(shell sed -n 's/^CLANG *= *//p' '$(makefile_global)'))
llvm_of_server := $(shell sed -n 's/^LLVM_BINPATH *= *//p' '$(makefile_global)')
ifeq ($(and $(shell command -v '$(clang_of_server)'),$(wildcard $(llvm_of_server)/llvm-lto)),)
override with_llvm = no
endif

include $(PGXS)

# PGXS tracks no headers: all objects depend on all of ours.  And on the server
# they were built for: a library for another version keeps a server from starting.
ifeq ($(filter clean distclean,$(MAKECMDGOALS)),)
$(shell echo '$(PG_VERSION) $(PGXS)' | cmp -s - .built-for || echo '$(PG_VERSION) $(PGXS)' > .built-for)
endif
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.h src/*/*.h) .built-for

endif

.PHONY: test torture test-orm lint sanitize matrix bench bench-quick deb demo demo-stop help

test:
	@test/run.sh

# The same tests as in "make test", for hours instead of seconds.
torture: export PG_TEST_TORTURE = yes
torture: export TEST_TIME_LIMIT ?= 10800
torture: export TESTS ?= 011_model 012_queries 013_crash 014_soak 022_fuzz
torture:
	@test/run.sh

test-orm:
	@test/orm/run.sh

lint:
	@test/lint.sh

sanitize:
	@test/sanitize.sh

matrix:
	@test/matrix.sh; tests=$$?; test/upgrade_matrix.sh && exit $$tests

bench:
	@bench/run.sh

bench-quick:
	@bench/run.sh --quick

deb:
	@test/deb.sh

demo:
	@test/demo.sh

demo-stop:
	@test/demo.sh stop

help:
	@echo 'make            build the extension'
	@echo 'make install    install it into the PostgreSQL of pg_config'
	@echo 'make test       run all tests on a private server; installs nothing in the system but'
	@echo '                missing packages.  TESTS="name ..." runs only those'
	@echo 'make torture    run random histories and queries, crashes, a soak and a fuzzer for hours'
	@echo 'make test-orm   run applications with ORMs against a private server; fetches what they'
	@echo '                need from Debian and npm.  TESTS="name ..." runs only those'
	@echo 'make lint       look at the source: compilers, exported symbols, cppcheck, clang-tidy, shellcheck'
	@echo 'make sanitize   run tests on a build with AddressSanitizer and UBSan; takes some minutes.'
	@echo '                VALGRIND=yes: a few of them with the server under valgrind instead'
	@echo 'make matrix     run make test in a bare Debian of each release: PostgreSQL 15, 17, 18; then'
	@echo '                pg_upgrade from 15 to the others; as root'
	@echo 'make bench      measure beside what a user would do instead, as ratios, on private servers;'
	@echo '                writes bench/RESULTS.md and plots.  make bench-quick: in two minutes, printed only'
	@echo 'make deb        build Debian packages into dist/, for the PostgreSQL versions installed'
	@echo 'make demo       watch documents expire on a private server, which keeps running'
	@echo 'make demo-stop  stop the server of the demo and remove it'
	@echo 'make installcheck  run the tests on a running server that has ttl_docs installed'
	@echo 'make uninstall, make clean'
	@echo
	@echo 'PG_CONFIG=/path/to/pg_config chooses the PostgreSQL, for each of them.'
