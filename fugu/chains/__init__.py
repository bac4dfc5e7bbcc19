"""Kernels for hidden Markov chains: pure functions on arrays of integer symbols, -1 for an unobserved tick.

With k states and m symbols: `transition` (k, k), `emission` (k, m), `initial` (k,).
"""
