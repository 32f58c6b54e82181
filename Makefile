# ttl_docs: builds and installs the extension with PGXS, and starts the tests
# and the demo.  "make help" lists the goals.
#
# There is no list of files: every source, script and test in its directory takes part.

EXTENSION = ttl_docs
MODULE_big = ttl_docs
OBJS := $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))
DATA := $(sort $(wildcard sql/ttl_docs--*.sql))

REGRESS := $(sort $(patsubst test/sql/%.sql,%,$(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=test --load-extension=ttl_docs
ISOLATION := $(sort $(patsubst test/specs/%.spec,%,$(wildcard test/specs/*.spec)))
# PGXS gives isolation tests another output directory.  There they would not find
# expected/, which they share with the regression tests.
ISOLATION_OPTS = --inputdir=test --outputdir=. --load-extension=ttl_docs
PROVE_TESTS := $(sort $(wildcard test/t/*.pl))
TAP_TESTS := $(if $(PROVE_TESTS),1)

EXTRA_CLEAN = test-results .built-for

# These goals find or install a PostgreSQL by themselves.  They have to work on a machine
# without pg_config.
SCRIPT_GOALS = deps test torture test-orm test-monitoring lint sanitize matrix bench bench-quick deb demo demo-stop demo-recording help

ifneq ($(or $(if $(MAKECMDGOALS),,all),$(filter-out $(SCRIPT_GOALS),$(MAKECMDGOALS))),)

PG_CONFIG ?= pg_config
OLDEST_PG = 15

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq ($(and $(wildcard $(PGXS)),$(wildcard $(shell $(PG_CONFIG) --includedir-server 2>/dev/null)/postgres.h)),)
$(error "$(PG_CONFIG)" finds no PostgreSQL development files. Install them (Debian: postgresql-server-dev-NN), or choose another PostgreSQL: make PG_CONFIG=/path/to/pg_config)
endif

PG_VERSION := $(shell $(PG_CONFIG) --version)
PG_MAJOR := $(shell echo '$(PG_VERSION)' | sed -n 's/^PostgreSQL \([0-9][0-9]*\).*/\1/p')
ifneq ($(shell test '$(PG_MAJOR)' -ge $(OLDEST_PG) && echo new enough),new enough)
$(error ttl_docs needs PostgreSQL $(OLDEST_PG) or later, but "$(PG_CONFIG)" belongs to $(PG_VERSION))
endif

# PostgreSQL's headers cause warnings with -Wextra.  The compiler does not warn about headers
# in a system directory, so all warnings are about our code.
PG_CPPFLAGS = -I$(srcdir)/src -isystem $(shell $(PG_CONFIG) --includedir-server)
PG_CFLAGS = -Wall -Wextra

# The headers of version 15 declare callbacks as f().  In C23, the default of newer
# compilers, such a function takes no arguments.
PG_CFLAGS += $(if $(filter 15,$(PG_MAJOR)),-std=gnu17)

# With a JIT server, PGXS builds bitcode too, with the clang and LLVM that built the server.
# Bitcode only lets the server inline our functions.  If the tools are missing, we build none.
makefile_global := $(dir $(PGXS))../Makefile.global
clang_of_server := $(or $(CLANG),$(shell sed -n 's/^CLANG *= *//p' '$(makefile_global)'))
llvm_of_server := $(shell sed -n 's/^LLVM_BINPATH *= *//p' '$(makefile_global)')
ifeq ($(and $(shell command -v '$(clang_of_server)'),$(wildcard $(llvm_of_server)/llvm-lto)),)
override with_llvm = no
endif

include $(PGXS)

# PGXS tracks no headers, so all objects depend on all of our headers.  They also depend on
# the server they are built for: a server does not start with a library for another version.
ifeq ($(filter clean distclean,$(MAKECMDGOALS)),)
$(shell echo '$(PG_VERSION) $(PGXS)' | cmp -s - .built-for || echo '$(PG_VERSION) $(PGXS)' > .built-for)
endif
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.h src/*/*.h) .built-for

endif

.PHONY: deps test torture test-orm test-monitoring lint sanitize matrix bench bench-quick deb demo demo-stop demo-recording help

deps:
	@FOR='$(FOR)' test/deps.sh

test:
	@test/run.sh

# The same tests as in "make test", for hours instead of seconds.
torture: export PG_TEST_TORTURE = yes
torture: export TEST_TIME_LIMIT ?= 10800
torture: export TESTS ?= 011_model 012_queries 013_crash 014_soak 022_fuzz 043_adopt_concurrently 053_patroni
torture:
	@test/run.sh

test-orm:
	@test/orm/run.sh

test-monitoring:
	@test/monitoring.sh

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

demo-recording:
	@test/demo_recording.py

help:
	@echo 'make            build the extension'
	@echo 'make install    install it into the PostgreSQL of pg_config'
	@echo 'make deps       install the missing packages for make test and make demo, and do nothing else.'
	@echo '                FOR="lint orm" chooses other goals: test torture lint orm sanitize valgrind'
	@echo '                bench deb matrix, or all'
	@echo 'make test       run all tests on a private server.  It first prints the number and size of the'
	@echo '                missing packages and installs them; nothing else in the system changes.'
	@echo '                TESTS="name ..." runs only these tests'
	@echo 'make torture    run random histories, random queries, crashes, a soak, a fuzzer and failovers for'
	@echo '                hours; installs Patroni'
	@echo 'make test-orm   run applications with ORMs on a private server; fetches packages from Debian'
	@echo '                and npm.  TESTS="name ..." runs only these applications'
	@echo 'make test-monitoring  run contrib/monitoring with Prometheus and its exporter, which it fetches from'
	@echo '                Debian into a temporary directory'
	@echo 'make lint       check the source: compilers, exported symbols, cppcheck, clang-tidy, shellcheck'
	@echo 'make sanitize   run tests with AddressSanitizer and UBSan; takes some minutes.'
	@echo '                VALGRIND=yes runs a few tests with the server under valgrind instead'
	@echo 'make matrix     run make test in a bare Debian of each release: PostgreSQL 15, 17, 18 and 19;'
	@echo '                then pg_upgrade from 15 to the others and from 18 to 19; needs root.'
	@echo '                SUITES="bookworm/s390x" tests another architecture, with qemu, in an hour or two'
	@echo 'make bench      compare ttl_docs with what a user would do instead, on private servers;'
	@echo '                writes bench/RESULTS.md and plots'
	@echo 'make bench-quick  the same in two minutes; prints the results, writes nothing'
	@echo 'make deb        build Debian packages into dist/, for the PostgreSQL versions installed'
	@echo 'make demo       show documents expire on a private server, which keeps running.  It first prints'
	@echo '                the missing packages, their size, and how to remove everything'
	@echo 'make demo-stop  stop the server of the demo and remove it'
	@echo 'make demo-recording  run the demo and write docs/demo.svg, a recording of it'
	@echo 'make installcheck  run the tests on a running server that has ttl_docs installed'
	@echo 'make uninstall, make clean'
	@echo
	@echo 'PG_CONFIG=/path/to/pg_config chooses the PostgreSQL, for every goal.'
