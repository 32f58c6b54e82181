"""One module for each workload.

measure(bench) measures and returns Lines of bench/measure.py.  bench.server is a server
with an empty database, bench.scale says how much; bench.plot() and bench.table() add to
the report what is not a line.
"""
