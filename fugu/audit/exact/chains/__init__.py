"""The rest of the second certificate: known chains, and all points of a stream; see `claims`.

Like `fugu.audit.exact`, it shares no code with the planner that it checks, and can be read in an hour.
"""
