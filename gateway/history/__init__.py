"""Months of what many devices have sent: exported as Parquet files, smoothed as a whole, and learned from.

Everything here is a function of what devices have published, and so costs no privacy.
"""
