"""One module for each workload.

measure(bench) measures, and returns Lines of bench/measure.py.  bench.server is a server with an empty
database, and bench.scale says how much to measure.  bench.plot() and bench.table() add plots and tables
to the report.
"""
