"""The rest of the second certificate: known chains, and all points of a stream. Read `claims`.

Like `fugu.audit.exact`, which it completes, it shares no code with what it checks, and can be read in an hour.
"""
